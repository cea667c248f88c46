package mock

import (
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock/tick"
	"capgpu/outcome"
)

// Who holds the device runs bursts on which nobody looks. Of what ends ok only its time is
// told, and what speaks against a job is asked once for all runs of it that follow each other.

// Hold implements backend.Holder.
//
// +checklocksignore: d.mu is kept until Release
func (d *Device) Hold() bool {
	d.mu.Lock()
	if !d.idleLocked() || d.pause.stands || d.log.digests || d.watchedLocked() {
		d.mu.Unlock()
		return false
	}
	d.burst.clock = tick.Best()
	d.burst.thread = d.takeThread()
	return true
}

// BurstHeld implements backend.Holder.
//
// +checklocksignore: Hold has taken d.mu
func (d *Device) BurstHeld(_ backend.JobID, jobs []backend.Ready, nanos []uint64, last *outcome.Outcome) (n int) {
	if d.state != live { // it is gone since the last one
		return 0
	}
	b := &d.burst
	b.jobs, b.times, b.last, b.at = jobs, nanos[:len(jobs)], last, 0
	b.from, b.began, b.nanos = 0, b.clock.Read(), 0
	b.over = b.began + int64(b.most)
	*last = outcome.Success
	d.runHeldLocked()
	d.faults.jobs += uint64(b.at)
	b.jobs, b.times, b.last = nil, nil, nil
	return b.at
}

// runHeldLocked runs jobs until one does not end ok, or is to go another way.
//
// +checklocks:d.mu
func (d *Device) runHeldLocked() {
	defer d.heldCaughtLocked()
	b := &d.burst
	for more := true; more && b.at < len(b.jobs) && b.began <= b.over; {
		more = d.runGroupLocked()
		b.measure()
	}
}

// runGroupLocked runs a group, and says whether the next one may follow.
//
// +checklocks:d.mu
func (d *Device) runGroupLocked() (more bool) {
	b := &d.burst
	var before *ready
	for end := min(b.at+backend.MaxBurstGroup, len(b.jobs)); b.at < end && b.nanos < groupNanos; b.at++ {
		r, ok := b.jobs[b.at].(*ready)
		if !ok || r != before && (r.dev != d || r.rests() || r.context.Trapped()) {
			return false
		}
		before = r
		b.nanos += r.nanos
		if r.how == readyBody {
			ok = r.run(&r.call, 0, r.items)
		} else {
			ok = d.do(r, &b.never, b.last)
		}
		if !ok {
			return false
		}
		if b.last.Kind != outcome.OK {
			b.at++
			return false
		}
	}
	return true
}

// heldCaughtLocked is deferred: it ends the job that panicked, if one did.
//
// +checklocks:d.mu
func (d *Device) heldCaughtLocked() {
	if p := recover(); p != nil {
		d.endPanickedLocked(p)
		d.burst.measure()
	}
}

// Release implements backend.Holder.
//
// +checklocksignore: Hold has taken d.mu
func (d *Device) Release() {
	d.leaveThread(d.burst.thread)
	d.mu.Unlock()
}

var _ backend.Holder = (*Device)(nil)
