package gpu

import (
	"sync"
	"time"

	"capgpu/outcome"
)

// The ladder, smallest step first:
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
// patience begins when the job is the oldest. One that is shorter than watchTick may be seen
// so much late; the others are met by an alarm.
//
// A caller's own deadline counts in full. The one that a job without it has counts,
// where the backend sees its jobs get on (backend.Progresser), from the last time
// that it did; the policy's longest deadline counts in full always. So a device that
// moves 40 KiB a second is left to it, and one that hangs is found as soon as any.
//
// What the machine stood still for counts for no deadline (standstill.go).

// cancelPatience is how long a cancelled job may take to end: what the device
// promises (backend.Limits.CancelBound: 200 ms in all where the host's CPU does the
// work), with room for a busy host, and at most a quarter of the hang bound.
func (e *engine) cancelPatience() time.Duration {
	patience := 2 * e.limits.CancelBound
	if patience <= 0 {
		patience = 20 * time.Millisecond
	}
	return min(patience, e.dev.cfg.HangBound/4)
}

// queuePatience is cancelPatience where the next step hits nobody else, and the work has
// had all the time that anybody has: what heeds a cancel does so within some 100 µs.
const queuePatience = time.Millisecond

// patienceLocked is how long a job that was stopped may take to end.
//
// +checklocks:e.mu
func (e *engine) patienceLocked(j *job) time.Duration {
	if j.guilty && e.queueMayHelpLocked(j.queue.session) {
		return min(queuePatience, e.cancelPatience())
	}
	return e.cancelPatience()
}

// queueMayHelpLocked reports whether to try and end the work of one session alone.
//
// +checklocks:e.mu
func (e *engine) queueMayHelpLocked(s *Session) bool {
	return e.resetter != nil && (e.fruitless == 0 || e.fruitless < maxSent && e.fruitlessOf == s.tenant)
}

// runDevice watches over the device until quit is closed. It alone resets, and
// it alone ends work when the device is lost.
func (e *engine) runDevice(quit <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var ringing sync.WaitGroup
	ringing.Go(func() { e.alarm.run(func() { nudge(e.wake) }) })
	defer ringing.Wait()
	defer e.alarm.close()
	for {
		next := e.watch()
		if next <= 0 {
			continue
		}
		e.mu.Lock()
		e.sleepsLocked(next)
		e.mu.Unlock()
		if timer.Reset(next); next < watchTick {
			e.alarm.set(next)
		}
		select {
		case <-e.wake:
		case <-timer.C:
		case <-quit:
			e.watch() // a loss of the last moment is told, too
			return
		}
	}
}

// watchTick is how often a busy device is looked at.
const watchTick = 2 * time.Millisecond

// idleWatch is how long runDevice sleeps when there is nothing to watch; it is
// woken when there is.
const idleWatch = time.Hour

// watch takes one step of the ladder if one is due, and says when to look again;
// zero means at once.
func (e *engine) watch() time.Duration {
	now := time.Now()
	e.mu.Lock()
	if e.state == engineLost {
		e.mu.Unlock()
		e.endAll()
		return idleWatch
	}
	e.wokeLocked(now)
	if e.mustReset {
		e.mu.Unlock()
		e.resetFaulted()
		return 0
	}
	j := e.oldest
	if j == nil {
		e.watching = false
		e.mu.Unlock()
		return idleWatch
	}
	e.watching = true
	e.followLocked(now)
	if j.said { // the device is done with it
		e.mu.Unlock()
		return watchTick
	}
	since, due := e.headSince, e.dueLocked(j)
	stopped := j.stopAs.Kind != outcome.Pending
	if stopped {
		if j.stoppedAt.After(since) {
			since = j.stoppedAt
		}
		due = since.Add(e.patienceLocked(j))
	}
	if due.After(now) {
		e.mu.Unlock()
		return min(due.Sub(now), watchTick)
	}
	id, submitted, s, still := j.work.ID, j.submitted, j.queue.session, now.Sub(e.progressAt)
	if stopped {
		e.mu.Unlock()
		e.resetStuck(id, since)
		return 0
	}
	j.stopAs, j.stoppedAt, j.ran = hangOutcome, now, now.Sub(e.headSince)
	guilty := still >= s.allowed(s.fair)
	j.guilty = guilty
	e.incidentLocked(j, "deadline missed")
	if e.ladder.culprit == j {
		e.ladder.last.Late = now.Sub(due)
	}
	e.climbLocked(outcome.Cancelling)
	if guilty { // under the lock: it counts before anybody is told how the job ends
		s.dev.strike(s, "deadline missed", "")
	}
	e.mu.Unlock()
	if submitted {
		e.backend.Cancel(id)
	}
	return 0
}

// followLocked notes when the oldest job last got on. A backend that does not tell is
// taken to get on only by ending jobs.
//
// +checklocks:e.mu
func (e *engine) followLocked(now time.Time) {
	if e.progresser == nil {
		return
	}
	if n := e.progresser.Progress(); n != e.progress {
		e.progress, e.progressAt = n, now
	}
}

// dueLocked is when the oldest job is to be stopped.
//
// +checklocks:e.mu
func (e *engine) dueLocked(j *job) time.Time {
	due, stalled := e.headSince.Add(j.budget), e.progressAt.Add(j.stall)
	if stalled.Before(due) {
		return stalled
	}
	return due
}
