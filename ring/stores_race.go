//go:build race

package ring

import "sync/atomic"

func storeUser(at *uint64, v uint64) { atomic.StoreUint64(at, v) }
func loadUser(at *uint64) (v uint64) { return atomic.LoadUint64(at) }

func storeLast(at *uint64, v uint64) { atomic.StoreUint64(at, v) }
