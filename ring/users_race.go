//go:build race

package ring

import "sync/atomic"

func release(p *atomic.Uint64, v uint64) { p.Store(v) }

// The race detector does not see what the driver says in between: see users.go.
func storeUser(at *uint64, v uint64) { atomic.StoreUint64(at, v) }
func loadUser(at *uint64) (v uint64) { return atomic.LoadUint64(at) }
