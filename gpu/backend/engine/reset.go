package engine

import (
	"context"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// grace is what runs have to end after they were told to stop, before their engine is killed: a
// kill costs a tenant its local memory.
const grace = 25 * time.Millisecond

// Reset implements backend.Backend. Engines that have nothing to do stay.
func (b *Backend) Reset(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resetting++
	defer func() {
		if b.resetting--; b.resetting == 0 {
			b.advanceLocked()
		}
	}()
	return b.endAllLocked(ctx, func(uint32) bool { return true })
}

// ResetContext implements backend.ContextResetter: the work of the context's whole group ends.
func (b *Backend) ResetContext(ctx context.Context, c *backend.Context) error {
	group := groupOf(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held[group]++
	defer func() {
		if b.held[group]--; b.held[group] == 0 {
			delete(b.held, group)
		}
		b.advanceLocked()
	}()
	return b.endAllLocked(ctx, func(g uint32) bool { return g == group })
}

// endAllLocked ends what was submitted of some groups. b.mu is released meanwhile.
//
// +checklocks:b.mu
// +checklocksignore: the functions are called with the lock
func (b *Backend) endAllLocked(ctx context.Context, of func(group uint32) bool) error {
	switch b.state {
	case created:
		return nil
	case closed:
		return errClosed
	case gone:
		return b.goneLocked()
	}

	b.dropLocked(of)
	busy := func() (all []*proc) {
		for _, p := range b.procs {
			if of(p.group) && len(p.sent) > 0 {
				all = append(all, p)
			}
		}
		return all
	}
	quiet := func() bool {
		for group, n := range b.dying {
			if of(group) && n > 0 && b.state != gone {
				return false
			}
		}
		return len(busy()) == 0 && b.delivering == 0
	}

	for _, p := range busy() {
		p.stopNowLocked(p.sent[0])
	}
	patience := grace
	if until, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(until)/2)
	}
	short, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if b.awaitLocked(short, func() bool { return len(busy()) == 0 }) != nil {
		for _, p := range busy() {
			b.failLocked(p, "its work did not stop when it was told to", false)
		}
	}

	if err := b.awaitLocked(ctx, quiet); err != nil {
		return gpuerr.New(gpuerr.Busy, "the device has not stopped yet: %v", err)
	}
	switch b.state {
	case gone:
		return b.goneLocked()
	case closed:
		return errClosed
	}
	return nil
}

// dropLocked forgets the jobs of some groups: nothing is told of them.
//
// +checklocks:b.mu
func (b *Backend) dropLocked(of func(group uint32) bool) {
	for id, j := range b.jobs {
		if of(j.group) {
			delete(b.jobs, id)
		}
	}
	rest := b.queue[:0]
	for _, j := range b.queue {
		switch {
		case !of(j.group):
			rest = append(rest, j)
		case j.scrub != nil:
			b.scrubbedLocked(j, false)
		}
	}
	clear(b.queue[len(rest):])
	b.queue = rest
}
