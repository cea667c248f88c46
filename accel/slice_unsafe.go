package accel

import "unsafe"

// elements sees memory as elements of a plain type. A mapping begins on a page, so that it is
// aligned for any.
func elements[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// bytesOf sees elements of a plain type as their bytes.
func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
