package gpu

import (
	"time"

	"capgpu/outcome"
)

// Escalation, smallest step first:
//
//	cancelling       the device is told to stop the one job          timedOut
//	   │ still there after its patience
//	queueReset       it ends what it has of that session alone       guilty: as stopped; what was
//	   │ it cannot, or fails                                         caught with it: innocent
//	functionReset    it is reset                                     the same, of everybody
//	   │ fails
//	respawn          lost; the driver is replaced                    deviceLost
//
// Each step is a state that anybody may see (recovery.go), and is over within a part of
// Config.HangBound: a quarter for the job to heed Cancel, an eighth for the queue reset
// (together three eighths), until three quarters for the function's, and the rest to
// settle. Where the queue alone can be reset nobody else is hit by impatience: work that
// missed the policy's deadline then has only queuePatience.
//
// A queue reset after which nothing ends was no help: the next step is the function's. But
// one tenant may have several sessions' work in the device, that hangs one after the other,
// before that of others: that costs nobody else anything.
//
// A deadline counts from when the device could have started the job: from when it became
// the oldest one sent. The same goes for a job that its owner cancelled: the device's
// patience begins when the job is the oldest.
//
// A caller's own deadline counts in full. The one that a job without it has counts,
// where the backend sees its jobs get on (backend.Progresser), from the last time
// that it did; the policy's longest deadline counts in full always. So a device that
// moves 40 KiB a second is left to it, and one that hangs is found as soon as any.
// Time in which the job was preempted (backend.Preempter) counts for none.
//
// A machine may stand still: a virtual machine is paused or moved, its host has no
// processor for it, a process is stopped and goes on. Work then stood still as well, or has
// ended unseen, so a deadline that passed meanwhile says nothing about it. When the reactor
// wakes much later than it was to, what it missed counts for no deadline. Work that hangs is
// found so much later: maxStills times at most, so that keeping processors busy buys nobody
// a device for ever.

const (
	// standstill is what a machine that is merely busy hardly makes a sleeper late by.
	standstill = 100 * time.Millisecond
	maxStills  = 8

	// watchTick is how often the progress of a busy device is looked at.
	watchTick = 2 * time.Millisecond

	// queuePatience is cancelPatience where the next step hits nobody else, and the work has
	// had all the time that anybody has: what heeds a cancel does so within some 100 µs.
	queuePatience = time.Millisecond
)

// cancelPatience is how long a cancelled job may take to end: what the device
// promises (backend.Limits.CancelBound: 200 ms in all where the host's CPU does the
// work), with room for a busy host, and at most a quarter of the hang bound.
func (r *reactor) cancelPatience() time.Duration {
	patience := 2 * r.limits.CancelBound
	if patience <= 0 {
		patience = 20 * time.Millisecond
	}
	return min(patience, r.dev.cfg.HangBound/4)
}

// patience is how long a job that was stopped may take to end.
func (r *reactor) patience(j *job) time.Duration {
	if j.flight.guilty && r.queueMayHelp(j.session()) {
		return min(queuePatience, r.cancelPatience())
	}
	return r.cancelPatience()
}

// queueMayHelp reports whether to try and end the work of one session alone.
func (r *reactor) queueMayHelp(s *Session) bool {
	c := &r.recovery
	return r.traits.resetter != nil && (c.fruitless == 0 || c.fruitless < sentLeast && c.fruitlessOf == s.tenant)
}

// due is how long the reactor may sleep; 0: not at all, below 0: as long as it likes.
func (r *reactor) due(now time.Time) time.Duration {
	j := r.sent.oldest
	switch {
	case r.state == deviceResetting:
		return -1
	case r.state == deviceRunning && r.recovery.mustReset:
		return 0
	case j == nil || r.state == deviceLost:
		return -1
	case j.flight.reported.yes: // the device is done with it
		return watchTick
	}

	left := r.limit(j).Sub(now)
	if r.traits.progresser != nil {
		left = min(left, watchTick)
	}
	return max(left, 0)
}

// limit is when the next step against the oldest job is due.
func (r *reactor) limit(j *job) time.Time {
	if f := &j.flight; f.stopAs.Kind != outcome.Pending {
		since := r.sent.headSince
		if f.stoppedAt.After(since) {
			since = f.stoppedAt
		}
		return since.Add(r.patience(j))
	}

	limit, stalled := r.sent.headSince.Add(j.budget), r.sent.progressAt.Add(j.stall)
	if stalled.Before(limit) {
		return stalled
	}
	return limit
}

// watch takes one step of the escalation if one is due.
func (r *reactor) watch(now time.Time) {
	if r.state == deviceLost {
		r.endAll()
		return
	}

	r.woke(now)
	j := r.sent.oldest

	if r.state != deviceRunning || j == nil && !r.recovery.mustReset {
		return
	}

	if r.recovery.mustReset {
		r.resetFaulted()
		return
	}

	r.follow(now)
	if j.flight.reported.yes || r.limit(j).After(now) {
		return
	}

	if j.flight.stopAs.Kind != outcome.Pending {
		r.resetStuck(j)
		return
	}

	r.stopLate(j, now)
}

// stopLate stops a job that has missed its deadline.
func (r *reactor) stopLate(j *job, now time.Time) {
	f, s := &j.flight, j.session()
	late := now.Sub(r.limit(j))
	f.stopAs, f.stoppedAt, f.ran = hangOutcome, now, now.Sub(r.sent.headSince)
	f.guilty = now.Sub(r.sent.progressAt) >= s.allowed(s.fair)
	r.incident(j, "deadline missed")

	if r.recovery.culprit == j {
		r.recovery.last.Late = late
	}

	r.climb(outcome.Cancelling)
	if f.guilty { // it counts before anybody is told how the job ends
		s.dev.strike(s, "deadline missed", "")
	}

	r.backend.Cancel(j.work.ID)
}

// follow notes when the oldest job last got on, and for how long it was preempted. A
// backend that does not tell is taken to get on only by ending jobs.
func (r *reactor) follow(now time.Time) {
	if r.traits.preempter != nil {
		if n := r.traits.preempter.Preempted(); n > r.sent.preempted {
			r.sent.putOff(n-r.sent.preempted, now)
			r.sent.preempted = n
		}
	}
	if r.traits.progresser == nil {
		return
	}
	if n := r.traits.progresser.Progress(); n != r.sent.progress {
		r.sent.progress, r.sent.progressAt = n, now
	}
}

// sleeps notes that the reactor looks again so much later, at the latest.
func (c *recovery) sleeps(now time.Time, next time.Duration) {
	c.looksAt = time.Time{}
	if next > 0 {
		c.looksAt = now.Add(next)
	}
}

// woke puts off what is watched by what the reactor woke too late by, if the machine stood
// still.
func (r *reactor) woke(now time.Time) {
	c := &r.recovery
	late := now.Sub(c.looksAt)
	if c.looksAt.IsZero() || late < standstill || r.sent.stills == maxStills {
		return
	}

	c.looksAt = time.Time{}
	r.sent.stills++
	r.sent.putOff(late, now)
}

// putOff puts off the limits of the oldest job by time that it did not have.
func (s *sentJobs) putOff(late time.Duration, now time.Time) {
	putOff(&s.headSince, late, now)
	putOff(&s.progressAt, late, now)
	if j := s.oldest; j != nil {
		putOff(&j.flight.stoppedAt, late, now)
	}
}

// putOff makes t so much later, but not later than now: what began while the machine stood
// still began at its end.
func putOff(t *time.Time, late time.Duration, now time.Time) {
	if *t = t.Add(late); t.After(now) {
		*t = now
	}
}
