//go:build !amd64

package prefetch

import "unsafe"

// lines does nothing where there is no instruction for it here.
func lines(unsafe.Pointer, uintptr) {}
