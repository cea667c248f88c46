package native

import "sync/atomic"

// The choice of the next token in greedy decoding: an item is a row of the logits.

// padding is the sequence of a row that does not exist.
const padding = 0xFFFFFFFF

var nextTokenShape = shape{bindings: 4, inlineWords: 3, write: 1, write2: 2, more: 1 << 3}

var nextTokenBody = &Body{
	Items: func(c *Call) (uint64, bool) {
		if !nextTokenShape.fits(c) {
			return 0, false
		}
		vocab, batch, keep := c.inline(0), c.inline(1), c.inline(2)
		if batch == 0 {
			return 0, true
		}
		ok := vocab <= mostWords && batch*vocab <= c.words(0) && batch <= c.words(1) &&
			batch <= c.words(2)/2 && keep > 0 && batch*keep <= c.words(3)
		return batch, ok
	},
	Run: func(c *Call, lo, hi uint64) bool {
		vocab, keep := c.inline(0), c.inline(2)
		logits, tokens, rows, history := c.f32(0), c.u32(1), c.u32(2), c.u32(3)
		for ; lo < hi; lo++ {
			if atomic.LoadUint32(&rows[2*lo+1]) == padding {
				continue
			}
			position := atomic.LoadUint32(&rows[2*lo])
			token := best(logits[lo*vocab:][:vocab])
			history[lo*keep+uint64(position)%keep] = token
			if token == none {
				token = 0 // a valid one, for a step that is already in flight
			}
			tokens[lo] = token
			rows[2*lo] = position + 1
		}

		return true
	},
	Grain: func(c *Call) uint64 { return grainOf(2 * c.inline(0)) },
	Nanos: func(c *Call) (uint64, bool) {
		vocab, batch := c.inline(0), c.inline(1)
		nanos, ok := pace{words: 64}.nanos(4*batch, batch*vocab)
		return nanos + scattered(batch, batch, batch*c.inline(2)), ok // of the history
	},
}

// best is the index of the largest of x, the first of equal ones, or none.
func best(x []float32) uint32 {
	if len(x) == 0 {
		return none
	}
	if at := firstLargest(x); at >= 0 {
		return uint32(at)
	}
	// Nothing but -Inf and NaN, or x has changed. -1 is none.
	return uint32(firstNumber(x))
}
