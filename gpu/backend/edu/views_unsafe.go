package edu

import "unsafe"

// offsetIn is where addr lies in b; 0 if it does not.
func offsetIn(b []byte, addr uintptr) uint64 {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if addr < base || addr-base >= uintptr(len(b)) {
		return 0
	}
	return uint64(addr - base)
}
