package gpu

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// A job that is long would keep everybody waiting who has short work, and one that never ends
// would until its deadline. So where the backend can (backend.Pauser), the device stands still
// in the midst of what it was sent, for the turns of tenants that have had less of it:
//
//	going ──(a turn is next, and its tenant is behind)──► asked ──still──► still ──► turns
//	  └◄──(none is next any more, or its tenant is well ahead)──────────────┘
//
// What was sent keeps its place and its order, and everything that can happen to it still can:
// it is cancelled, reset and lost as ever. Its time does not go on: neither its deadline nor
// what its tenant pays. Nothing is sent while the device stands still.
//
// A tenant passes a job for no longer than that has had the device itself, by weight, whatever
// it is owed from before: so a job that others pass ends all the same. One whose deadline is
// over nobody passes.
//
// It is for turns, which are short and of another tenant than all that was sent: so nothing
// that they read or write is what a job under way does, but for memory that tenants share on
// purpose, and no dependency is between them. Work that goes by Submit waits as ever.
type pauses struct {
	state pauseState
	count uint64        // pauses until now
	since time.Time     // when the device stood still
	stood time.Duration // the job that runs, in pauses that are over
	// look is when a turn that waits may have become the one for which to pause; zero: none.
	look time.Time
}

type pauseState uint8

const (
	deviceGoes pauseState = iota
	pauseAsked
	deviceStill
)

// In nanoseconds of device time, by weight.
const (
	// passAhead is how far ahead of the tenant of a turn that of the job under way has to be:
	// pausing is not for nothing.
	passAhead = 20_000
	// passMost is how far behind it may then fall: what is asked at once is done at once, if
	// it is short, and is waited for afterwards.
	passMost = 100_000
)

// passSoon is how long a queue whose turn is about to come looks for it and does not sleep.
const passSoon = 200 * time.Microsecond

// passLocked pauses the device or has it go on, if either is due, and reports whether it did:
// then it has let go of the lock. Called by pumpLocked, with nobody having the turn.
//
// +checklocks:e.mu
func (e *engine) passLocked() bool {
	p := &e.pause
	expected := p.look
	p.look = time.Time{}
	j := e.top.first()
	passes := j != nil && j.isTurn && e.oldest != nil && e.mayPassLocked(j)
	if !p.look.IsZero() && (expected.IsZero() || p.look.Before(expected)) {
		e.watching = true
		nudge(e.wake)
	}
	switch {
	case passes && p.state == deviceGoes:
		p.state = pauseAsked
		p.count++
		n := p.count
		e.mu.Unlock()
		e.callPause(func() { e.stands(n) })
		e.mu.Lock()
	case !passes && p.state != deviceGoes:
		if p.state == deviceStill {
			stood := time.Since(p.since)
			e.headSince, e.progressAt, p.stood = e.headSince.Add(stood), e.progressAt.Add(stood), p.stood+stood
		}
		p.state = deviceGoes
		e.mu.Unlock()
		e.callResume()
		e.mu.Lock()
	default:
		return false
	}
	return true
}

// mayPassLocked reports whether a turn is to go before what the device has. If it may be so
// later, runDevice looks then.
//
// +checklocks:e.mu
func (e *engine) mayPassLocked(j *job) bool {
	p, f, head := &e.pause, j.queue.session.flow.parent, e.oldest
	if f.sent > 0 || head.stopAs.Kind != outcome.Pending || head.said {
		return false
	}
	now := p.since
	if p.state != deviceStill {
		now = time.Now()
	}
	if !e.dueLocked(head).After(now) { // runDevice stops it, and sees that only while it goes
		p.look = now.Add(watchTick)
		return false
	}
	busy, ran := head.queue.session.flow.parent, int64(now.Sub(e.headSince))
	over := ran - head.estimate // what it has had and was not charged
	ahead := busy.virtual + max(over, 0)/busy.weight - f.virtual
	of := ran/busy.weight - f.passedBy(head.work.ID)/f.weight // as far as this job goes
	if p.state != deviceGoes {
		return ahead > -passMost && of > -passMost
	}
	wait := int64(0)
	if ahead <= passAhead {
		wait = (passAhead-ahead+1)*busy.weight + max(-over, 0)
	}
	if of <= 0 {
		wait = max(wait, (1-of)*busy.weight)
	}
	if wait > 0 {
		p.look = now.Add(time.Duration(wait))
	}
	return wait == 0
}

// passedBy is for how long a tenant has passed a job.
func (f *flow) passedBy(id backend.JobID) int64 {
	if f.passed != id {
		return 0
	}
	return f.passing
}

// pass counts a turn that passed a job.
func (f *flow) pass(id backend.JobID, nanos int64) {
	f.passing = f.passedBy(id) + nanos
	f.passed = id
}

// stands is what the backend calls when the device stands still.
func (e *engine) stands(count uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := &e.pause; p.state == pauseAsked && p.count == count {
		p.state, p.since = deviceStill, time.Now()
		e.pumpLocked()
	}
}

// lookAgainLocked is what runDevice does about a turn that waits: it says when to come again,
// zero if it need not.
//
// +checklocks:e.mu
func (e *engine) lookAgainLocked(now time.Time) time.Duration {
	look := e.pause.look
	if look.IsZero() || e.state != engineRunning {
		return 0
	}
	if !look.After(now) {
		e.pause.look = time.Time{}
		e.pumpLocked()
		if look = e.pause.look; look.IsZero() {
			return 0
		}
	}
	return max(look.Sub(now), 1)
}

// passesSoon looks whether a turn that waits is the one for which to pause by now, and
// reports whether it will be soon: sooner than somebody who sleeps is woken.
func (e *engine) passesSoon(j *job) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pause.look.IsZero() || e.top.first() != j {
		return false
	}
	left := e.lookAgainLocked(time.Now())
	return left > 0 && left < passSoon
}

// callPause and callResume call the backend. A bug of it is the loss of the device.
func (e *engine) callPause(still func()) {
	defer (&guardedBackend{e.backend, e}).caught("Pause", nil)
	e.pauser.Pause(still)
}

func (e *engine) callResume() {
	defer (&guardedBackend{e.backend, e}).caught("Resume", nil)
	e.pauser.Resume()
}

var _ backend.Burster = backend.Pauser(nil)
