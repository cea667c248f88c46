package gpu

import (
	"reflect"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
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
	memo    memo
	slots   int         // of the memo
	joined  bool        // the session's memoSet has the queue
	stale   atomic.Bool // something that it remembers may have been released
	// turn waits for the device, as a job among the session's.
	turn    job
	replay  *job          // that the queue runs itself (play.go), and that is not over
	unseen  time.Duration // device time of replays whose completions are not published
	had     uint64        // turns
	picks   uint64
	crowded bool  // the last turn ended with others waiting
	charged int   // in flight
	took    int64 // device time of all bursts and slices of replays, in nanoseconds

	jobs  []*resolved // made when first used, like what follows
	ready []backend.Ready
	ends  []backend.End
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
	b.slots = memoSize(uint32(len(q.jobs)))
}

// hostBytes is the most that it allocates.
func (b *bursts) hostBytes(q *queue, entries uint32) uint64 {
	told := uint64(maxBurst) * uint64(reflect.TypeFor[ring.Completion]().Size())
	if q.session.dev.engine.burster == nil {
		return told
	}
	each := uint64(reflect.TypeFor[*resolved]().Size() + reflect.TypeFor[backend.Ready]().Size() + reflect.TypeFor[backend.End]().Size())
	return told + maxBurst*each + uint64(memoSize(entries))*memoSlotBytes
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
	if b.turn.state.Load() != jobSent {
		q.inEngine = true
		has := e.askTurn(&b.turn)
		q.inEngine = false
		if !has {
			return 0, b.turn.state.Load() != jobFree
		}
	}
	b.had++
	if n, wait = q.mayStill(n); n == 0 || q.lease.Take(uint64(n)) != nil {
		q.leaveTurn()
		return 0, wait
	}
	b.charged = n
	crashpoint.Here("driver.burst.charged")
	q.inEngine = true
	ran = e.burst(b.turn.work.ID, b.ready[:n], b.ends[:n])
	q.inEngine = false
	crashpoint.Here("driver.burst.ran")
	q.endBurst(ran)
	return ran, false
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
	if b.jobs == nil {
		b.jobs, b.ready, b.ends = make([]*resolved, maxBurst), make([]backend.Ready, maxBurst), make([]backend.End, maxBurst)
	}
	b.picks++
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
		b.jobs[i], b.ready[i] = r, r.ready
	}
	return len(entries)
}

// remember returns what an entry was resolved to, nil if it is not for a burst.
func (q *queue) remember(t *ring.Taken) *resolved {
	b := &q.burst
	if t.Known != nil { // a launch, and the session's facet never changes
		if r := b.memo.recall(t); r != nil && r.job.queue == q {
			if !r.fit {
				return nil
			}
			r.picked = b.picks
			return r
		}
	}
	switch {
	case t.Code != gpuerr.None || len(t.Args) > maxMemoArgs:
		return nil
	case t.Op == ring.OpLaunch:
		if q.session.facet < FacetProgram {
			return nil
		}
	case t.Op != ring.OpCopy && t.Op != ring.OpFill:
		return nil
	}
	r, known := b.memo.find(t, b.slots)
	if !known && (r.picked == b.picks || !q.memorize(r, t)) {
		return nil // its slot holds an earlier one of this burst, or it is refused
	}
	if !r.fit {
		return nil
	}
	r.picked = b.picks
	return r
}

// mayStill says how many of those picked may run, now that nobody can take away what
// they use. None and wait: serve has to look first.
func (q *queue) mayStill(n int) (may int, wait bool) {
	b := &q.burst
	switch {
	case q.called():
		return 0, true
	case q.session.unpoisoned() != nil || q.session.spoils.active.Load():
		return 0, false
	}
	for i, r := range b.jobs[:n] {
		if r.alive == b.had {
			continue
		}
		if !r.open() {
			r.drop()
			return i, false
		}
		r.alive = b.had
	}
	return n, false
}

// endBurst follows a call of Burst that ran so many.
func (q *queue) endBurst(ran int) {
	b, s, e := &q.burst, q.session, q.session.dev.engine
	var nanos int64
	var trapped outcome.Outcome
	gone, sound := false, true
	for i := range b.ends[:ran] {
		x := &b.ends[i]
		x.DeviceTime = min(max(x.DeviceTime, 0), e.dev.cfg.HangBound)
		nanos += int64(x.DeviceTime)
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
		q.payBurst(nanos)
		q.tellBurst(ran, false)
		q.flush()
	}
	more := ran > 0 && b.crowded && (q.begun+ran < len(q.batch.Entries) || q.ring.Ready())
	q.inEngine = true
	lost, crowded := e.endTurn(&b.turn, nanos, trapped, more)
	if trapped.Kind != outcome.Pending {
		e.cancel(s, func(*job) bool { return true }, poisonedOutcome)
	}
	if gone {
		e.lose("the device said that it is lost")
	}
	q.inEngine = false
	b.crowded = crowded
	if !first {
		q.payBurst(nanos)
		q.tellBurst(ran, lost)
	}
}

// payBurst charges what a burst took, and ends the charge of its being in flight.
func (q *queue) payBurst(nanos int64) {
	b := &q.burst
	q.spin.kept += nanos
	b.took += nanos
	if nanos > 0 {
		_ = q.meter.Spend(uint64(nanos)) // being over the limit shows at the next submission
	}
	q.lease.Give(uint64(b.charged))
	b.charged = 0
}

// burstJob is the i-th job of the burst under way. What was picked twice has one job.
func (q *queue) burstJob(i int) *job {
	j := &q.burst.jobs[i].job
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

// tellBurst counts and completes what a burst ran. After a loss nothing is ok.
func (q *queue) tellBurst(ran int, lost bool) {
	b, s := &q.burst, q.session
	launches, ok := 0, uint64(0)
	for i := range b.ends[:ran] {
		t, x := &q.batch.Entries[q.begun], &b.ends[i]
		q.begun++
		if t.Op == ring.OpLaunch {
			launches++
			if s.dev.cfg.LaunchRecords != 0 {
				s.countLaunch(&b.jobs[i].job.work)
			}
		}
		if lost {
			x.Outcome = lostOutcome
		}
		c := q.tell()
		if x.Outcome.Kind == outcome.OK { // which says all: see endBurst
			ok++
			c.SetOK(t.UserData, uint64(x.DeviceTime))
		} else {
			*c = ring.Completion{UserData: t.UserData, Outcome: x.Outcome}
			q.countEnd(x.Outcome)
			q.group = outcome.Worse(q.group, x.Outcome)
		}
	}
	s.ended[outcome.OK].Add(ok)
	if s.dev.cfg.LaunchRecords == 0 {
		s.launches.Add(uint64(launches))
	}
}

// leaveTurn gives the turn back unused, if the queue has it, and forgets that it was
// refused, if it was.
func (q *queue) leaveTurn() {
	switch j := &q.burst.turn; j.state.Load() {
	case jobSent:
		q.session.dev.engine.endTurn(j, 0, outcome.Outcome{}, false)
	case jobEnded:
		j.state.Store(jobFree)
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
