package native

import "sync/atomic"

// Embedding: an item is a token. The tokens are memory, which may change: each is
// read once, and bounded.

// embed makes a body; a row of the table is rowBytes long, and expand makes it dim
// elements of y.
func embed(s shape, p pace, rowBytes func(dim uint64) (bytes uint64, ok bool), expand func(y []float32, row []byte)) *Body {
	return &Body{
		Items: func(c *Call) (uint64, bool) {
			if !s.fits(c) {
				return 0, false
			}
			dim, tokens := c.inline(0), c.words(1)
			if dim == 0 {
				return 0, true
			}
			_, ok := rowBytes(dim)
			return tokens, ok && dim <= mostWords && tokens*dim <= c.words(2)
		},
		Run: func(c *Call, lo, hi uint64) bool {
			dim := c.inline(0)
			if dim == 0 {
				return true
			}
			row, _ := rowBytes(dim)
			table, tokens, y := c.Bindings[0], c.u32(1), c.f32(2)
			rows := uint64(len(table)) / row
			for ; lo < hi; lo++ {
				token := uint64(atomic.LoadUint32(&tokens[lo]))
				if token >= rows {
					return false // the program would trap
				}
				expand(y[lo*dim:][:dim], table[token*row:][:row])
			}
			return true
		},
		Grain: func(c *Call) uint64 { return grainOf(c.inline(0)) },
		Nanos: func(c *Call) (uint64, bool) {
			tokens := c.words(1)
			nanos, ok := p.nanos(tokens, tokens*c.inline(0))
			return nanos + tokens*farNanos, ok
		},
	}
}

var embedBody = embed(
	shape{bindings: 3, inlineWords: 1, write: 2, write2: -1},
	pace{words: 192},
	func(dim uint64) (uint64, bool) { return 4 * dim, true },
	func(y []float32, row []byte) { copy(y, f32s(row)) })

var embedQ8Body = embed(
	shape{bindings: 3, inlineWords: 1, write: 2, write2: -1, halves: 1 << 0},
	pace{words: 256},
	func(dim uint64) (uint64, bool) { return dim / q8Values * q8Bytes, dim%q8Values == 0 },
	expandQ8)
