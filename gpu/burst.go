package gpu

import (
	"reflect"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// A burst is short work that the queue's goroutine has the device run in one call
// (backend.Burster), without the engine's lists, the device's queue and another
// goroutine. A launch then costs less than to wake somebody for it.
//
//	take ─► pick (memo.go) ─► turn (turn.go) ─► look again ─► charge ─► Burst ─► tell
//	           └─ not for bursts, or something is under way: begin, enqueue (submit.go)
//
// What comes out is the same either way: the other way is the slow obvious one, and what
// a burst cannot say (why an entry is refused, that it was cancelled) is left to it. So
// a burst begins only where that way would have nothing to say: the queue has nothing
// under way, and nothing speaks against its work.
//
// A burst pins nothing. With the turn its queue looks at the pins of all it is about to
// use: who closes an object closes its pins and then waits for the turn.
//
// A backend whose OKs are settled (settle.go) runs no bursts.
type bursts struct {
	backend backend.Burster // nil: none
	held    holding
	memo    memo
	slots   int         // kept slots of the ring
	stale   atomic.Bool // something that it remembers may have been released
	joined  bool        // the session's memoSet has the queue
	crowded bool        // the last turn ended with others waiting
	loan    loan
	replay  *job          // that the queue runs itself (play.go), and that is not over
	unseen  time.Duration // device time of replays whose completions are not published
	picks   uint64
	charged int   // in flight
	took    int64 // device time of all bursts and slices of replays, in nanoseconds
	// turn waits for the device, as a job among the session's.
	turn job
}

const (
	maxBurst = ring.BatchEntries
	// maxBurstNanos is what the work of one burst may be expected to take: nothing can
	// stop it, and others wait.
	maxBurstNanos = 100_000
)

// init is called before the queue's goroutine starts.
func (b *bursts) init(q *queue) {
	b.turn.queue, b.turn.isTurn = q, true
	b.backend = q.session.dev.engine.burster
	b.held.init(q)
	b.slots = ring.Config{Entries: uint32(len(q.jobs))}.Slots()
}

// hostBytes is the most that it allocates.
func (b *bursts) hostBytes(q *queue, entries uint32) uint64 {
	told := uint64(reflect.TypeFor[scratch]().Size()) + maxBurst*uint64(reflect.TypeFor[ring.Completion]().Size())
	if q.session.dev.engine.burster == nil {
		return told
	}
	each := uint64(reflect.TypeFor[*resolved]().Size() + reflect.TypeFor[backend.Ready]().Size() + reflect.TypeFor[backend.End]().Size() + reflect.TypeFor[uint64]().Size())
	return told + maxBurst*each + memoBytes(ring.Config{Entries: entries}.Slots())
}

// runBurst runs what it can of the batch. With none run, wait says that the queue is to
// come again, for it asks for the turn or somebody wants it to stop; if not, the first
// entry must go the other way.
func (q *queue) runBurst() (ran int, wait bool) {
	b := &q.burst
	if b.backend == nil {
		return 0, false
	}
	e := q.session.dev.engine
	switch b.turn.state.Load() {
	case jobReady:
		return 0, true
	case jobEnded:
		b.turn.state.Store(jobFree)
	}
	n := 0
	if q.batch.Entries[q.begun].Op != ring.OpReplay { // which pick does not take
		n = q.pick()
	}
	if n == 0 {
		q.leaveTurn()
		return 0, false
	}
	switch {
	case b.turn.state.Load() == jobSent:
	case b.loan.begin():
		b.turn.work.ID += maxBurst
	case !q.askTurn():
		return 0, b.turn.state.Load() != jobFree
	}
	if n, wait = q.mayStill(n); n == 0 || !q.chargeBurst(n) {
		q.leaveTurn()
		return 0, wait
	}
	q.inEngine = true
	ran = e.burst(b.turn.work.ID, q.ready[:n], q.ends[:n])
	q.inEngine = false
	q.endBurst(ran)
	return ran, false
}

// chargeBurst charges what is about to run. False means that there is no room for it.
func (q *queue) chargeBurst(n int) bool {
	if q.lease.Take(uint64(n)) != nil {
		return false
	}
	q.burst.charged = n
	crashpoint.Here("driver.burst.charged")
	return true
}

// serveBurst is the short way of serve and take for what was just fetched: where nothing
// is under way and nobody wants anything else, there is no more to do for a burst than to
// run it and to tell its end. It reports whether that was all, and the queue goes on as it
// was. If not, serve does what is left.
func (q *queue) serveBurst() bool {
	if q.discard > 0 || q.owes.Load() || q.session.dev.freezing.Load() != nil { // called: see mayStill
		return false
	}
	if ran, _ := q.runBurst(); ran == 0 {
		return false
	}
	q.flush()
	if q.left() || q.burst.turn.state.Load() != jobFree || q.crowd.swept.Load() {
		return false
	}
	q.spin.kept += keptLook
	return q.spin.kept < keptQuick
}

// keptQuick is after how much serve comes by all the same: it counts it (goOn), and another
// queue may be one of those that look at their rings.
const keptQuick = 64 * keptLook

// pick resolves entries until one is not for a burst, and counts them.
func (q *queue) pick() int {
	b, s := &q.burst, q.session
	if s.spoils.active.Load() || q.head != q.tail || q.waiting != nil || q.discard > 0 || q.skipping ||
		s.unpoisoned() != nil || s.banned() != nil || s.account.CanSpend(ledger.DeviceTime) != nil {
		return 0
	}
	q.forBurst()
	b.picks++
	b.memo.once = 0
	nanos := int64(0)
	entries := q.batch.Entries[q.begun:]
	for i := range entries {
		r := q.remember(&entries[i])
		if r == nil {
			return i
		}
		if nanos += r.nanos; nanos > maxBurstNanos && i > 0 {
			return i
		}
		q.picked[i], q.ready[i] = r, r.ready
	}
	return len(entries)
}

// mayStill says how many of those picked may run, now that nobody can take away what
// they use. None and wait: serve has to look first.
func (q *queue) mayStill(n int) (may int, wait bool) {
	switch {
	case q.called():
		return 0, true
	case q.session.unpoisoned() != nil || q.session.spoils.active.Load():
		return 0, false
	}
	now := q.session.dev.engine.closings.Load()
	for i, r := range q.picked[:n] {
		if !r.openSince(now) {
			r.drop()
			return i, false
		}
	}
	return n, false
}

// endBurst follows a call of Burst that ran so many.
func (q *queue) endBurst(ran int) {
	q.burstRan()
	b, s, e := &q.burst, q.session, q.session.dev.engine
	var nanos int64
	var trapped outcome.Outcome
	gone, sound := false, true
	for i := range q.ends[:ran] {
		x := &q.ends[i]
		x.DeviceTime = min(max(x.DeviceTime, 0), e.dev.cfg.HangBound)
		nanos += int64(x.DeviceTime)
		q.nanos[i] = uint64(x.DeviceTime)
		if x.Outcome == outcome.Success {
			if len(q.spoilt) == 0 || !s.spoils.hits(q.burstJob(i)) {
				continue
			}
			x.Outcome = errorOutcome // the burst was to end before it
		}
		sound = false
		stopAs := outcome.Outcome{}
		if s.context.Trapped() {
			stopAs = poisonedOutcome
		}
		lost := false
		x.Outcome, lost = believe(x.Outcome, stopAs)
		if x.Outcome.Cause != outcome.TrapCause {
			q.spoilBurst(i)
		}
		gone = gone || lost
		if x.Outcome.Cause == outcome.TrapCause && trapped.Kind == outcome.Pending {
			trapped = x.Outcome
		}
	}
	// Where that was all, and nobody waited for the turn lately, the client is told first:
	// giving the turn back takes as long as the client's line is on its way.
	first := sound && !b.crowded && len(q.spoilt) == 0 && q.begun+ran == len(q.batch.Entries) && !s.dev.isLost.Load()
	if first {
		q.freeBurst()
		q.payBurst(nanos)
		q.tellOK(ran)
	}
	lost := false
	if !sound || !b.loan.end(nanos) {
		after := comesAgain
		if ran > 0 && b.crowded && (q.begun+ran < len(q.batch.Entries) || q.ring.Ready()) {
			after = asksAgain
		}
		q.inEngine = true
		lost, b.crowded = e.endTurn(&b.turn, b.held.turnTook(nanos), trapped, after)
		if trapped.Kind != outcome.Pending {
			e.cancel(s, func(*job) bool { return true }, poisonedOutcome)
		}
		if gone {
			e.lose("the device said that it is lost")
		}
		q.inEngine = false
	}
	if !first {
		q.freeBurst()
		q.payBurst(nanos)
		q.tellBurst(ran, lost)
	}
}

// freeBurst ends the charge of a burst's being in flight.
func (q *queue) freeBurst() {
	q.lease.Give(uint64(q.burst.charged))
	q.burst.charged = 0
}

// payBurst charges what a burst took.
func (q *queue) payBurst(nanos int64) {
	b := &q.burst
	q.spin.kept += nanos
	b.took += nanos
	if nanos > 0 {
		_ = q.meter.Spend(uint64(nanos)) // being over the limit shows at the next submission
	}
}

// burstJob is the i-th job of the burst under way. What was picked twice has one job.
func (q *queue) burstJob(i int) *job {
	j := &q.picked[i].job
	j.pos = q.taken - uint64(len(q.batch.Entries)-q.begun) + uint64(i)
	return j
}

// spoilBurst notes what a job of a burst, which did not end ok, was to write: before
// anybody else has the device.
func (q *queue) spoilBurst(i int) {
	j := q.burstJob(i)
	if j.spoil(); j.spoiled != nil {
		q.spoilt = append(q.spoilt, j.spoiled)
		j.spoiled = nil
	}
}

// tellOK counts and completes what a burst ran, all of which ended ok, and publishes it.
func (q *queue) tellOK(ran int) {
	q.countBurst(ran)
	q.begun += ran
	q.session.ended[outcome.OK].Add(uint64(ran))
	q.write()
	q.burstCounted()
	q.ring.PublishOK(q.nanos[:ran])
	q.burstTold()
	q.unflushed, q.burst.unseen = false, 0
}

func (q *queue) burstRan()     { crashpoint.Here("driver.burst.ran") }
func (q *queue) burstCounted() { crashpoint.Here("driver.burst.counted") }
func (q *queue) burstTold()    { crashpoint.Here("driver.burst.told") }

// tellBurst counts and completes what a burst ran. After a loss nothing is ok.
func (q *queue) tellBurst(ran int, lost bool) {
	q.countBurst(ran)
	q.begun += ran
	for i := range q.ends[:ran] {
		how := q.ends[i].Outcome
		if lost {
			how = lostOutcome
		}
		c := q.tell()
		if how.Kind == outcome.OK { // which says all: see endBurst
			c.SetOK(0, q.nanos[i])
		} else {
			*c = ring.Completion{Outcome: how}
			q.group = outcome.Worse(q.group, how)
		}
		q.countEnd(how)
	}
}

// countBurst counts the launches of a burst.
func (q *queue) countBurst(ran int) {
	s, launches := q.session, uint64(0)
	entries := q.batch.Entries[q.begun : q.begun+ran]
	for i := range entries {
		if entries[i].Op != ring.OpLaunch {
			continue
		}
		launches++
		if s.dev.cfg.LaunchRecords != 0 {
			s.countLaunch(&q.picked[i].job.work)
		}
	}
	if s.dev.cfg.LaunchRecords == 0 && launches > 0 {
		s.launches.Add(launches)
	}
}

// leaveTurn gives the turn back unused, if the queue has it, and forgets that it was
// refused, if it was.
func (q *queue) leaveTurn() {
	switch j, state := &q.burst.turn, q.burst.turn.state.Load(); {
	case state == jobSent || q.burst.loan.runs != 0:
		q.session.dev.engine.endTurn(j, 0, outcome.Outcome{}, leavesTurn)
	case state == jobEnded:
		j.state.Store(jobFree)
	}
}

// returnTurn is leaveTurn of a queue that takes nothing for now, and returns what it was lent.
func (q *queue) returnTurn() {
	q.leaveTurn()
	if q.burst.loan.word.Load() != 0 {
		q.session.dev.engine.callBack()
	}
}

// asker is what waits for the turn, or has it.
func (q *queue) asker() *job {
	if j := q.burst.replay; j != nil {
		return j
	}
	return &q.burst.turn
}

// asks reports whether the queue waits for the turn, and turnCame whether that is over.
func (q *queue) asks() bool { return q.asker().state.Load() == jobReady }

func (q *queue) turnCame() bool {
	state := q.asker().state.Load()
	return state == jobSent || state == jobEnded
}

// burst calls the backend. A bug of it is the loss of the device.
func (e *engine) burst(first backend.JobID, jobs []backend.Ready, ends []backend.End) (n int) {
	defer (&guardedBackend{e.backend, e}).caught("Burst", nil)
	return e.burster.Burst(first, jobs, ends)
}
