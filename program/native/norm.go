package native

import "math"

// The items of these bodies are rows of x, each of n elements, with y beside it. y
// may be x: a row is read completely before its elements are replaced one by one.

// rows makes such a body; n is inline word 0, x is binding 0 and y the last. The
// bindings between have n elements each.
func rows(s shape, p pace, run func(c *Call, x, y []float32, n uint64)) *Body {
	y := s.bindings - 1
	s.write, s.write2, s.inPlace = y, -1, 1<<0
	return &Body{
		Items: func(c *Call) (uint64, bool) {
			if !s.fits(c) {
				return 0, false
			}

			n := c.inline(0)
			if n == 0 {
				return 0, true
			}

			rows := c.words(0) / n
			if rows == 0 {
				return 0, true
			}
			if n > mostWords || rows*n > c.words(y) {
				return 0, false
			}

			for i := 1; i < y; i++ {
				if n > c.words(i) {
					return 0, false
				}
			}

			return rows, true
		},
		Run: func(c *Call, lo, hi uint64) bool {
			n := c.inline(0)
			from, to := c.f32(0), c.f32(y)
			for ; lo < hi; lo++ {
				run(c, from[lo*n:][:n], to[lo*n:][:n], n)
			}
			return true
		},
		Grain: func(c *Call) uint64 { return grainOf(c.inline(0)) },
		Nanos: func(c *Call) (uint64, bool) {
			n := c.inline(0)
			if n == 0 {
				return p.nanos(0, 0)
			}
			nanos, ok := p.nanos(c.words(0)/n, c.words(0))
			// Subnormal numbers, if they are kept, take any time.
			return nanos, ok && (s.inlineWords < 2 || normSubnormals(c.inlineF32(1)) == flush)
		},
	}
}

// leastEps is the least eps beside which the flushed part of a mean square is
// negligible. With a smaller eps it may be everything.
const leastEps = 1e-30

// normSubnormals is a norm's treatment of subnormal numbers.
func normSubnormals(eps float32) subnormals {
	if eps >= leastEps {
		return flush
	}
	return keep
}

var rmsnormBody = rows(
	shape{bindings: 3, inlineWords: 2},
	pace{words: 384},
	func(c *Call, x, y []float32, n uint64) {
		eps := c.inlineF32(1)
		sub := normSubnormals(eps)
		mean := sumSquares(x, 0, sub) / float32(n)
		scaleMul(y, x, c.f32(1)[:n], inverseRoot(mean+eps), sub)
	})

var layernormBody = rows(
	shape{bindings: 4, inlineWords: 2},
	pace{words: 512},
	func(c *Call, x, y []float32, n uint64) {
		eps := c.inlineF32(1)
		sub := normSubnormals(eps)
		mean := sum(x, sub) / float32(n)
		variance := sumSquares(x, mean, sub) / float32(n)
		norm(y, x, c.f32(1)[:n], c.f32(2)[:n], mean, inverseRoot(variance+eps), sub)
	})

var softmaxBody = rows(
	shape{bindings: 2, inlineWords: 1},
	pace{words: 1024, exps: true},
	func(c *Call, x, y []float32, n uint64) {
		most := max(largest(x), -math.MaxFloat32)
		total := expSum(y, x, most)
		scale(y, y, 1/total)
	})

// inverseRoot rounds the root before it divides, as the programs do.
func inverseRoot(v float32) float32 {
	return 1 / float32(math.Sqrt(float64(v)))
}
