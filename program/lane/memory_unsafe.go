package lane

import (
	"sync/atomic"
	"unsafe"
)

// bytesOf is the memory of w as bytes.
func bytesOf(w []uint64) []byte {
	if len(w) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*len(w))
}

// wordsOf is b, which begins at a multiple of 4, as words; a rest is left out.
func wordsOf(b []byte) []uint32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// bytesOfWords is the memory of w as bytes.
func bytesOfWords(w []uint32) []byte {
	if len(w) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 4*len(w))
}

// misalignment is the low three bits of the address at which b begins.
func misalignment(b []byte) uint32 {
	if len(b) == 0 {
		return 0
	}
	return uint32(uintptr(unsafe.Pointer(&b[0])) & 7)
}

// atomic32 and atomic64 are the word of b at off; the caller has checked that it is
// within b and aligned. Buffers are shared with other workers and with clients, so
// an access that is atomic in a program is atomic here.

func atomic32(b []byte, off uint64) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(unsafe.SliceData(b[off : off+4])))
}

func atomic64(b []byte, off uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b[off : off+8])))
}
