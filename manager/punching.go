package manager

import (
	"errors"
	"sync"

	"capgpu/internal/shm"
)

// punching is memory that one or several threads punch.
type punching struct {
	memory *shm.Memory
	bytes  uint64
	piece  uint64
	done   chan struct{} // closed when all is punched, or one punch failed and none is in progress

	mu sync.Mutex
	// +checklocks:mu
	next uint64 // no punch has begun from here on
	// +checklocks:mu
	inProgress int // pieces that are being punched
	// +checklocks:mu
	err error
}

// newPunching is for the first bytes of m; bytes is not 0.
func newPunching(m *shm.Memory, bytes uint64) *punching {
	return &punching{memory: m, bytes: bytes, piece: max(pagesPiece, m.Granule()), done: make(chan struct{})}
}

// run punches until no piece is left to begin, and calls yield after each. A thread that
// calls run later than that does not touch the memory.
func (p *punching) run(yield func()) {
	for {
		off, ok := p.begin()
		if !ok {
			return
		}
		p.end(p.memory.Punch(off, min(p.piece, p.bytes-off)))
		yield()
	}
}

func (p *punching) begin() (off uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next >= p.bytes {
		return 0, false
	}
	off = p.next
	p.next += p.piece
	p.inProgress++
	return off, true
}

func (p *punching) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inProgress--
	if err != nil {
		p.err, p.next = errors.Join(p.err, err), p.bytes
	}
	if p.inProgress == 0 && p.next >= p.bytes {
		close(p.done)
	}
}

// wait returns when all pages are free.
func (p *punching) wait() error {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
