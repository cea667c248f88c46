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

// In asks for the first n cache lines of what the pointer in an interface points to.
func In(x any, n int) {
	// An interface is two words, and the second is a pointer.
	if p := (*[2]unsafe.Pointer)(unsafe.Pointer(&x))[1]; p != nil {
		lines(p, uintptr(max(n, 0)))
	}
}
