//go:build amd64

package prefetch

import "unsafe"

// lines asks for n cache lines from p on.
//
//go:noescape
func lines(p unsafe.Pointer, n uintptr)

// linesToWrite is lines, for who is about to write there: no other processor has them then.
//
//go:noescape
func linesToWrite(p unsafe.Pointer, n uintptr)

// line asks for the cache line of an address.
func line(at uintptr)

// Two asks for the lines of two addresses.
//
//go:noescape
func Two(a, b *uint64)
