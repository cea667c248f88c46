package native

import (
	"math"
	"sync"
)

// Attention to a cache in pages: an item is a head of a row of the batch. The positions
// are done attendStep at a time, rescaling what was summed before when a new maximum
// comes up; what comes of a row depends on nothing of the others.

const (
	attendStep = 512
	attendRun  = 16 // positions whose place is noted together, at the most
)

var attentionCacheShape = shape{bindings: 6, inlineWords: 6, write: 5, write2: -1}

var attentionCacheBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !attentionCacheShape.fits(c) {
			return 0, false
		}
		q := cachedOf(c, 1, 4)
		if q.batch == 0 || q.heads == 0 || q.dim == 0 {
			return 0, true
		}
		ok := q.fits() && q.dim <= mostHeadDim && q.batch*(q.heads*q.dim) <= c.words(5)
		return q.batch * q.heads, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		if lo == hi {
			return true
		}
		q := cachedOf(c, 1, 4)
		a := attends.Get().(*attend)
		ok := a.heads(&q, c.f32(5), lo, hi, q.most(c))
		attends.Put(a)
		return ok
	},
	Grain: func(c *Call) uint64 {
		q := cachedOf(c, 1, 4)
		if q.batch == 0 || q.kv == 0 || q.dim == 0 {
			return 1
		}
		each := 2*q.dim + 2*q.most(c)*(q.dim+positionWords)
		grain := grainOf(each)
		if share := q.heads / q.kv; grain < share && share*each <= mostWords {
			return share // they have the same keys and values
		}
		return grain
	},
	Nanos: func(c *Call) (uint64, bool) {
		// As if every row were at the end of its sequence.
		q := cachedOf(c, 1, 4)
		if q.batch == 0 || q.heads == 0 || q.dim == 0 {
			return callNanos, assembly()
		}
		all := q.batch * q.heads
		return attentionPace.nanos(6*all, all*q.most(c)*(2*q.dim+positionWords))
	},
}

var attentionPace = pace{words: 40, exps: true}

// most is how many positions a row may attend to: those that the table reaches, and
// within what an item may take. A row that is beyond is the lane engine's.
func (q *cached) most(c *Call) uint64 {
	n := min(q.pages*q.page, mostHeadValues/(q.dim+positionWords))
	if n <= q.page || pagesOf(uint64(len(q.k)))+pagesOf(uint64(len(q.v))) <= mostPages/2 {
		return n
	}
	page := min(q.page, n)
	each := pages(c.Bindings[3], page, q.dim, q.width) + pages(c.Bindings[4], page, q.dim, q.width)
	return min(n, mostPages/2/each*q.page)
}

// attend is what a Run needs.
type attend struct {
	places       [attendStep]uint64 // where runs of positions begin in k and v
	weights      [attendStep]float32
	query, sums  [mostHeadDim]float32
	run          uint64 // positions of a run
	from, placed uint64 // positions from and up to which places are noted
}

var attends = sync.Pool{New: func() any { return new(attend) }}

// heads does items.
func (a *attend) heads(q *cached, out []float32, lo, hi, most uint64) bool {
	share := q.heads / q.kv
	a.run = min(q.page, attendRun)
	for lo < hi {
		b, first := lo/q.heads, lo%q.heads
		last := min(q.heads, first+hi-lo)
		to := out[b*q.heads*q.dim:][:q.heads*q.dim]
		lo += last - first
		position, sequence := q.at(b)
		if sequence == padding {
			clear(to[first*q.dim : last*q.dim])
			continue
		}
		if !q.reaches(position, sequence) || position >= most {
			return false
		}
		a.from, a.placed = 0, 0
		for h := first; h < last; h++ {
			query := q.qkv[b*q.row+h*q.dim:][:q.dim]
			if !a.head(q, to[h*q.dim:][:q.dim], query, h/share*q.dim, position+1, sequence) {
				return false
			}
		}
	}
	return true
}

// note looks up where n positions from a multiple of attendStep on are.
func (a *attend) note(q *cached, from, n, sequence uint64) bool {
	if a.from == from && a.placed == from+n {
		return true
	}
	a.from, a.placed = from, from+n
	for i := uint64(0); i*a.run < n; i++ {
		position := from + i*a.run
		at, ok := q.place(position, sequence)
		if !ok {
			a.placed = 0
			return false
		}
		a.places[i] = at + position&(q.page-1)*q.width
	}
	return true
}

// head does a head whose keys begin at element start of a position.
func (a *attend) head(q *cached, out, query []float32, start, length, sequence uint64) bool {
	scaled, sums := a.query[:q.dim], a.sums[:q.dim]
	scale(scaled, query, inverseRoot(float32(q.dim)))
	clear(sums)
	most, total := float32(-math.MaxFloat32), float32(0)
	for from := uint64(0); from < length; from += attendStep {
		n := min(length-from, attendStep)
		if !a.note(q, from, n, sequence) {
			return false
		}
		weights := a.weights[:n]
		a.scores(q, weights, scaled, start)
		if m := largest(weights); m > most {
			keep := float32(math.Exp(float64(most - m)))
			scale(sums, sums, keep)
			total *= keep
			most = m
		}
		total += expSum(weights, weights, most)
		a.values(q, sums, weights, start)
	}
	scale(out, sums, 1/total)
	return true
}

// scores makes weights the products of the keys with the query.
func (a *attend) scores(q *cached, weights, query []float32, start uint64) {
	for i := 0; len(weights) > 0; i++ {
		n := min(len(weights), int(a.run))
		dotRows(weights[:n], q.k[a.places[i]+start:], query, int(q.width))
		weights = weights[n:]
	}
}

// values adds the values times the weights to the sums.
func (a *attend) values(q *cached, sums, weights []float32, start uint64) {
	for i := 0; len(weights) > 0; i++ {
		n := min(len(weights), int(a.run))
		axpyRows(sums, q.v[a.places[i]+start:], weights[:n], int(q.width))
		weights = weights[n:]
	}
}
