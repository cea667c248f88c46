//go:build !race

package ring

import "sync/atomic"

// release is a Store that does not wait until it is seen: see view.
func release(p *atomic.Uint64, v uint64) { storeRelease(raw(p), v) }

// The user data of an entry is kept by who pushes and read by who polls. Who reads has
// loaded Client.submitted since it was stored, and it is stored over when the driver says
// that it took an entry so far behind that this one's completion was taken. A driver that
// lies there has a client read user data of its own that are of another entry; each is one
// word, and read whole.
func storeUser(at *uint64, v uint64) { *at = v }
func loadUser(at *uint64) (v uint64) { return *at }
