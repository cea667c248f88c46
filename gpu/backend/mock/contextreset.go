package mock

import (
	"context"
	"slices"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// ResetContext implements backend.ContextResetter: what waits of the context is dropped,
// what runs of it is stopped, and all else keeps its place. A job with the fault
// hangFunction does not stop for it.
func (d *Device) ResetContext(ctx context.Context, c *backend.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case created:
		return nil
	case gone:
		return gpuerr.New(gpuerr.DeviceLost, "the device no longer answers")
	case closed:
		return gpuerr.New(gpuerr.Closed, "the device was closed")
	}
	for _, list := range [...]*[]*slot{&d.queue, &d.cancelled} {
		for _, s := range *list {
			if s.job.Context == c {
				d.log.close(s.entry, EndedByReset, time.Since(d.started))
				d.releaseLocked(s)
			}
		}
		*list = slices.DeleteFunc(*list, func(s *slot) bool { return s.job == nil })
	}
	for _, s := range [...]*slot{d.running, d.preemption.job} {
		if s != nil && s.job.Context == c {
			s.askToStop(stopContext)
		}
	}
	return d.awaitLocked(ctx, c)
}

// awaitLocked waits while something of a context, nil: anything, is under way. d.mu is
// released meanwhile.
//
// +checklocks:d.mu
// +checklocksignore: it cannot follow the way out of the select
func (d *Device) awaitLocked(ctx context.Context, c *backend.Context) error {
	isOf := func(s *slot) bool { return s != nil && (c == nil || s.job.Context == c) }
	for d.delivering > 0 || isOf(d.running) || isOf(d.preemption.job) {
		if d.quiet == nil {
			d.quiet = make(chan struct{})
		}
		quiet := d.quiet
		d.mu.Unlock()
		select {
		case <-quiet:
			d.mu.Lock()
		case <-ctx.Done():
			d.mu.Lock()
			return gpuerr.New(gpuerr.Busy, "the device has not stopped yet: %v", ctx.Err())
		}
	}
	return nil
}

var _ backend.ContextResetter = (*Device)(nil)
