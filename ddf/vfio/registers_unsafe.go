package vfio

import (
	"sync/atomic"
	"unsafe"
)

// register returns the 32-bit word at off, a multiple of 4 within b, which is mapped and so
// page-aligned. Register accesses must not be torn, merged or left out: with plain loads and
// stores the compiler may answer a load with the last stored value.
func register(b []byte, off uint64) *uint32 { return (*uint32)(unsafe.Pointer(&b[off : off+4][0])) }

func loadRegister(b []byte, off uint64) uint32     { return atomic.LoadUint32(register(b, off)) }
func storeRegister(b []byte, off uint64, v uint32) { atomic.StoreUint32(register(b, off), v) }
