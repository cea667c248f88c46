package client

import (
	"fmt"
	"unsafe"
)

// Element is a type that a mapped buffer can be seen as: any bits are a value of
// it, in the byte order of the device, which is that of every host it supports.
type Element interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// View sees mapped memory as elements of type T, without copying; bytes that do
// not make a whole element at the end are left out. Like an index out of range,
// memory that is not aligned for T (a slice of Map's result that starts at an odd
// offset) panics.
func View[T Element](mem []byte) []T {
	var zero T
	size := unsafe.Sizeof(zero)
	if len(mem) < int(size) {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		panic(fmt.Sprintf("client.View: memory at %p is not aligned for %T", p, zero))
	}
	return unsafe.Slice((*T)(p), len(mem)/int(size))
}

// MapAs maps a buffer and sees it as elements of type T. As with Buffer.Map, the
// slice is valid until Buffer.Unmap.
func MapAs[T Element](b *Buffer) ([]T, error) {
	mem, err := b.Map()
	if err != nil {
		return nil, err
	}
	return View[T](mem), nil
}
