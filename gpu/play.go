package gpu

import (
	"runtime"
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// A replay of a list whose entries are all for bursts is run by the queue's goroutine, too:
// a model's next token is one replay, and its client waits for it. Other than a burst it
// may take long. So it is run in slices, and each has a turn of its own:
//
//	begin ─► held ──askTurn──► ready ──► sent ──BurstList──► held … ─► ended
//	                             └─(cancelled: its list is closed …)──► ended
//
// Between two slices whoever else wants the device has it, as fair share says, and it is
// seen whether the list goes away, its queue is to stop, or its deadline has passed. In
// between nothing of the queue runs or is begun.
//
// What the device leaves to Submit goes there, as a list of the entries that are left.

// mayPlay reports whether the queue runs the job, which was begun last, itself. It is then
// the replay in progress.
func (q *queue) mayPlay(j *job) bool {
	if j.list == nil || !j.list.playable || q.head+1 != q.tail || q.session.spoils.active.Load() {
		return false
	}
	j.isTurn, q.burst.replay = true, j
	return true
}

// play goes on with the replay in progress, as far as it can now, and reports whether it
// got anywhere. When there is none any more afterwards it is over, or in the engine.
func (q *queue) play() (got bool) {
	e, j := q.session.dev.engine, q.burst.replay
	for {
		switch j.state.Load() {
		case jobReady:
			return got
		case jobEnded: // cancelled while it waited: retire sees to it
			return true
		case jobHeld:
			q.goOn(0)
			q.inEngine = true
			has := !q.called() && e.askTurn(j)
			q.inEngine = false
			if !has {
				if j.state.Load() != jobHeld {
					continue
				}
				if how, yes := j.withdrawn(); yes {
					q.endReplay(j, how)
					return true
				}
				runtime.Gosched() // serve has to look first, and soon there is something to see
				return true
			}
		}
		got = true
		if q.playSlice(j); q.burst.replay == nil || q.leaves() {
			return true
		}
	}
}

// playSlice runs a slice of the replay, which has the turn.
func (q *queue) playSlice(j *job) {
	e, s := q.session.dev.engine, q.session
	none := outcome.Outcome{}
	if how, yes := j.withdrawn(); yes || q.called() {
		q.endSlice(j, 0, none, leavesTurn)
		if yes {
			q.endReplay(j, how)
		}
		return
	}
	most := j.budget
	if e.progresser == nil { // else it gets on, from slice to slice
		most = j.stall
	}
	q.inEngine = true
	n, end := e.burstList(&j.work, int(j.begun), min(most-j.had, maxBurstNanos))
	q.inEngine = false
	if n == 0 && end.Outcome.Kind == outcome.Pending {
		q.endSlice(j, 0, none, leavesTurn)
		q.submitRest(j)
		return
	}
	took := min(max(end.DeviceTime, 0), e.dev.cfg.HangBound)
	if left := len(j.work.List) - int(j.begun); n < 0 || n > left || n == 0 && end.Outcome.Kind == outcome.OK {
		n, end.Outcome = 0, errorOutcome // the device's word is not believed
	}
	j.begun += uint32(n)
	j.had += took
	j.launched = j.list.launchedBy(uint64(j.begun))
	stopAs := none
	if s.context.Trapped() {
		stopAs = poisonedOutcome
	}
	how, gone := believe(end.Outcome, stopAs)
	trapped := none
	if how.Cause == outcome.TrapCause {
		trapped = how
	}
	over, late := how.Kind != outcome.OK || int(j.begun) >= len(j.work.List), j.had >= most
	if how.Kind != outcome.OK && how.Cause != outcome.TrapCause || late && !over {
		j.spoil() // before anybody else has the device
	}
	after := leavesTurn
	if !over && !late {
		after = asksAgain
	}
	lost := q.endSlice(j, took, trapped, after)
	if gone {
		e.lose("the device said that it is lost")
	}
	switch {
	case lost || gone: // and then nothing is ok
		over, how = true, lostOutcome
	case over || !late:
	default:
		over, how = true, hangOutcome
		if j.had >= s.allowed(s.fair) {
			s.dev.strike(s, "deadline missed", "")
		}
	}
	if over {
		q.endReplay(j, how)
		return
	}
	if q.burst.unseen+j.had >= seenSoon {
		q.flush() // what ended before it, whatever it was, waits no longer
	}
}

// endSlice gives the turn back, which the replay had for so long.
func (q *queue) endSlice(j *job, took time.Duration, trapped outcome.Outcome, after afterTurn) (lost bool) {
	e := q.session.dev.engine
	q.spin.kept += int64(took)
	q.burst.took += int64(took)
	if took > 0 {
		_ = q.meter.Spend(uint64(took)) // being over the limit shows at the next submission
	}
	q.inEngine = true
	lost, q.burst.crowded = e.endTurn(j, int64(took), trapped, after)
	if trapped.Kind != outcome.Pending {
		e.cancel(q.session, func(*job) bool { return true }, poisonedOutcome)
	}
	q.inEngine = false
	return lost
}

// seenSoon is how much device time replays that have ended may have had together before
// their completions are published, where there is more to do: each time may wake the client.
const seenSoon = 200 * time.Microsecond

// endReplay ends the replay in progress, which has no turn and does not ask for one.
func (q *queue) endReplay(j *job, how outcome.Outcome) {
	q.burst.replay = nil
	if how.Kind != outcome.OK {
		j.spoil()
	}
	j.unpin()
	j.deviceTime = j.had
	j.end(how)
	q.retire()
	if q.burst.unseen += j.had; q.burst.unseen >= seenSoon || how.Kind != outcome.OK {
		q.flush() // what comes after it may take its time
	}
}

// submitRest leaves the rest of the replay to the engine.
func (q *queue) submitRest(j *job) {
	q.burst.replay = nil
	j.isTurn = false
	j.work.List = j.work.List[j.begun:]
	j.budget -= j.had
	j.stall = min(j.stall-j.had, j.budget)
	if q.session.dev.engine.progresser != nil {
		j.stall = min(j.stall+j.had, j.budget)
	}
	q.inEngine = true
	q.session.dev.engine.enqueue(q, j, j)
	q.inEngine = false
}

// leaveReplay ends the replay in progress, if there is one. What waited for the turn was
// cancelled before.
func (q *queue) leaveReplay(how outcome.Outcome) {
	j := q.burst.replay
	if j == nil {
		return
	}
	q.burst.replay = nil
	switch j.state.Load() {
	case jobSent:
		q.session.dev.engine.endTurn(j, 0, outcome.Outcome{}, leavesTurn)
	case jobHeld:
	default: // it has ended, or whoever cancelled it is about to end it
		return
	}
	j.spoil()
	j.unpin()
	j.deviceTime = j.had
	j.end(how)
}

// burstList calls the backend. A bug of it is the loss of the device.
func (e *engine) burstList(j *backend.Job, from int, most time.Duration) (n int, end backend.End) {
	defer (&guardedBackend{e.backend, e}).caught("BurstList", nil)
	return e.player.BurstList(j, from, most)
}
