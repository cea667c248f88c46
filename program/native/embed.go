package native

import "sync/atomic"

// Embedding: an item is a token. The tokens are memory, which may change: each is
// read once, and bounded.

// embedOf makes the body for a table of a type. Its bindings are the table, its scales
// if the type has them apart, the tokens, and y.
func embedOf(t weightType, p pace) *Body {
	s := shape{bindings: 3, inlineWords: 1, write: 2, write2: -1}
	switch t {
	case typeF32:
	case typeI8:
		s = shape{bindings: 4, inlineWords: 2, write: 3, write2: -1, bytes: 1 << 0}
	default:
		s.alignment(t)
	}

	y := s.write
	return &Body{
		Items: func(c *Call) (uint64, bool) {
			if !s.fits(c) {
				return 0, false
			}
			dim, tokens := c.inline(0), c.words(y-1)
			if dim == 0 {
				return 0, true
			}
			if t == typeI8 && c.inline(1) == 0 {
				return 0, tokens == 0
			}
			_, ok := matrixOf(t, nil, dim)
			return tokens, ok && embedWords(t, c) <= 2*mostWords && tokens*dim <= c.words(y)
		},
		Run: func(c *Call, lo, hi uint64) bool {
			dim := c.inline(0)
			if dim == 0 {
				return true
			}

			m, _ := matrixOf(t, c.Bindings[0], dim)
			rows := uint64(len(m.w)) / m.rowBytes
			if t == typeI8 {
				// The scales of all rows.
				m.scales, m.group = c.f32(1), c.inline(1)
				rows = min(rows, uint64(len(m.scales))*m.group/dim)
			}

			tokens, to := c.u32(y-1), c.f32(y)
			for ; lo < hi; lo++ {
				token := uint64(atomic.LoadUint32(&tokens[lo]))
				if token >= rows {
					return false // the program would trap
				}
				m.expand(to[lo*dim:], token, 1)
			}

			return true
		},
		Grain: func(c *Call) uint64 { return grainOf(embedWords(t, c)) },
		Nanos: func(c *Call) (uint64, bool) {
			tokens := c.words(y - 1)
			nanos, ok := p.nanos(tokens, tokens*c.inline(0))
			words := tokens * c.inline(0)
			nanos += scattered(tokens, words, uint64(len(c.Bindings[0])/4))
			if t == typeI8 {
				nanos += scattered(tokens, words, c.words(1)) // of the scales
			}
			return nanos + tokens*farNanos, ok
		},
	}
}

// embedWords is the number of words read in the time that a row takes.
func embedWords(t weightType, c *Call) uint64 {
	if t == typeI8 && c.inline(1) > 0 {
		return c.inline(0) * (1 + runWords/min(runWords, c.inline(1)))
	}
	if t.inBlocks() {
		return c.inline(0) * unpackWords
	}
	return c.inline(0)
}
