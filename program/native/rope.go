package native

import "math"

// Rotary embedding: an item is a tile, up to ropeStep pairs of elements of a range of
// heads. Tiles follow each other along the heads, so that the angles, with the
// program's roundings, are computed once for all heads.

const (
	ropeStep   = mostHeadDim / 2 // pairs of a tile
	angleWords = 128             // an angle takes as long as reading this many words
)

var ropeShape = shape{bindings: 1, inlineWords: 4, write: 0, write2: -1}

// ropeTiles is the division of a call: tiles of heads heads and pairs pairs, blocks
// of them along the heads, and steps along the pairs.
type ropeTiles struct {
	heads, pairs, blocks, steps uint64
}

// ropeTilesOf is of a call with heads and a dimension.
func ropeTilesOf(c *Call) (t ropeTiles) {
	heads, half := c.inline(0), c.inline(1)/2
	t.pairs = min(half, ropeStep)
	t.heads = min(heads, grainOf(2*t.pairs))
	t.blocks = ceilDiv(heads, t.heads)
	t.steps = ceilDiv(half, ropeStep)
	return t
}

var ropeBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !ropeShape.fits(c) {
			return 0, false
		}
		heads, dim := c.inline(0), c.inline(1)
		if dim%2 != 0 || heads*dim > c.words(0) {
			return 0, false
		}
		if heads == 0 || dim == 0 {
			return 0, true
		}
		t := ropeTilesOf(c)
		return t.blocks * t.steps, true
	},
	Run: func(c *Call, lo, hi uint64) bool {
		if lo == hi {
			return true
		}

		s := scratches.Get().(*scratch)
		heads, dim := c.inline(0), c.inline(1)
		t := ropeTilesOf(c)
		x := c.f32(0)
		for ; lo < hi; lo++ {
			step, first := lo/t.blocks, lo%t.blocks*t.heads
			s.angles.of(c, step)
			from := step * ropeStep
			pairs := min(ropeStep, dim/2-from)
			for h := first; h < min(first+t.heads, heads); h++ {
				rotate(x[h*dim+2*from:][:2*pairs], s.angles.cos[:2*pairs], s.angles.sin[:2*pairs])
			}
		}

		scratches.Put(s)
		return true
	},
	Grain: func(c *Call) uint64 {
		if c.inline(0) == 0 || c.inline(1) < 2 {
			return 1
		}
		t := ropeTilesOf(c)
		return grainOf(t.heads*(2*t.pairs+startWords) + t.pairs*angleWords)
	},
}

// angles are the cosines and sines of ropeStep pairs, as rotate needs them. They
// stay in the scratch, because a model uses the same ones in each of its layers.
type angles struct {
	dim, pos, step uint64 // dim 0: none yet
	base           float32
	cos, sin       [2 * ropeStep]float32
}

// of computes the angles of a call.
func (a *angles) of(c *Call, step uint64) {
	dim, pos, base := c.inline(1), c.inline(2), c.inlineF32(3)
	if a.dim == dim && a.pos == pos && a.step == step && a.base == base {
		return
	}
	a.dim, a.pos, a.step, a.base = dim, pos, step, base
	first := step * ropeStep
	for i := range min(ropeStep, dim/2-first) {
		exponent := float32(-2*float32(first+i)) / float32(dim)
		power := float32(math.Pow(float64(base), float64(exponent)))
		s, co := math.Sincos(float64(float32(pos) * power))
		a.cos[2*i], a.cos[2*i+1] = float32(co), float32(co)
		a.sin[2*i], a.sin[2*i+1] = -float32(s), float32(s)
	}
}
