//go:build !amd64

package ring

import "sync/atomic"

// Where there is no instruction for it here, they do nothing.

func pause() {}

func prefetch(a, b *uint64) {}

func storeRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

func copyWords(to, from, known *uint64, n int) (differ uint64) {
	return copyWordsPlain(to, from, known, n)
}
