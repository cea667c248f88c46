package native

import "unsafe"

// bytesOf is the memory of values, as a call's binding.
func bytesOf[T float32 | uint32](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
