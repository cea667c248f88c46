package manager

import (
	"runtime"
	"slices"
	"time"

	"capgpu/internal/shm"
	"capgpu/ledger"
)

// runMake makes missing memory in the background (reclaim.go) until all sizes are forgotten.
func (a *zeroPool) runMake() { inBackground(a.fillLoop) }

func (a *zeroPool) fillLoop() {
	timer := time.NewTimer(zeroPoolTTL)
	defer timer.Stop()
	for {
		bytes, old, ended := a.next()
		a.discardSpares(old, a.punchInBackground)
		if ended {
			return
		}
		if bytes > 0 && a.make(bytes) {
			continue
		}
		timer.Reset(zeroPoolTTL)
		select {
		case <-a.wake:
		case <-timer.C:
		}
	}
}

// next returns the size to make, 0 if none is missing, and the spare memory to discard: its
// size is no longer requested, or another size needs its room. With no size left, it ends
// runMake.
func (a *zeroPool) next() (bytes uint64, old []spare, ended bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, closed, stays := time.Now(), a.closed, a.ttl
	a.sizes = slices.DeleteFunc(a.sizes, func(s *pooledSize) bool {
		past := closed || now.Sub(s.last) >= stays
		if past {
			old = append(old, s.spares...)
		}
		return past
	})
	if len(a.sizes) == 0 {
		a.running = false
		return 0, old, true
	}

	for i, s := range a.sizes {
		if a.droppers > 0 || len(s.spares) >= min(s.asked-1, zeroPoolSpares) {
			continue
		}
		// Sizes that were requested earlier make room.
		need := a.charged + s.bytes - min(a.charged+s.bytes, a.maxBytes)
		for j := len(a.sizes) - 1; j > i && need > 0; j-- {
			for other := a.sizes[j]; len(other.spares) > 0 && need > 0; other.spares = other.spares[1:] {
				old = append(old, other.spares[0])
				need -= min(need, other.bytes)
			}
		}
		if need == 0 {
			return s.bytes, old, false
		}
	}

	return 0, old, false
}

// make makes memory of one size. It returns false if the account or the host has too little;
// then the maker waits for the next request.
func (a *zeroPool) make(bytes uint64) bool {
	if bytes > a.account.Available(ledger.DeviceMemory)/accountHeadroom || !a.hasRoom(bytes) {
		return false
	}

	a.mu.Lock()
	charge, err := a.account.Reserve(ledger.DeviceMemory, bytes)
	if err == nil {
		a.charged += bytes
	}
	a.mu.Unlock()
	if err != nil {
		return false
	}

	if memory := a.makeZeroed(bytes); memory != nil {
		if a.keep(spare{memory: memory, charge: charge}) {
			return true
		}
		a.discardInForeground(memory)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.uncharge(&charge)
	return false
}

// keep adds s to the spare memory of its size, if the pool still wants it.
func (a *zeroPool) keep(s spare) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, size := range a.sizes {
		if size.bytes == s.memory.Size() && !a.closed && a.droppers == 0 {
			size.spares = append(size.spares, s)
			return true
		}
	}
	return false
}

// makeZeroed returns memory with all its pages, or nil if the host has too little or the pool
// no longer wants it. It yields after each piece.
func (a *zeroPool) makeZeroed(bytes uint64) *shm.Memory {
	m, err := a.create(zeroPoolName, bytes)
	if err != nil {
		return nil
	}

	for off := uint64(0); off < bytes; off += zeroPiece {
		if a.unwanted() || m.Back(off, min(zeroPiece, bytes-off)) != nil {
			a.discardInForeground(m)
			return nil
		}
		before := time.Now()
		a.yield()
		runtime.Gosched()
		if others := time.Since(before); others > idleYield {
			time.Sleep(min(pauseFactor*others, maxPause))
		}
	}

	return m
}

// discardInForeground discards on a thread of ordinary priority, because a caller may wait.
func (a *zeroPool) discardInForeground(m *shm.Memory) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		discard(m, a.punch)
	}()
	<-done
}

func (a *zeroPool) unwanted() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed || a.droppers > 0
}
