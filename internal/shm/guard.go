package shm

import (
	"runtime"
	"runtime/debug"
)

// Guard runs f and reports a memory fault in it: pages that a peer has taken away, for which
// the host has no memory, or that belonged to a device that was unplugged. The effects of f
// until then stay. Any other panic goes on.
func Guard(f func()) (addr uintptr, faulted bool) {
	old := debug.SetPanicOnFault(true) // of this goroutine only
	defer debug.SetPanicOnFault(old)
	defer func() {
		if p := recover(); p != nil {
			if addr, faulted = FaultAddress(p); !faulted {
				panic(p)
			}
		}
	}()
	f()
	return 0, false
}

// FaultAddress is the address in the panic of a memory fault. At a fault near
// address 0 there is none: that is a bug, never a mapping.
func FaultAddress(p any) (uintptr, bool) {
	if err, ok := p.(runtime.Error); ok {
		if e, ok := err.(interface{ Addr() uintptr }); ok {
			return e.Addr(), true
		}
	}
	return 0, false
}
