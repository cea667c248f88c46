//go:build !amd64

package ring

import "unsafe"

// Where there is no instruction for it here, they do nothing.

func pause() {}

func prefetch(a, b unsafe.Pointer) {}
