package native

import "unsafe"

// f32s and u32s see memory as words, without the bytes beyond the last whole word.
// The memory is aligned: Call.fits has checked it.
func f32s(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func u32s(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

func aligned(b []byte, to uintptr) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%to == 0
}

// overlap reports whether two ranges of memory share a byte, and whether they begin
// at the same one.
func overlap(a, b []byte) (shared, sameStart bool) {
	if len(a) == 0 || len(b) == 0 {
		return false, false
	}
	p, q := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return p < q+uintptr(len(b)) && q < p+uintptr(len(a)), p == q
}
