package mock

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// Preemption: short work of one context does not wait until a long job of another has ended.
//
//	runs ──(a short job is due)──► all members wait ──► short jobs run ──┐
//	  └◄─────────────────────────────────────────────────────────────────┘
//
// A job may preempt others if it is short (isShort), and nothing of its context waits before
// it: so the order within a context stays. The running job makes room at its next block of
// work, or where the lane engine looks whether to stop. One that waits itself, as spin does,
// and one that is compiled for make room at any time. The job keeps all that it has on its
// stack, and goes on where it was.
//
// All members of the crew that run blocks of the job (inside) have to wait. The last one to
// come runs the short jobs on its own goroutine. Meanwhile nobody else touches the spans of
// the running job or the compiled kernels.
//
// The running job keeps at least half of the device's time: what short jobs took is owed to
// it, and paid by the time for which it goes on, up to preemptCredit in advance. Short jobs
// are begun at once until preemptMost is owed, and then not before all of it is paid. For
// this, running jobs that follow each other count as one.
const (
	preemptMost   = 200 * time.Microsecond
	preemptCredit = time.Millisecond
	// preemptCost is what it costs a running job to make room, about.
	preemptCost = 5 * time.Microsecond
	// shortList is how long a list may be expected to take that preempts.
	shortList = 200 * time.Microsecond
)

// preemption is the state of that. It is guarded by Device.mu, but for the atomics.
type preemption struct {
	due  atomic.Int64  // since the start of the device, in nanoseconds: none begins before
	paid time.Duration // since the start of the device: when nothing is owed any more
	// preempted is for how long jobs were preempted, in nanoseconds. While one is, the time
	// since the start has to be added to it, and it is negative.
	preempted atomic.Int64
	inside    int  // members that run the running job
	waiting   int  // and of these, the ones that wait
	going     bool // short jobs run
	rounds    uint64
	changed   sync.Cond // of the four above
	job       *slot     // the short job that runs
}

// now is the time since the start of the device.
func (d *Device) now() time.Duration { return time.Since(d.started) }

// Preempted implements backend.Preempter.
//
// +checklocksignore: an atomic needs no lock
func (d *Device) Preempted() time.Duration {
	all := time.Duration(d.preemption.preempted.Load())
	if all < 0 {
		all += d.now()
	}
	return all
}

// isShort reports whether the job in s may preempt others. It is called before the engine
// can see the job.
func (d *Device) isShort(s *slot) bool {
	job := s.job
	if job.Context == nil || job.Check || s.fault.Kind != NoFault {
		return false
	}
	if job.Op != backend.OpList {
		_, _, ok := d.Prepare(job, &s.ready)
		return ok
	}
	var nanos uint64
	for i := range job.List[job.From:] {
		r, ok := job.List[int(job.From)+i].Ready.(*ready)
		if !ok || r.dev != d {
			return false
		}
		nanos += r.nanos
	}
	return nanos <= uint64(shortList)
}

// shortLocked is where in the queue the next job is that may preempt s, or that is only to be
// said to be over; -1: there is none.
//
// +checklocks:d.mu
func (d *Device) shortLocked(s *slot) int {
	for i, q := range d.queue {
		c := q.job.Context
		if c == nil || c == s.job.Context || !q.short && !c.Over(q.job.Round) {
			continue
		}
		if !slices.ContainsFunc(d.queue[:i], func(before *slot) bool { return before.job.Context == c }) {
			return i
		}
	}
	return -1
}

// attendLocked has the running job look up, if there is one that may preempt it.
//
// +checklocks:d.mu
func (d *Device) attendLocked() {
	if s := d.running; s != nil && d.shortLocked(s) >= 0 {
		s.attend.Store(1)
		signal(s.stopped)
	}
}

// goesOn reports whether to go on with the task, after it was preempted if that is due. It is
// called by a goroutine that has entered.
func (t *task) goesOn() bool {
	s := t.slot
	if s.attend.Load() == 0 {
		return true
	}
	if t.dev.mustYield(s) {
		t.dev.mu.Lock()
		t.dev.yieldLocked(s)
		t.dev.mu.Unlock()
	}
	return s.stop.Load() == stopNone
}

// mustYield reports whether the running job is to be preempted now, or to be stopped.
func (d *Device) mustYield(s *slot) bool {
	return s.attend.Load() != 0 && (s.stop.Load() != stopNone || d.untilDue() <= 0)
}

// untilDue is how long the running job goes on at least.
//
// +checklocksignore: an atomic needs no lock
func (d *Device) untilDue() time.Duration {
	return time.Duration(d.preemption.due.Load()) - d.now()
}

// enter and leave are around whatever runs a part of the running job.
func (d *Device) enter() {
	d.mu.Lock()
	d.preemption.inside++
	d.mu.Unlock()
}

func (d *Device) leave() {
	d.mu.Lock()
	d.leaveLocked()
	d.mu.Unlock()
}

// +checklocks:d.mu
func (d *Device) leaveLocked() {
	p := &d.preemption
	p.inside--
	if p.waiting > 0 { // these may be all that are inside now
		p.changed.Broadcast()
	}
}

