package mock

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock/tick"
	"capgpu/outcome"
)

// A burst runs ready jobs on the caller's goroutine while the engine has nothing to
// do. It holds Device.mu from its beginning to its end, which is what makes the lane
// engine's workers and the kept kernels its own, and what Reset, Close, Cancel and
// Submit wait for.
//
// Where somebody looks on, as a fault script or an execution log does, jobs are
// measured one by one, on the clock that the log has.

// burst is the one in progress. Guarded by Device.mu.
type burst struct {
	jobs   []backend.Ready
	ends   []backend.End
	first  backend.JobID
	at     int    // the job that runs
	from   int    // the first of its group
	nanos  uint64 // that the group is expected to take
	groups uint64 // that have ended
	began  int64  // when the group did
	// Of who holds the device, in place of ends: see backend.Holder.
	times  []uint64
	last   *outcome.Outcome
	most   time.Duration // mostBurst, but in tests
	over   int64         // no group begins after this
	clock  tick.Clock
	thread bool          // what takeThread has said, of who holds the device
	never  atomic.Uint32 // the stop flag of jobs that nothing stops
}

// mostBurst is how long a burst may take before it leaves the rest. The core hands it
// far less work; but a client may have punched its memory out, and then the host makes
// a page for every 4 KiB of it, at 4 to 5 µs. A busy host's scheduler may do it, too.
const mostBurst = 4 * time.Millisecond

// groupNanos is how much work, as expected, ends a group of fewer jobs than may be in
// one: what is measured together must not be long, or nobody would see in time that it
// is longer than expected.
const groupNanos = 8000

var cancelled = outcome.Outcome{Kind: outcome.Cancelled}

// Burst implements backend.Burster.
func (d *Device) Burst(first backend.JobID, jobs []backend.Ready, ends []backend.End) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.idleLocked() || d.log.digests {
		return 0
	}
	old := d.takeThread()
	if d.watchedLocked() {
		b := &d.burst
		b.jobs, b.ends, b.first, b.at = jobs, ends[:len(jobs)], first, 0
		b.began = int64(time.Since(d.started))
		b.over = b.began + int64(b.most)
		for d.burstWatchedLocked() {
		}
		b.jobs, b.ends = nil, nil
		n = b.at
	} else {
		d.burst.clock = tick.Best()
		n = d.runLocked(jobs, ends[:len(jobs)])
	}
	d.leaveThread(old)
	return n
}

// watchedLocked says that somebody looks on.
//
// +checklocks:d.mu
func (d *Device) watchedLocked() bool { return len(d.log.ring) > 0 || len(d.faults.faults) > 0 }

// takeThread and leaveThread are around whatever runs jobs, as in task.run.
func (d *Device) takeThread() (panicOnFault bool) {
	runtime.LockOSThread()
	return debug.SetPanicOnFault(true)
}

func (d *Device) leaveThread(panicOnFault bool) {
	debug.SetPanicOnFault(panicOnFault)
	runtime.UnlockOSThread()
}

// runLocked runs a burst on which nobody looks.
//
// +checklocks:d.mu
func (d *Device) runLocked(jobs []backend.Ready, ends []backend.End) (n int) {
	b := &d.burst
	b.jobs, b.ends, b.at = jobs, ends, 0
	b.from, b.began, b.nanos = 0, b.clock.Read(), 0
	b.over = b.began + int64(b.most)
	for d.burstLocked() {
	}
	d.faults.jobs += uint64(b.at)
	b.jobs, b.ends = nil, nil
	return b.at
}

// idleLocked says that the engine has nothing to do, or stands still, and a job would be
// taken.
//
// +checklocks:d.mu
func (d *Device) idleLocked() bool {
	return d.state == live && d.resetting == 0 && len(d.faults.late) == 0 &&
		(d.pause.stands || d.running == nil && len(d.queue)+len(d.cancelled) == 0)
}

// burstLocked runs jobs until one panics, and says whether there is more to do.
//
// +checklocks:d.mu
func (d *Device) burstLocked() (more bool) {
	defer d.burstCaughtLocked(&more)
	b := &d.burst
	for b.at < len(b.jobs) && b.began <= b.over {
		for end := min(b.at+backend.MaxBurstGroup, len(b.jobs)); b.at < end && b.nanos < groupNanos; b.at++ {
			r, ok := b.jobs[b.at].(*ready)
			if !ok || r.dev != d || r.rests() {
				b.measure()
				return false
			}
			b.nanos += r.nanos
			o := &b.ends[b.at].Outcome
			if r.job.Context.Trapped() {
				*o = cancelled
			} else if !d.do(r, &b.never, o) {
				b.measure()
				return false
			}
			if ends(o) {
				b.at++
				b.measure()
				return false
			}
		}
		b.measure()
	}
	return false
}

// ends says whether a burst ends after a job: what comes next may be for naught.
func ends(o *outcome.Outcome) bool {
	return o.Kind != outcome.OK && o.Kind != outcome.Cancelled && o.Cause != outcome.TrapCause
}

