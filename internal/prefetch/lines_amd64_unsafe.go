//go:build amd64

package prefetch

import "unsafe"

// lines asks for n cache lines from p on.
//
//go:noescape
func lines(p unsafe.Pointer, n uintptr)

// Two asks for the lines of two addresses.
//
//go:noescape
func Two(a, b *uint64)
