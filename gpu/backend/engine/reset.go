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
	err := b.endAllLocked(ctx, func(uint32) bool { return true })
	b.resetting--
	b.advanceLocked()
	return err
}

// ResetContext implements backend.ContextResetter: the work of the context's whole group ends.
func (b *Backend) ResetContext(ctx context.Context, c *backend.Context) error {
	group := groupOf(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holdLocked(group, 1)
	err := b.endAllLocked(ctx, func(g uint32) bool { return g == group })
	b.holdLocked(group, -1)
	b.advanceLocked()
	return err
}

// holdLocked adds to the reasons for which nothing of a group is sent.
//
// +checklocks:b.mu
func (b *Backend) holdLocked(group uint32, n int) {
	if b.held[group] += n; b.held[group] == 0 {
		delete(b.held, group)
	}
}

// endAllLocked ends what was submitted of some groups. b.mu is released meanwhile.
//
// +checklocks:b.mu
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
	for _, p := range b.busyLocked(of) {
		p.stopNowLocked(p.sent[0])
	}
	patience := grace
	if until, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(until)/2)
	}
	short, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for len(b.busyLocked(of)) > 0 {
		if b.waitLocked(short) == nil {
			continue
		}
		for _, p := range b.busyLocked(of) {
			b.failLocked(p, "its work did not stop when it was told to", false)
		}
	}

	for b.state != gone && (b.delivering > 0 || len(b.busyLocked(of)) > 0 || b.anyDyingLocked(of)) {
		if err := b.waitLocked(ctx); err != nil {
			return gpuerr.New(gpuerr.Busy, "the device has not stopped yet: %v", err)
		}
	}
	switch b.state {
	case gone:
		return b.goneLocked()
	case closed:
		return errClosed
	}
	return nil
}

// busyLocked are the engines of some groups that have runs.
//
// +checklocks:b.mu
func (b *Backend) busyLocked(of func(group uint32) bool) (all []*proc) {
	for _, p := range b.procs {
		if of(p.group) && len(p.sent) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// anyDyingLocked reports whether an engine of some groups is being killed.
//
// +checklocks:b.mu
func (b *Backend) anyDyingLocked(of func(group uint32) bool) bool {
	for group := range b.dying {
		if of(group) {
			return true
		}
	}
	return false
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
