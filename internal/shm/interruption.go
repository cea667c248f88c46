package shm

import (
	"context"
	"sync"
)

// interruption lets the end of a context end a sleep. It stays armed between the
// sleeps for one context, so that sleeping again allocates nothing.
type interruption struct {
	fire  func() // wakes current and later sleepers until clear; set once
	clear func() // set once

	mu sync.Mutex
	// of is the context's Done; nil: not armed.
	// +checklocks:mu
	of <-chan struct{}
	// +checklocks:mu
	stop func() bool
	// +checklocks:mu
	done chan struct{} // closed after fire
	// +checklocks:mu
	closed bool
}

// arm makes the end of ctx, and of no other context, interrupt.
func (i *interruption) arm(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.of == ctx.Done() {
		return
	}

	i.disarmLocked()
	if i.closed || ctx.Done() == nil {
		return
	}

	done := make(chan struct{})
	i.of, i.done = ctx.Done(), done
	i.stop = context.AfterFunc(ctx, func() {
		i.fire()
		close(done)
	})
}

func (i *interruption) disarm() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.disarmLocked()
}

// close disarms for good.
func (i *interruption) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.disarmLocked()
}

// +checklocks:i.mu
func (i *interruption) disarmLocked() {
	if i.of == nil {
		return
	}
	if !i.stop() {
		<-i.done
		i.clear()
	}
	i.of, i.stop, i.done = nil, nil, nil
}
