//go:build !amd64 || race

package ring

import "sync/atomic"

// storeRelease stores a word that others load: a reader of it sees what was stored before.
func storeRelease(at *atomic.Uint64, v uint64) { at.Store(v) }
