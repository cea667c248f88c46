package native

import (
	"encoding/binary"
	"math"
	"sync"
)

// No item and no range of Grain items takes much longer than a millisecond, nor
// more than some 50 ms if every page that it touches must be faulted in first, as
// after a client has punched them out of its memory: within one nothing checks for
// a cancel. The lane engine does larger work.
const (
	mostWords = 1 << 20  // of a binding, read or written by one item
	mostPages = 11 << 10 // touched by one item; a page that is made takes 4 to 5 µs

	// grainWords is about how much a range of Grain items reads: some 20 µs of
	// memory. Beginning a row takes as long as reading startWords more, because of
	// the calls or of a page that is not in the caches; it also bounds the rows of
	// a range.
	grainWords = 1 << 16
	startWords = 64

	pageWords = 4096 / 4
)

// blockWords is the item of elementwise bodies.
const blockWords = 4096

// shape is a body's requirements for every call.
type shape struct {
	bindings    int
	inlineWords int
	write       int // the binding that is written
	write2      int // another one, or -1
	more        int // one bit for each further one
	inPlace     int // one bit for each binding that may begin where the written one does
	halves      int // one bit for each binding of 2-byte alignment (q8_0)
	bytes       int // and of none
}

// fits reports whether a call has the shape: bindings that are aligned and whole
// words, and no sharing of memory with the written binding except those of inPlace.
// It touches no memory of the bindings.
func (s *shape) fits(c *Call) bool {
	if len(c.Bindings) != s.bindings || len(c.Inline) != 4*s.inlineWords {
		return false
	}
	if c.Grid.X == 0 || c.Grid.Y == 0 || c.Grid.Z == 0 {
		return false
	}

	for i, b := range c.Bindings {
		to := 4
		if s.halves>>i&1 != 0 {
			to = 2
		} else if s.bytes>>i&1 != 0 {
			to = 1
		}

		if !aligned(b, uintptr(to)) || len(b)%to != 0 || uint64(len(b)) > math.MaxUint32 {
			return false
		}

		written := s.more | 1<<s.write
		if s.write2 >= 0 {
			written |= 1 << s.write2
		}

		for w := range c.Bindings {
			if written>>w&1 == 0 || w == i {
				continue
			}
			shared, same := overlap(b, c.Bindings[w])
			if shared && !(same && s.inPlace>>i&1 != 0) {
				return false
			}
		}
	}

	return true
}

// words is the length of a binding in words.
func (c *Call) words(i int) uint64 { return uint64(len(c.Bindings[i]) / 4) }

func (c *Call) f32(i int) []float32 { return f32s(c.Bindings[i]) }
func (c *Call) u32(i int) []uint32  { return u32s(c.Bindings[i]) }

// inline is word i of the push constants. The product of two cannot overflow.
func (c *Call) inline(i int) uint64 {
	return uint64(binary.LittleEndian.Uint32(c.Inline[4*i:]))
}

func (c *Call) inlineF32(i int) float32 {
	return math.Float32frombits(uint32(c.inline(i)))
}

// ceilDiv is a/b, rounded up.
func ceilDiv(a, b uint64) uint64 { return (a + b - 1) / b }

// grainOf is the number of items in one grain if each has a row of this many words.
func grainOf(words uint64) uint64 {
	return max(1, grainWords/(words+startWords))
}

// largeGrainOf is grainOf for faster items: work of some 20 to 100 µs is not worth
// dividing among workers.
func largeGrainOf(words uint64) uint64 {
	if !assembly() {
		words *= goFactor
	}
	return max(1, 16*grainWords/(words+startWords))
}

// pages bounds the pages of a binding's rows: each begins stride words after the
// one before, the first a multiple of words from the beginning.
func pages(binding []byte, rows, words, stride uint64) uint64 {
	if rows == 0 || words == 0 {
		return 0
	}
	each := pagesOf(words)
	if pageWords%words == 0 && stride%words == 0 && aligned(binding, uintptr(4*words)) {
		each = 1 // none lies across the end of a page
	}
	return min(rows*each, pagesOf((rows-1)*stride+words))
}

// pagesOf bounds the pages of consecutive words.
func pagesOf(words uint64) uint64 { return (words+pageWords-2)/pageWords + 1 }

// one is the Grain of bodies with few, large items.
func one(*Call) uint64 { return 1 }

// scratch is the memory of a Run beyond its stack.
type scratch struct {
	panel [panelDepth * mostTileCols]float32   // of a matrix product's b
	edge  [mostTileRows * mostTileCols]float32 // a tile that is cut off at the right

	query, sums [mostHeadDim]float32
	weights     [attentionStep]float32

	angles angles
}

// scratches has, in steady state, one for each worker. A Run that ends in a memory
// fault leaves its own to the collector.
var scratches = sync.Pool{New: func() any { return new(scratch) }}
