package native

import "math"

// Rotary embedding: an item is a pair of elements, of every head. The angles are
// computed once for all heads, with the program's roundings.

const ropeStep = mostHeadDim / 2 // pairs at a time

var ropeShape = shape{bindings: 1, inlineWords: 4, write: 0, write2: -1}

var ropeBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !ropeShape.fits(c) {
			return 0, false
		}
		heads, dim := c.inline(0), c.inline(1)
		if heads > mostWords || dim%2 != 0 || heads*dim > c.words(0) {
			return 0, false
		}
		if heads == 0 {
			return 0, true
		}
		return dim / 2, true
	},
	Run: func(c *Call, lo, hi uint64) bool {
		s := scratches.Get().(*scratch)
		heads, dim := c.inline(0), c.inline(1)
		x := c.f32(0)
		for lo < hi {
			step := lo / ropeStep
			end := min(hi, (step+1)*ropeStep)
			s.angles.of(c, step)
			from, to := 2*(lo-step*ropeStep), 2*(end-step*ropeStep)
			for h := range heads {
				rotate(x[h*dim+2*lo:h*dim+2*end], s.angles.cos[from:to], s.angles.sin[from:to])
			}
			lo = end
		}
		scratches.Put(s)
		return true
	},
	Grain: func(c *Call) uint64 {
		return max(ropeStep, grainOf(2*c.inline(0)))
	},
}

// angles are the cosines and sines of ropeStep pairs, as rotate wants them. They
// stay in the scratch: a model asks for the same ones in each of its layers.
type angles struct {
	dim, pos, step uint64 // dim 0: none yet
	base           float32
	cos, sin       [2 * ropeStep]float32
}

// of makes them those of a call.
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
