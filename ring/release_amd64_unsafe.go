//go:build amd64 && !race

package ring

import (
	"sync/atomic"
	"unsafe"
)

// storeRelease stores a word that others load: a reader of it sees what was stored before. The
// processor keeps the order of loads and stores that needs (Intel SDM vol. 3, 9.2.2: a store
// is not reordered with earlier loads and stores), and an atomic Store would besides wait
// until all of them are in the cache, as an exchange does. A caller that then looks at a word of
// the peer's has to store with Swap: see view.
func storeRelease(at *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(at)) = v }
