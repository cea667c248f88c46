package manager

import (
	"runtime"
	"slices"
	"time"

	"capgpu/internal/shm"
	"capgpu/ledger"
)

// runMake makes missing memory in the background (reclaim.go) until all sizes are forgotten.
func (p *zeroPool) runMake() { inBackground(p.fillLoop) }

func (p *zeroPool) fillLoop() {
	timer := time.NewTimer(zeroPoolTTL)
	defer timer.Stop()
	for {
		bytes, old, ended := p.next()
		p.discardSpares(old, p.punchInBackground)
		if ended {
			return
		}
		if bytes > 0 && p.make(bytes) {
			continue
		}
		timer.Reset(zeroPoolTTL)
		select {
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// next returns the size to make, 0 if none is missing, and the spare memory to discard: its
// size is no longer requested, or another size needs its room. With no size left, it ends
// runMake.
func (p *zeroPool) next() (bytes uint64, old []spare, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, closed, stays := time.Now(), p.closed, p.ttl
	p.sizes = slices.DeleteFunc(p.sizes, func(s *pooledSize) bool {
		past := closed || now.Sub(s.last) >= stays
		if past {
			old = append(old, s.spares...)
		}
		return past
	})
	if len(p.sizes) == 0 {
		p.running = false
		return 0, old, true
	}

	for i, s := range p.sizes {
		if p.droppers > 0 || len(s.spares) >= min(s.asked-1, zeroPoolSpares) {
			continue
		}
		// Sizes that were requested earlier make room.
		need := p.charged + s.bytes - min(p.charged+s.bytes, p.maxBytes)
		for j := len(p.sizes) - 1; j > i && need > 0; j-- {
			for other := p.sizes[j]; len(other.spares) > 0 && need > 0; other.spares = other.spares[1:] {
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
func (p *zeroPool) make(bytes uint64) bool {
	if bytes > p.account.Available(ledger.DeviceMemory)/accountHeadroom || !p.hasRoom(bytes) {
		return false
	}

	p.mu.Lock()
	charge, err := p.account.Reserve(ledger.DeviceMemory, bytes)
	if err == nil {
		p.charged += bytes
	}
	p.mu.Unlock()
	if err != nil {
		return false
	}

	if memory := p.makeZeroed(bytes); memory != nil {
		if p.keep(spare{memory: memory, charge: charge}) {
			return true
		}
		p.discardInForeground(memory)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncharge(&charge)
	return false
}

// keep adds s to the spare memory of its size, if the pool still wants it.
func (p *zeroPool) keep(s spare) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, size := range p.sizes {
		if size.bytes == s.memory.Size() && !p.closed && p.droppers == 0 {
			size.spares = append(size.spares, s)
			return true
		}
	}
	return false
}

// makeZeroed returns memory with all its pages, or nil if the host has too little or the pool
// no longer wants it. It yields after each piece.
func (p *zeroPool) makeZeroed(bytes uint64) *shm.Memory {
	m, err := p.create(zeroPoolName, bytes)
	if err != nil {
		return nil
	}

	for off := uint64(0); off < bytes; off += zeroPiece {
		if p.unwanted() || m.Back(off, min(zeroPiece, bytes-off)) != nil {
			p.discardInForeground(m)
			return nil
		}
		before := time.Now()
		p.yield()
		runtime.Gosched()
		if others := time.Since(before); others > idleYield {
			time.Sleep(min(pauseFactor*others, maxPause))
		}
	}

	return m
}

// discardInForeground discards on a thread of ordinary priority, because a caller may wait.
func (p *zeroPool) discardInForeground(m *shm.Memory) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		discard(m, p.punch)
	}()
	<-done
}

func (p *zeroPool) unwanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed || p.droppers > 0
}
