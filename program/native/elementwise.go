package native

// Elementwise bodies: an item is blockWords elements.

// elementwise makes a body with the elements that all bindings have as its items.
func elementwise(s shape, p pace, run func(c *Call, from, to uint64)) *Body {
	count := func(c *Call) uint64 {
		n := c.words(0)
		for i := range c.Bindings {
			n = min(n, c.words(i))
		}
		return n
	}
	return &Body{
		Items: func(c *Call) (uint64, bool) {
			if !s.fits(c) {
				return 0, false
			}
			c.elements = count(c)
			for i := range min(len(c.Bindings), len(c.floats)) {
				c.floats[i] = c.f32(i)
			}
			return ceilDiv(c.elements, blockWords), true
		},
		Run: func(c *Call, lo, hi uint64) bool {
			if hi-lo == 1 && hi*blockWords >= c.elements { // small calls are frequent
				run(c, lo*blockWords, c.elements)
				return true
			}
			for ; lo < hi; lo++ {
				run(c, lo*blockWords, min(c.elements, (lo+1)*blockWords))
			}
			return true
		},
		Grain: func(*Call) uint64 { return grainWords / blockWords },
		Nanos: func(c *Call) (uint64, bool) { return p.nanos(0, c.elements) },
	}
}

var copyBody = elementwise(
	shape{bindings: 2, write: 1, write2: -1, inPlace: 1 << 0},
	pace{words: 192},
	func(c *Call, from, to uint64) {
		copy(c.u32(1)[from:to], c.u32(0)[from:to])
	})

var fillBody = elementwise(
	shape{bindings: 1, inlineWords: 1, write: 0, write2: -1},
	pace{words: 128},
	func(c *Call, from, to uint64) {
		fill(c.u32(0)[from:to], uint32(c.inline(0)))
	})

var vecaddBody = elementwise(
	shape{bindings: 3, write: 2, write2: -1, inPlace: 1<<0 | 1<<1},
	pace{words: 256},
	func(c *Call, from, to uint64) {
		add(c.floats[2][from:to], c.floats[0][from:to], c.floats[1][from:to])
	})

var saxpyBody = elementwise(
	shape{bindings: 2, inlineWords: 1, write: 1, write2: -1, inPlace: 1 << 0},
	pace{words: 256},
	func(c *Call, from, to uint64) {
		saxpy(c.floats[1][from:to], c.floats[0][from:to], c.inlineF32(0))
	})

var swigluBody = elementwise(
	shape{bindings: 3, write: 2, write2: -1, inPlace: 1<<0 | 1<<1},
	pace{words: 256, exps: true},
	func(c *Call, from, to uint64) {
		swiglu(c.floats[2][from:to], c.floats[0][from:to], c.floats[1][from:to])
	})
