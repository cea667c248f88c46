package native

import "math"

// Attention of one query: an item is a head. Like the program, it does
// attentionStep positions at a time, and rescales earlier sums when a new maximum
// comes up.

const (
	mostHeadDim    = 256
	attentionStep  = 64
	mostHeadValues = 9 << 18 // elements of k that one head may read
	positionWords  = 16      // a position takes as long as reading this many more
)

var attentionShape = shape{bindings: 4, inlineWords: 4, write: 3, write2: -1}

var attentionBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !attentionShape.fits(c) {
			return 0, false
		}

		heads, kv, dim, length := c.inline(0), c.inline(1), c.inline(2), c.inline(3)
		if heads == 0 || dim == 0 {
			return 0, true
		}
		if kv == 0 || heads%kv != 0 || dim > mostHeadDim || length*(dim+positionWords) > mostHeadValues {
			return 0, false
		}

		touched := 2*pagesOf(dim) + // of the query and the result
			pages(c.Bindings[1], length, dim, kv*dim) + pages(c.Bindings[2], length, dim, kv*dim)
		ok := touched <= mostPages && heads*dim <= c.words(0) && heads*dim <= c.words(3) &&
			// kv·dim ≤ heads·dim, and length is below 2^22
			length*(kv*dim) <= c.words(1) && length*(kv*dim) <= c.words(2)
		return heads, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		s := scratches.Get().(*scratch)
		for ; lo < hi; lo++ {
			s.attend(c, lo)
		}
		scratches.Put(s)
		return true
	},
	Grain: func(c *Call) uint64 {
		dim, length := c.inline(2), c.inline(3)
		return grainOf(2*dim + 2*length*(dim+positionWords))
	},
}

func (s *scratch) attend(c *Call, head uint64) {
	heads, kv, dim, length := c.inline(0), c.inline(1), c.inline(2), c.inline(3)
	width := kv * dim
	start := head / (heads / kv) * dim
	query, sums := s.query[:dim], s.sums[:dim]
	scale(query, c.f32(0)[head*dim:][:dim], inverseRoot(float32(dim)))
	clear(sums)
	k, v := c.f32(1), c.f32(2)
	most, total := float32(-math.MaxFloat32), float32(0)
	for base := uint64(0); base < length; base += attentionStep {
		count := min(length-base, attentionStep)
		weights := s.weights[:count]
		dotRows(weights, k[base*width+start:], query, int(width))
		if m := largest(weights); m > most {
			keep := float32(math.Exp(float64(most - m)))
			scale(sums, sums, keep)
			total *= keep
			most = m
		}
		total += expSum(weights, weights, most)
		axpyRows(sums, v[base*width+start:], weights, int(width))
	}

	result := c.f32(3)[head*dim:][:dim]
	if length == 0 {
		clear(result)
		return
	}

	scale(result, sums, 1/total)
}
