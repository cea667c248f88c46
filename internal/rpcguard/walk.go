package rpcguard

import (
	"encoding/binary"

	"capgpu/gpuerr"
)

// maxDepth bounds the nesting of a message.
const maxDepth = 32

// walker visits every object that can be reached from a message's root and
// refuses the message if a pointer leaves its segment, nesting exceeds maxDepth,
// or the objects reached add up to more words than the message has. The last
// rules out cycles and shared objects that would be read over and over. Elements
// of no size, which take no words, are counted apart.
//
// Layout: capnproto.org/encoding.html.
type walker struct {
	segments [][]byte // each a whole number of words
	budget   int64    // words left
	empty    int64    // elements of no size left
}

// maxEmptyElements is how many list elements of no size a message may have.
const maxEmptyElements = 4096

// checkPointers walks a message of the given segments.
func checkPointers(segments [][]byte) error {
	w := walker{segments: segments, empty: maxEmptyElements}
	for _, s := range segments {
		w.budget += int64(len(s) / 8)
	}
	if err := w.charge(1); err != nil {
		return err
	}
	if len(segments[0]) < 8 {
		return protocolError("a message without a root")
	}
	return w.pointer(0, 0, maxDepth)
}

func protocolError(format string, args ...any) error {
	return gpuerr.New(gpuerr.Protocol, format, args...)
}

func (w *walker) charge(words int64) error {
	w.budget -= words
	if w.budget < 0 {
		return protocolError("a message whose objects overlap or are cyclic")
	}
	return nil
}

func (w *walker) chargeEmpty(elements int64) error {
	w.empty -= elements
	if w.empty < 0 {
		return protocolError("a message with more than %d list elements of no size", maxEmptyElements)
	}
	return nil
}

// word reads a word that is known to be in bounds.
func (w *walker) word(segment uint32, at int64) uint64 {
	return binary.LittleEndian.Uint64(w.segments[segment][at*8:])
}

func (w *walker) inBounds(segment uint32, start, words int64) bool {
	return uint64(segment) < uint64(len(w.segments)) && start >= 0 && words >= 0 &&
		start+words <= int64(len(w.segments[segment])/8)
}

const (
	kindStruct = 0
	kindList   = 1
	kindFar    = 2
	kindOther  = 3
)

func kindOf(p uint64) uint64 { return p & 3 }

// offsetOf is the signed offset of a struct or list pointer, in words.
func offsetOf(p uint64) int64 { return int64(int32(uint32(p)) >> 2) }

// pointer visits the pointer at a word. The word itself is already charged.
func (w *walker) pointer(segment uint32, at int64, depth int) error {
	p := w.word(segment, at)
	switch kindOf(p) {
	case kindFar:
		return w.far(p, depth)
	case kindOther:
		if uint32(p)>>2 != 0 {
			return protocolError("a pointer of an unknown kind")
		}
		return nil
	}
	if p == 0 {
		return nil
	}
	return w.object(segment, at+1+offsetOf(p), p, depth)
}

func (w *walker) far(p uint64, depth int) error {
	segment, at, isDouble := uint32(p>>32), int64(uint32(p)>>3), p&4 != 0
	padWords := int64(1)
	if isDouble {
		padWords = 2
	}
	if !w.inBounds(segment, at, padWords) {
		return protocolError("a far pointer out of bounds")
	}
	if err := w.charge(padWords); err != nil {
		return err
	}

	pad := w.word(segment, at)
	if !isDouble {
		if kindOf(pad) == kindFar {
			return protocolError("a far pointer to a far pointer")
		}
		return w.pointer(segment, at, depth)
	}

	tag := w.word(segment, at+1)
	if kindOf(pad) != kindFar || pad&4 != 0 || kindOf(tag) > kindList {
		return protocolError("a malformed landing pad")
	}

	return w.object(uint32(pad>>32), int64(uint32(pad)>>3), tag, depth)
}

// object visits the struct or list that tag describes, at start.
func (w *walker) object(segment uint32, start int64, tag uint64, depth int) error {
	if depth == 0 {
		return protocolError("a message nested deeper than %d", maxDepth)
	}
	if kindOf(tag) == kindStruct {
		dataWords, pointers := structSize(tag)
		if !w.inBounds(segment, start, dataWords+pointers) {
			return protocolError("a struct out of bounds")
		}
		if err := w.charge(dataWords + pointers); err != nil {
			return err
		}
		return w.pointers(segment, start+dataWords, pointers, depth-1)
	}
	return w.list(segment, start, tag, depth)
}

func structSize(tag uint64) (dataWords, pointers int64) {
	return int64(uint16(tag >> 32)), int64(uint16(tag >> 48))
}

func (w *walker) pointers(segment uint32, first, n int64, depth int) error {
	for i := range n {
		if err := w.pointer(segment, first+i, depth); err != nil {
			return err
		}
	}
	return nil
}

// elementBits by the element size code of a list pointer; 6 are pointers, 7 is
// a composite list.
var elementBits = [7]int64{0, 1, 8, 16, 32, 64, 64}

func (w *walker) list(segment uint32, start int64, tag uint64, depth int) error {
	code, n := tag>>32&7, int64(tag>>35)
	if code == 7 {
		return w.compositeList(segment, start, n, depth)
	}

	words := (n*elementBits[code] + 63) / 64
	if !w.inBounds(segment, start, words) {
		return protocolError("a list out of bounds")
	}
	if code == 0 {
		return w.chargeEmpty(n)
	}
	if err := w.charge(words); err != nil {
		return err
	}
	if code == 6 {
		return w.pointers(segment, start, n, depth-1)
	}

	return nil
}

func (w *walker) compositeList(segment uint32, start, words int64, depth int) error {
	if !w.inBounds(segment, start, words+1) {
		return protocolError("a list out of bounds")
	}
	if err := w.charge(words + 1); err != nil {
		return err
	}

	tag := w.word(segment, start)
	n := offsetOf(tag)
	dataWords, pointers := structSize(tag)
	size := dataWords + pointers
	if kindOf(tag) != kindStruct || n < 0 || n*size > words {
		return protocolError("a malformed composite list")
	}
	if size == 0 {
		return w.chargeEmpty(n)
	}

	for i := range n {
		if err := w.pointers(segment, start+1+i*size+dataWords, pointers, depth-1); err != nil {
			return err
		}
	}

	return nil
}
