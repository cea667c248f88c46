// Package prefetch asks the processor for memory that is about to be used, so that it is in
// a cache by then. It changes nothing but how long that takes: what is asked for in vain,
// or is not there, is no error.
package prefetch

import "unsafe"

const lineBytes = 64

// Of asks for all of *p; nil is nothing.
func Of[T any](p *T) {
	if p != nil {
		lines(unsafe.Pointer(p), (unsafe.Sizeof(*p)+lineBytes-1)/lineBytes)
	}
}

// Bytes asks for the first cache line of b.
func Bytes(b []byte) {
	if len(b) > 0 {
		lines(unsafe.Pointer(unsafe.SliceData(b)), 1)
	}
}

// Words asks for all of w.
func Words(w []uint64) {
	if p := unsafe.Pointer(unsafe.SliceData(w)); len(w) > 0 {
		lines(p, linesFrom(p, 8*uintptr(len(w))))
	}
}

// ToWrite is Words for who is about to write there.
func ToWrite(w []uint64) {
	if p := unsafe.Pointer(unsafe.SliceData(w)); len(w) > 0 {
		linesToWrite(p, linesFrom(p, 8*uintptr(len(w))))
	}
}

// linesFrom is how many lines n bytes from p on touch, n at least 1.
func linesFrom(p unsafe.Pointer, n uintptr) uintptr {
	return (uintptr(p)&(lineBytes-1) + n + lineBytes - 1) / lineBytes
}

// Line is a cache line to be asked for later. It is an address and nothing that keeps memory
// alive: whoever asks for what was freed meanwhile asks in vain.
type Line uintptr

// LineOf is the first cache line of b.
func LineOf(b []byte) Line { return Line(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Lines asks for all of them.
func Lines(all []Line) {
	for _, l := range all {
		if l != 0 {
			line(uintptr(l))
		}
	}
}

// Between asks for what lies from the beginning of *from to the end of *to, which are fields of
// one struct in this order.
func Between[A, B any](from *A, to *B) {
	p := unsafe.Pointer(from)
	lines(p, linesFrom(p, uintptr(unsafe.Pointer(to))+unsafe.Sizeof(*to)-uintptr(p)))
}

// In asks for the first n cache lines of what the pointer in an interface points to.
func In(x any, n int) {
	// An interface is two words, and the second is a pointer.
	if p := (*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1]; p != nil {
		lines(p, uintptr(max(n, 0)))
	}
}
