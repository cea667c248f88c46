package ringtest

import (
	"sync/atomic"
	"unsafe"
)

// load reads a word of a ring's memory.
func load(b []byte, word int) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[8*word])))
}

// corrupt changes a word of a ring's memory, in one step.
func corrupt(b []byte, word int, change func(old uint64) uint64) {
	p := (*uint64)(unsafe.Pointer(&b[8*word]))
	for {
		old := atomic.LoadUint64(p)
		if atomic.CompareAndSwapUint64(p, old, change(old)) {
			return
		}
	}
}
