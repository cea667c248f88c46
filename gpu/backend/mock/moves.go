package mock

import (
	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// The device does copies and fills without a program.

// Blocks between two looks at the stop flag: well under a millisecond, also when
// every page is touched for the first time.
const (
	wordBlock = 32 << 10
	byteBlock = 256 << 10
)

// prepareMove sets up a copy. Items are bytes.
func (t *task) prepareMove(dst, src []byte) {
	t.dst, t.src = dst, src
	t.kernel, t.items, t.block = moveBlock, uint64(len(dst)), byteBlock
	t.shared = 2*len(dst) >= parallelBytes
	overlaps, same := overlap(dst, src)
	t.serial = overlaps && !same
	// As memmove: towards higher addresses it has to begin at the end.
	t.reverse = t.serial && above(dst, src)
}

func moveBlock(t *task, _ int, lo, hi uint64) bool {
	dst, src := t.dst[lo:hi], t.src[lo:hi]
	if len(t.dst) > shortBytes && !t.serial && aligned(dst) {
		for piece, rest := around(wordsOf(dst)); len(rest) > 0; piece, rest = around(rest) {
			n := copy(dst[:4*len(piece)], src)
			dst, src = dst[n:], src[n:]
		}
	}
	copy(dst, src)
	return true
}

// prepareFill sets up a fill. Items are words. The core has seen to it that the
// span consists of whole ones; one that does not is a trap.
func (t *task) prepareFill(job *backend.Job) outcome.Trap {
	span := job.Spans[0]
	if trap := fillTrap(span); trap.Kind != outcome.NoTrap {
		return trap
	}
	t.words, t.pattern = wordsOf(span.Host), job.Pattern
	t.kernel, t.items, t.block = fillBlock, uint64(len(t.words)), wordBlock
	t.shared = len(span.Host) >= parallelBytes
	return outcome.Trap{}
}

// fillTrap is that of a fill which is not of whole words.
func fillTrap(span backend.Span) outcome.Trap {
	switch {
	case !aligned(span.Host) || span.IOVA%4 != 0:
		return outcome.Trap{Kind: outcome.Misaligned}
	case len(span.Host)%4 != 0:
		return outcome.Trap{Kind: outcome.Misaligned, Offset: uint64(len(span.Host)) &^ 3}
	}
	return outcome.Trap{}
}

func fillBlock(t *task, _ int, lo, hi uint64) bool {
	words := t.words[lo:hi]
	if 4*len(t.words) > shortBytes {
		for piece, rest := around(words); len(rest) > 0; piece, rest = around(rest) {
			fillWords(piece, t.pattern)
			words = rest
		}
	}
	fillWords(words, t.pattern)
	return true
}

// fillWords goes by arrays of 8, so that the compiler checks bounds once for each.
func fillWords(dst []uint32, v uint32) {
	for len(dst) >= 8 {
		d := (*[8]uint32)(dst)
		d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = v, v, v, v, v, v, v, v
		dst = dst[8:]
	}
	for i := range dst {
		dst[i] = v
	}
}
