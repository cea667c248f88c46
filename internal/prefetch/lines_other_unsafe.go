//go:build !amd64

package prefetch

import "unsafe"

// Where there is no instruction for it here, they do nothing.

func lines(unsafe.Pointer, uintptr) {}

func linesToWrite(unsafe.Pointer, uintptr) {}

func line(uintptr) {}

// Two asks for the lines of two addresses.
func Two(a, b *uint64) {}
