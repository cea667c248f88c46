package native

import "math"

// Rotary embedding: an item is a pair of elements, of every head. The angle is
// computed once for all heads, with the program's roundings.

const ropeStep = 32 // pairs at a time

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
		heads, dim := c.inline(0), c.inline(1)
		x := c.f32(0)
		var cosines, sines [2 * ropeStep]float32
		for lo < hi {
			n := min(hi-lo, ropeStep)
			for i := range n {
				c, s := ropeAngle(c, lo+i)
				cosines[2*i], cosines[2*i+1] = c, c
				sines[2*i], sines[2*i+1] = -s, s
			}
			for h := range heads {
				rotate(x[h*dim+2*lo:][:2*n], cosines[:2*n], sines[:2*n])
			}
			lo += n
		}
		return true
	},
	Grain: func(c *Call) uint64 {
		return max(ropeStep, grainOf(2*c.inline(0)))
	},
}

// ropeAngle is the cosine and sine of pos · base^(-2i/dim).
func ropeAngle(c *Call, i uint64) (cos, sin float32) {
	dim, pos, base := c.inline(1), c.inline(2), c.inlineF32(3)
	exponent := float32(-2*float32(i)) / float32(dim)
	power := float32(math.Pow(float64(base), float64(exponent)))
	s, co := math.Sincos(float64(float32(pos) * power))
	return float32(co), float32(s)
}
