package mock

import "unsafe"

// The views below are over memory that the core keeps mapped until the job's
// completion. They are as long as the span, so Go's bounds checks hold for them;
// prepare has checked the alignment.

// wordsOf is b as u32, without a rest of less than 4 bytes.
func wordsOf(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// aligned reports whether b starts at a multiple of 4.
func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0 }

// offsetIn is where addr lies in b.
func offsetIn(b []byte, addr uintptr) (uint64, bool) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if addr < base || addr-base >= uintptr(len(b)) {
		return 0, false
	}
	return uint64(addr - base), true
}

// overlap reports whether a and b share a byte; same, that they are one range.
func overlap(a, b []byte) (overlaps, same bool) {
	if len(a) == 0 || len(b) == 0 {
		return false, false
	}
	pa, pb := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a)), pa == pb
}

// above reports whether a starts at a higher address than b.
func above(a, b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(a))) > uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// wordsUpTo is how many of the words lie before the next multiple of bytes, at which the first of
// them may lie.
func wordsUpTo(words []uint32, bytes uintptr) int {
	return int((bytes - uintptr(unsafe.Pointer(unsafe.SliceData(words)))%bytes) / 4)
}