// measure ends a group: the time that it took is shared among its jobs.
func (b *burst) measure() {
	now := b.clock.Read()
	if n := b.at - b.from; n > 0 {
		took := uint64(max(now-b.began, 0))
		each, rest := took, uint64(0)
		if n > 1 {
			each, rest = took/uint64(n), took%uint64(n)
		}
		b.share(each, rest)
		b.judge(took)
	}
	b.from, b.began, b.nanos = b.at, now, 0
}

// share says how long each job of the group took, and how much more the first.
func (b *burst) share(each, rest uint64) {
	if b.times != nil {
		group := b.times[b.from:b.at]
		for i := range group {
			group[i] = each
		}
		group[0] += rest
		return
	}
	group := b.ends[b.from:b.at]
	for i := range group {
		group[i].DeviceTime = time.Duration(each)
	}
	group[0].DeviceTime += time.Duration(rest)
}

// A job that takes far longer than expected, time after time, is left to Submit, where
// it can be stopped, for the next so many bursts. What an estimate does not foresee may
// be memory that a client keeps from being there, or a mistake of ours; a host that is
// busy is slow now and then only.
const (
	slowFactor = 16
	slowNanos  = 20_000 // more than the factor, for what is expected to be very short
	slowTimes  = 3
	slowRest   = 250
)

// judge looks at the jobs of a group that has ended.
func (b *burst) judge(took uint64) {
	slow := took > slowFactor*b.nanos+slowNanos
	b.groups++
	for _, j := range b.jobs[b.from:b.at] {
		r, ok := j.(*ready)
		switch {
		case !ok:
		case !slow:
			r.slow = 0
		case r.group != b.groups: // it may be there more than once
			r.group = b.groups
			r.slow++
		}
	}
}

// rests says that a job is not for bursts now. After its rest it is tried once more.
func (r *ready) rests() bool {
	if r.slow < slowTimes {
		return false
	}
	if r.rest++; r.rest <= slowRest {
		return true
	}
	r.slow, r.rest = slowTimes-1, 0
	return false
}

// burstCaughtLocked is deferred: it ends the job that panicked, if one did, and says
// whether there is more to do.
//
// +checklocks:d.mu
func (d *Device) burstCaughtLocked(more *bool) {
	if p := recover(); p != nil {
		*more = d.endPanickedLocked(p)
		d.burst.measure()
	}
}

// endPanickedLocked ends the job that panicked, and says whether the device goes on.
//
// +checklocks:d.mu
func (d *Device) endPanickedLocked(p any) bool {
	b := &d.burst
	o, gone := d.caught(b.jobs[b.at].(*ready), p)
	if gone {
		d.vanishLocked()
		return false
	}
	if b.last != nil {
		*b.last = o
	} else {
		b.ends[b.at].Outcome = o
	}
	b.at++
	return !ends(&o)
}

// burstWatchedLocked runs one job as somebody looks on, and says whether there is
// more to do.
//
// +checklocks:d.mu
func (d *Device) burstWatchedLocked() (more bool) {
	b := &d.burst
	if b.at == len(b.jobs) || b.began > b.over {
		return false
	}
	r, ok := b.jobs[b.at].(*ready)
	if !ok || r.dev != d || r.rests() || d.faults.fits(r.job) {
		return false
	}
	began := time.Since(d.started)
	defer d.noteCaughtLocked(&more, r, began)
	o := &b.ends[b.at].Outcome
	if r.job.Context.Trapped() {
		*o = cancelled
	} else if !d.do(r, &b.never, o) {
		return false
	}
	b.at++
	return true // of outcomes that end a burst, a job that does not panic has none
}

// noteCaughtLocked is deferred: as burstCaughtLocked, and it notes a job that has ended.
//
// +checklocks:d.mu
func (d *Device) noteCaughtLocked(more *bool, r *ready, began time.Duration) {
	p := recover()
	if p != nil {
		*more = d.endPanickedLocked(p)
	}
	switch {
	case *more, p != nil && d.state == live:
		d.noteLocked(r, d.burst.at-1, began, false)
	case p != nil:
		d.noteLocked(r, d.burst.at, began, true)
	}
}

// noteLocked does for a job of a burst what Submit and finish do for others: the
// ordinal, the record, the completion ring.
//
// +checklocks:d.mu
func (d *Device) noteLocked(r *ready, at int, began time.Duration, gone bool) {
	now := time.Since(d.started)
	b, end := &d.burst, &d.burst.ends[at]
	b.began = int64(now)
	d.faults.jobs++
	ref := d.log.open(b.first+backend.JobID(at), d.faults.jobs, r.job, NoFault)
	switch {
	case gone:
		d.log.begin(ref, began)
		d.log.end(ref, result{gone: true}, now)
		return
	case end.Outcome == cancelled: // never begun
		end.DeviceTime = 0
		d.log.close(ref, CancelledInQueue, now)
		return
	}
	end.DeviceTime = now - began
	res := result{outcome: end.Outcome}
	if res.outcome.Kind == outcome.OK {
		res.written = written(r.job)
	}
	d.log.begin(ref, began)
	d.log.end(ref, res, now)
	d.faults.tamper(NoFault, backend.Completion{ID: b.first + backend.JobID(at), Outcome: end.Outcome, DeviceTime: end.DeviceTime})
}
