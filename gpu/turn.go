package gpu

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// A queue that runs its work itself (burst.go, play.go) needs the device for itself
// meanwhile: it asks for the turn. While one has it nothing is sent.
//
//	free ──ask──► ready ──(it is next, and nothing is sent)──► sent ──endTurn──► free
//	  └──────────────(nobody is ready, nothing is sent)─────────►
//	                └──(cancelled, or the device is lost)──► ended ──► free
//
// These are states of job, for it is one that waits among its session's and whose cost is
// what the burst took, so that who runs its work itself has no more of the device than who
// does not. That of a burst (queue.burst.turn) names no memory, and so is never stopped for
// the memory's sake: a queue that has the turn looks at what it uses, and then runs it. Who
// takes memory away closes the pins first and then waits for the turn (awaitTurn). That of
// a replay is the replay itself, which is held where the other is free. Where nobody else
// wants it, the turn is lent (loan.go).
type turns struct {
	holder *job      // who has it, or has it on loan; nil: nobody
	count  uint64    // turns until now
	given  time.Time // when this one was, if others had waited with it
	seen   uint64    // the count that runDevice has seen last,
	since  time.Time // and when that was new to it
}

// turnBursts is how many bursts a turn may have that is no loan.
const turnBursts = 4

// askTurn asks for the turn, and reports whether the queue has it at once. If not, it is
// kicked when it has, or when the turn has ended because the queue's work was cancelled.
func (e *engine) askTurn(j *job) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.state == engineLost || j.isGoing() {
		return false // and serve, or play, sees that
	}
	e.callBackLocked()
	if e.idleLocked() {
		j.estimate = 0
		e.giveTurnLocked(j)
		return true
	}
	j.state.Store(jobReady)
	e.top.pushReady(j.queue, j, j)
	e.pumpLocked()
	return j.state.Load() == jobSent
}

// idleLocked reports whether the device could be had at once, and nobody waits for it.
//
// +checklocks:e.mu
func (e *engine) idleLocked() bool {
	return e.state == engineRunning && !e.mustReset && !e.pumping && e.turn.holder == nil && e.oldest == nil &&
		e.pause.state == deviceGoes && len(e.top.flows) == 0
}

// isGoing reports whether a replay is not to wait for the turn any more: whoever closes
// what it uses has not found it among those that do, or will (job.withdrawn).
func (j *job) isGoing() bool {
	if j.list == nil {
		return false
	}
	_, yes := j.withdrawn()
	return yes
}

// +checklocks:e.mu
func (e *engine) giveTurnLocked(j *job) {
	j.inRow = j.turn == e.turn.count
	e.turn.holder = j
	e.nextTurnLocked(j, turnBursts*maxBurst)
	j.state.Swap(jobSent) // and then kick looks: see ring.view for why not Store
	if !e.watching {
		e.watching = true
		e.sleepsLocked(0)
		nudge(e.wake)
	}
}

// nextTurnLocked counts a turn of j, and has so many ids for it, from that of its work.
//
// +checklocks:e.mu
func (e *engine) nextTurnLocked(j *job, ids uint64) {
	e.turn.count++
	j.turn = e.turn.count
	places := uint64(len(e.slots))
	j.work.ID = backend.JobID((e.sequence + 1) * places)
	e.sequence += (ids + places - 1) / places
}

// turnMustWaitLocked reports whether the next job is a turn that cannot begin yet.
//
// +checklocks:e.mu
func (e *engine) turnMustWaitLocked() bool {
	if e.oldest == nil {
		return false
	}
	j := e.top.first()
	return j != nil && j.isTurn
}

// afterTurn is what a queue wants that gives the turn back.
type afterTurn uint8

const (
	leavesTurn afterTurn = iota
	asksAgain            // if others ask for it
	comesAgain           // soon, perhaps: nobody is kept waiting for it
)

// endTurn gives the turn back. Its work took so long; trapped is how work of it did, if
// it did. Where others wait it costs what the device was kept for it, from when it was
// given: the queue had yet to come, and what it has to do for the entries besides.
// lost says that the device was lost meanwhile, and crowded that others want it.
func (e *engine) endTurn(j *job, nanos int64, trapped outcome.Outcome, after afterTurn) (lost, crowded bool) {
	q, rest := j.queue, jobFree
	if j.list != nil {
		rest = jobHeld
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.callBackLocked()
	q.burst.loan.runs = 0
	e.turn.holder = nil
	if e.pause.state == deviceStill && e.oldest != nil {
		q.session.flow.parent.pass(e.oldest.work.ID, max(nanos, int64(time.Since(e.turn.given))))
	}
	if e.oldest == nil { // who has the turn has the device to itself: it works
		e.fruitless = 0
	}
	j.state.Store(rest)
	if j.estimate != 0 {
		e.top.returned(j, max(nanos, int64(time.Since(e.turn.given)))+q.hostNanos())
	} else {
		e.top.spend(q.session.flow, max(nanos, minJobCost))
	}
	if trapped.Kind != outcome.Pending {
		q.session.setPoisoned(trapped) // under the lock: nothing of it is sent after this
	}
	e.quiet.Broadcast()
	if lost, crowded = e.state == engineLost, len(e.top.flows) > 0 || e.pause.state == deviceStill; lost || !crowded {
		if after == comesAgain && j.inRow && trapped.Kind == outcome.Pending && e.idleLocked() {
			e.lendLocked(j)
		}
		return lost, crowded
	}
	if after == asksAgain && !j.isGoing() {
		j.state.Store(jobReady)
		e.top.pushReady(q, j, j)
	}
	e.pumpLocked()
	return false, true
}

// awaitTurn waits until no queue that has the turn now has it any more. Who takes memory
// away from the device calls it after the pins are closed: bursts hold none.
func (e *engine) awaitTurn() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.awaitTurnLocked()
}

// +checklocks:e.mu
func (e *engine) awaitTurnLocked() {
	e.callBackLocked()
	for count := e.turn.count; e.turn.holder != nil && e.turn.count == count; {
		e.quiet.Wait()
	}
}

// watchTurnLocked loses the device when one turn has it for longer than
// Config.HangBound: nobody can stop it, and nothing of anybody runs. It reports whether
// runDevice should look again at its next tick.
//
// +checklocks:e.mu
func (e *engine) watchTurnLocked(now time.Time) (again, stuck bool) {
	e.callBackLocked()
	fresh := e.turn.seen != e.turn.count
	if fresh {
		e.turn.seen, e.turn.since = e.turn.count, now
	}
	if e.turn.holder == nil {
		return fresh, false // there may soon be another: it need not wake runDevice
	}
	return true, now.Sub(e.turn.since) > e.dev.cfg.HangBound
}
