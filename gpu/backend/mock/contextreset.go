package mock

import (
	"context"
	"slices"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// ResetContext implements backend.ContextResetter: what waits of the context, or of its
// group, is dropped, what runs of it is stopped, and all else keeps its place. A job with the
// fault hangFunction does not stop for it.
func (d *Device) ResetContext(ctx context.Context, c *backend.Context) error {
	of := func(other *backend.Context) bool {
		return other == c || d.info.Grouped && other != nil && other.Group == c.Group
	}
	if err := d.resetContexts(ctx, of); err != nil {
		return err
	}
	d.loseLocal(c.Group, false)
	return nil
}

// loseLocal is what a reset does to the memory of a discrete device.
func (d *Device) loseLocal(group uint32, all bool) {
	if d.info.LocalBytes == 0 {
		return
	}
	sink, _ := d.sink.(backend.LocalSink)
	for _, group := range d.local.lose(group, all) {
		if sink != nil {
			sink.LocalLost(group, "the device was reset")
		}
	}
}

// resetContexts ends all that was submitted of some contexts.
func (d *Device) resetContexts(ctx context.Context, of func(*backend.Context) bool) error {
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
			if of(s.job.Context) {
				d.log.close(s.entry, EndedByReset, time.Since(d.started))
				d.releaseLocked(s)
			}
		}
		*list = slices.DeleteFunc(*list, func(s *slot) bool { return s.job == nil })
	}
	for _, s := range [...]*slot{d.running, d.preemption.job} {
		if s != nil && of(s.job.Context) {
			s.askToStop(stopContext)
		}
	}
	return d.awaitLocked(ctx, of)
}

// awaitLocked waits while something of these contexts is under way. d.mu is released
// meanwhile.
//
// +checklocks:d.mu
// +checklocksignore: it cannot follow the way out of the select
func (d *Device) awaitLocked(ctx context.Context, of func(*backend.Context) bool) error {
	isOf := func(s *slot) bool { return s != nil && of(s.job.Context) }
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
