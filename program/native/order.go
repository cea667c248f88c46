package native

import "math"

// Bodies of one item: a sum, a maximum, the k largest.

// none is the index where there is no element.
const none = math.MaxUint32

var reduceShape = shape{bindings: 2, write: 1, write2: -1}

var reduceBody = &Body{
	// With more than one workgroup there is a sum for each: the lane engine's.
	Items: func(c *Call) (uint64, bool) {
		ok := reduceShape.fits(c) && c.Grid.X == 1 && c.Grid.Y == 1 && c.Grid.Z == 1 &&
			c.words(0) <= mostWords && c.words(1) >= 1
		return 1, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		c.f32(1)[0] = sum(c.f32(0))
		return true
	},
	Grain: one,
}

var argmaxShape = shape{bindings: 2, write: 1, write2: -1}

var argmaxBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		return 1, argmaxShape.fits(c) && c.words(0) <= mostWords && c.words(1) >= 1
	},
	Run: func(c *Call, lo, hi uint64) bool {
		x := c.f32(0)
		most := largest(x)
		at := -1
		if math.IsInf(float64(most), -1) {
			// Nothing but -Inf and NaN, which is no candidate.
			for i, v := range x {
				if v == most {
					at = i
					break
				}
			}
		} else if at = findAbove(x, math.Nextafter32(most, float32(math.Inf(-1)))); at < 0 {
			return false // x has changed
		}
		c.u32(1)[0] = uint32(at) // -1 is none
		return true
	},
	Grain: one,
}

const (
	mostK = 64
	// mostInserts bounds the time that values in ascending order take.
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

// of makes the list of the k largest of x, without NaN. It is false where that
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
