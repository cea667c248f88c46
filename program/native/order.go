package native

import (
	"math"
	"slices"
)

// Sums, the maximum, and the k largest: the last two are one item.

// none is the index where there is no element.
const none = math.MaxUint32

var reduceShape = shape{bindings: 2, write: 1, write2: -1}

// reduceBody has an item for each workgroup: the sum of its share of x, which is
// every groups-th run of reduceLanes elements.
var reduceBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !reduceShape.fits(c) {
			return 0, false
		}
		groups, ok := c.groups()
		ok = ok && groups <= c.words(1) && c.words(0)/groups <= mostWords
		return groups, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		groups, _ := c.groups()
		x, out := c.f32(0), c.f32(1)
		for ; lo < hi; lo++ {
			if groups == 1 {
				out[0] = sum(x, flush)
				break
			}
			var all float32
			for i := lo * reduceLanes; i < uint64(len(x)); i += groups * reduceLanes {
				all += sum(x[i:min(i+reduceLanes, uint64(len(x)))], flush)
			}
			out[lo] = all
		}
		return true
	},
	Grain: func(c *Call) uint64 {
		groups, _ := c.groups()
		runs := ceilDiv(c.words(0), reduceLanes*max(groups, 1))
		return grainOf(min(c.words(0), runs*(reduceLanes+startWords)))
	},
	Nanos: func(c *Call) (uint64, bool) {
		groups, _ := c.groups()
		return pace{words: 128}.nanos(groups+c.words(0)/reduceLanes, c.words(0))
	},
}

const (
	reduceLanes = 256
	mostGroups  = 1 << 20 // the programs leave the workgroups beyond idle
)

// groups is the number of workgroups of the call; ok is false if some would be
// idle.
func (c *Call) groups() (groups uint64, ok bool) {
	area := uint64(c.Grid.X) * uint64(c.Grid.Y)
	if area > mostGroups {
		return 1, false
	}
	groups = area * uint64(c.Grid.Z)
	return groups, groups <= mostGroups
}

var argmaxShape = shape{bindings: 2, write: 1, write2: -1}

var argmaxBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		return 1, argmaxShape.fits(c) && c.words(0) <= mostWords && c.words(1) >= 1
	},
	Run: func(c *Call, lo, hi uint64) bool {
		x := c.f32(0)
		at := firstLargest(x)
		if at < 0 {
			// There is only -Inf and NaN, which is no candidate, or x has changed.
			at = slices.Index(x, float32(math.Inf(-1)))
			if at < 0 && slices.ContainsFunc(x, func(v float32) bool { return v == v }) {
				return false
			}
		}
		c.u32(1)[0] = uint32(at) // -1 is none
		return true
	},
	Grain: one,
}

// firstLargest is the index of the largest of x, the first of equal ones. It is
// negative if that is -Inf, or if x changes meanwhile.
func firstLargest(x []float32) int {
	most := largest(x)
	if math.IsInf(float64(most), -1) {
		return -1
	}
	return findAbove(x, math.Nextafter32(most, float32(math.Inf(-1))))
}

const (
	mostK = 64
	// mostInserts bounds the time for values in ascending order.
	mostInserts = 1 << 14
)

var topkShape = shape{bindings: 3, inlineWords: 1, write: 1, write2: 2}

var topkBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		k := c.inline(0)
		ok := topkShape.fits(c) && c.words(0) <= mostWords &&
			k <= mostK && k <= c.words(1) && k <= c.words(2)
		return 1, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		var t top
		if !t.of(c.f32(0), int(c.inline(0))) {
			return false
		}
		values, indices := c.f32(1), c.u32(2)
		for i := range int(c.inline(0)) {
			if i < t.n {
				values[i], indices[i] = t.values[i], t.indices[i]
			} else {
				values[i], indices[i] = float32(math.Inf(-1)), none
			}
		}
		return true
	},
	Grain: one,
}

// top is a list of elements, largest first and equal ones by index.
type top struct {
	n       int
	values  [mostK]float32
	indices [mostK]uint32
}

// of makes the list of the k largest of x, without NaN. It returns false if that
// takes too long.
func (t *top) of(x []float32, k int) bool {
	if k == 0 {
		return true
	}

	i := 0
	for ; i < len(x) && t.n < k; i++ {
		if v := x[i]; v == v {
			t.n++
			t.insert(v, uint32(i))
		}
	}

	for inserts := 0; i < len(x); inserts++ {
		least := t.values[t.n-1]
		skip := findAbove(x[i:], least)
		if skip < 0 {
			return true
		}
		if inserts == mostInserts {
			return false
		}
		i += skip
		if v := x[i]; v > least { // it may have changed
			t.insert(v, uint32(i))
		}
		i++
	}

	return true
}

// insert puts an element in its place among the first n-1; the last falls out.
func (t *top) insert(v float32, index uint32) {
	at := t.n - 1
	for at > 0 && t.values[at-1] < v {
		t.values[at], t.indices[at] = t.values[at-1], t.indices[at-1]
		at--
	}
	t.values[at], t.indices[at] = v, index
}
