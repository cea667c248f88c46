package mock

import (
	"runtime"
	"runtime/debug"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock/tick"
	"capgpu/outcome"
)

// Run runs ready jobs on the caller's goroutine while the engine has nothing to do. It
// holds Device.mu from its beginning to its end, which is what makes the lane engine's
// workers and the kept kernels its own, and what Reset, Close, Cancel and Submit wait for.

// mostRun is how long a call may go on before it leaves the rest. The core hands it far
// less work; but a client may have punched its memory out, and then the host makes a page
// for every 4 KiB of it, at 4 to 5 µs. A busy host's scheduler may do it, too.
const mostRun = 4 * time.Millisecond

// entriesAtOnce is how many entries of a list run between two looks at the clock.
const entriesAtOnce = 32

var cancelled = outcome.Outcome{Kind: outcome.Cancelled}

// Run implements backend.Runner.
func (d *Device) Run(jobs []*backend.Job, ends []backend.End) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.idleLocked() || d.log.digests {
		return 0
	}
	runtime.LockOSThread() // as in task.run
	defer runtime.UnlockOSThread()
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	clock := tick.Best()
	began := clock.Read()
	over := began + int64(d.mostRun)
	for n < len(jobs) && began <= over {
		job, end := jobs[n], &ends[n]
		if d.faults.fits(job) {
			return n
		}
		started := d.log.now(d.started)
		done := d.runLocked(job, end, clock, over)
		now := clock.Read()
		end.DeviceTime = time.Duration(max(now-began, 0))
		began = now
		if done || end.Begun > 0 || d.state == gone {
			d.noteLocked(job, end, started)
		}
		if !done {
			return n
		}
		n++
		if o := &end.Outcome; o.Kind != outcome.OK && o.Kind != outcome.Cancelled && o.Cause != outcome.TrapCause {
			return n // what comes next may be for naught
		}
	}
	return n
}

// idleLocked says that the engine has nothing to do, and a job would be taken.
//
// +checklocks:d.mu
func (d *Device) idleLocked() bool {
	return d.state == live && d.resetting == 0 && len(d.faults.late) == 0 && d.running == nil && len(d.queue)+len(d.cancelled) == 0
}

// runLocked runs a job. It is false if the job, or the rest of a list, has to go by Submit.
//
// +checklocks:d.mu
// +checklocksignore: it does not follow the deferred function
func (d *Device) runLocked(job *backend.Job, end *backend.End, clock tick.Clock, over int64) (done bool) {
	var r *ready
	defer func() {
		if p := recover(); p != nil {
			end.Begun++
			var isGone bool
			if end.Outcome, isGone = d.caught(r, p); isGone {
				d.vanishLocked()
			}
			done = !isGone
		}
	}()
	if job.Context.Over(job.Round) {
		end.Outcome = cancelled
		return true
	}
	if job.Op != backend.OpList {
		var ok bool
		r, ok = job.Ready.(*ready)
		return ok && r.dev == d && d.do(r, &d.never, &end.Outcome)
	}
	end.Outcome = outcome.Success
	for i := range job.List[job.From:] {
		if i%entriesAtOnce == entriesAtOnce-1 && clock.Read() > over {
			return false
		}
		var ok bool
		r, ok = job.List[int(job.From)+i].Ready.(*ready)
		if !ok || r.dev != d || !d.do(r, &d.never, &end.Outcome) {
			return false
		}
		if end.Begun++; end.Outcome.Kind != outcome.OK {
			return true
		}
	}
	return true
}

// noteLocked does for a job that Run has run what Submit and finish do for others: the
// ordinal, the record, the completion ring.
//
// +checklocks:d.mu
func (d *Device) noteLocked(job *backend.Job, end *backend.End, began time.Duration) {
	d.faults.jobs++
	if d.log.none() {
		return
	}
	now := time.Since(d.started)
	ref := d.log.open(job.ID, d.faults.jobs, job, NoFault)
	if end.Outcome == cancelled { // never begun
		d.log.close(ref, CancelledInQueue, now)
		return
	}
	res := result{outcome: end.Outcome, gone: d.state == gone, begun: end.Begun}
	if res.outcome.Kind == outcome.OK {
		res.written = writtenBy(job)
	}
	d.log.begin(ref, began)
	d.log.end(ref, res, now)
	d.faults.tamper(NoFault, backend.Completion{ID: job.ID, Outcome: end.Outcome, DeviceTime: end.DeviceTime})
}

// writtenBy is how much a job, or the entries of a list, could write.
func writtenBy(job *backend.Job) (bytes uint64) {
	if job.Op != backend.OpList {
		return written(job)
	}
	for i := range job.List {
		bytes += written(&job.List[i])
	}
	return bytes
}

var _ backend.Runner = (*Device)(nil)