// yieldAlone is for the engine, between two entries of a list and while it waits.
func (d *Device) yieldAlone(s *slot) {
	d.mu.Lock()
	d.preemption.inside++
	d.yieldLocked(s)
	d.leaveLocked()
	d.mu.Unlock()
}

// yieldLocked waits until short jobs have run, or the job is to be stopped.
//
// +checklocks:d.mu
func (d *Device) yieldLocked(s *slot) {
	p := &d.preemption
	round := p.rounds
	p.waiting++
	for p.rounds == round && s.stop.Load() == stopNone {
		if p.going || p.waiting < p.inside {
			p.changed.Wait()
		} else {
			d.preemptLocked(s)
		}
	}
	if p.rounds == round { // else it was counted out
		p.waiting--
	}
}

// preemptLocked runs short jobs in the midst of s. It lets go of d.mu meanwhile.
//
// +checklocks:d.mu
func (d *Device) preemptLocked(s *slot) {
	p := &d.preemption
	p.going = true
	began := d.now()
	p.preempted.Add(-int64(began))
	owed, some := max(p.paid-began, -preemptCredit)+preemptCost, false
	for s.stop.Load() == stopNone && owed+d.now()-began < preemptMost {
		i := d.shortLocked(s)
		if i < 0 {
			break
		}
		short := d.queue[i]
		d.queue = slices.Delete(d.queue, i, i+1)
		if d.overLocked(short) {
			continue
		}
		d.runShortLocked(short)
		some = true
	}
	now := d.now()
	p.preempted.Add(int64(now))
	if owed += now - began; some {
		p.paid = now + owed
	}
	if owed >= preemptMost {
		p.due.Store(int64(p.paid))
	}
	// Members that wait may wake later than the next one comes to wait: they are counted out
	// here, and go on by a block of work before they are counted again.
	p.going, p.waiting = false, 0
	p.rounds++
	p.changed.Broadcast()
	if s.stop.Load() == stopNone {
		s.attend.Store(0)
		d.attendLocked()
	}
}

// runShortLocked runs a job that was taken from the queue, and ends it. One that cannot be run
// the short way after all goes back to its place. It lets go of d.mu meanwhile.
//
// +checklocks:d.mu
func (d *Device) runShortLocked(s *slot) {
	p := &d.preemption
	p.job = s
	began := d.now()
	d.mu.Unlock()
	r, done := d.runShort(s)
	took := d.now() - began
	d.mu.Lock()
	s.ran += took
	if done || s.had > 0 {
		d.log.begin(s.entry, began)
	}
	if !done && s.stop.Load() == stopNone {
		p.job, s.short = nil, false
		at := slices.IndexFunc(d.queue, func(other *slot) bool { return other.ordinal > s.ordinal })
		if at < 0 {
			at = len(d.queue)
		}
		d.queue = slices.Insert(d.queue, at, s)
		return
	}
	if !done {
		r.outcome = cancelled
	}
	d.mu.Unlock()
	d.finish(s, r, s.ran)
	d.mu.Lock()
}

// runShort runs a job the way that Prepare found. It is false if the job, or the rest of a
// list, has to go the other way.
//
// +checklocksignore: what it reads of the log never changes
func (d *Device) runShort(s *slot) (r result, done bool) {
	job := s.job
	r = result{outcome: outcome.Success, begun: job.From + s.had, written: s.written}
	if job.Op == backend.OpList {
		d.shortEntries(s, job, &r)
		done = int(r.begun) == len(job.List) || r.outcome.Kind != outcome.OK
		r.begun -= job.From
		s.had, s.written = r.begun, r.written
	} else if done = d.runReady(s, &r); done && r.outcome.Kind == outcome.OK {
		r.written = written(job)
	}
	if done && d.log.digests && r.outcome.Kind == outcome.OK {
		r.digest = digestWrites(job)
	}
	return r, done
}

// runReady runs a job that is no list.
func (d *Device) runReady(s *slot, r *result) (done bool) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	runtime.LockOSThread() // as in task.run
	defer runtime.UnlockOSThread()
	defer func() {
		if p := recover(); p != nil {
			r.outcome, r.gone = d.caught(&s.ready, p)
			done = true
		}
	}()
	return d.do(&s.ready, &s.stop, &r.outcome)
}

// await is false when the job is stopped first. Meanwhile others may preempt it.
func (s *slot) await(done <-chan struct{}) bool {
	for s.stop.Load() == stopNone {
		if s.attend.Load() == 0 {
			select {
			case <-done:
				return true
			case <-s.stopped:
			}
			continue
		}
		if s.dev.untilDue() > 0 {
			doze(s.dev.untilDue())
		}
		if left := s.dev.untilDue(); left > 0 { // time is virtual
			select {
			case <-done:
				return true
			case <-s.stopped:
			case <-time.After(left):
			}
			continue
		}
		s.dev.yieldAlone(s)
	}
	return false
}

// doze sleeps for some 100 µs. The timers of an idle process are late by a millisecond: the
// runtime's own sleep counts in these.
func doze(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // it may be interrupted: the caller looks at the clock
}

var _ backend.Preempter = (*Device)(nil)
