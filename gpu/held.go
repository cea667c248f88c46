package gpu

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// A queue that has the device on loan holds all that it needs for one burst after the other:
// the ring's locks (ring.Server.Serve), the turn (loan.again) and the device (backend.Holder).
// A launch that comes is then run and told with next to no locked instruction on its way, of
// which each takes some 5 ns, and it had more than ten. Of what the ring knows travels a byte.
//
//	take ─► known, and found open in this hold? ─► charge ─► BurstHeld ─► all ok? ─► tell
//	           └─ if not: what was held is given back, and burst.go does it
//
// What is checked before each burst, but for poison, is checked once in a hold, which is some
// microseconds: whatever could change it in the midst calls the loan back. What a burst took is
// charged, and counted, when its client was told; who reads the books waits for that (awaitHold).
//
// All that is held is given back when the loan is called back, which is looked at each time
// that the ring is, when there was nothing for one round of looks, and after keptQuick. So who
// calls it back waits for one burst at most, as without.
//
// What was found open once in a hold may be used for all of it: whoever closes it waits then
// until the turn is over (engine.awaitTurn), and it is not before the hold is.
//
// A queue that has no loan, as those that a sweeper serves, for each has the turn after another
// one, holds all that for turnBursts, by a turn that it asks for and has at once. What a burst
// took is charged and counted before its client is told, as in burst.go.
type holding struct {
	ring   *ring.Server    // nil: nothing is held
	holder backend.Holder  // nil: the same
	ran    int             // of the burst that is the caller's to end
	bursts int             // that were run and told
	byTurn bool            // and not by the loan
	last   outcome.Outcome // of the last one that was run
	// Of the one that was told last.
	nanos          int64 // that are not the loan's yet
	before         int64 // of earlier ones of the same turn, if it is no loan
	launches, told uint64
}

// init is called before the queue's goroutine starts.
func (h *holding) init(q *queue) {
	h.ring, _ = q.ring.(*ring.Server)
	h.holder, _ = q.session.dev.engine.burster.(backend.Holder)
}

// mayHold reports whether the queue could hold all that now, if it had the turn: only where
// there is nothing but bursts to do.
func (q *queue) mayHold() bool {
	b := &q.burst
	return b.held.ring != nil && b.held.holder != nil && b.replay == nil &&
		q.head == q.tail && q.mayFetch() && q.discard == 0 && !q.skipping && len(q.told) == 0 && !q.unflushed && len(q.spoilt) == 0 &&
		q.session.dev.cfg.LaunchRecords == 0
}

// hold serves the ring as long as there is something within so many looks, and reports what it
// ran, and whether it could. Of what it has taken and not run entries are left.
func (q *queue) hold(spins int) (bursts int, could bool, err error) {
	b := &q.burst
	h := &b.held
	if b.turn.state.Load() != jobFree || !b.loan.begin() {
		return 0, false, nil
	}
	could, err = q.serveHeld(spins, false)
	switch {
	case h.ran > 0:
		q.endBurst(h.ran)
	case b.loan.runs != 0 && !b.loan.rest():
		q.endHold(h.nanos)
	}
	return h.bursts, could, err
}

// holdTurn is hold of a queue that has no loan, by a turn, for turnBursts at most.
func (q *queue) holdTurn() (bursts int, could bool, err error) {
	b := &q.burst
	h := &b.held
	if state := b.turn.state.Load(); state != jobSent && (state != jobFree || !q.askTurn()) {
		return 0, false, nil
	}
	could, err = q.serveHeld(0, true)
	switch {
	case h.ran > 0:
		q.endBurst(h.ran)
	case h.bursts > 0:
		q.endHold(h.turnTook(0))
	} // else the turn is for what is left, if it is, and take gives it back
	return h.bursts, could, err
}

// askTurn asks for the turn, and reports whether the queue has it.
func (q *queue) askTurn() (has bool) {
	q.inEngine = true // and stays so if that panics
	has = q.session.dev.engine.askTurn(&q.burst.turn)
	q.inEngine = false
	return has
}

// turnTook is what a turn took that is about to end, whose last burst took so long.
func (h *holding) turnTook(nanos int64) (all int64) {
	all, h.before = h.before+nanos, 0
	return all
}

// endHold ends the turn of a hold, for what took so long.
func (q *queue) endHold(nanos int64) {
	q.inEngine = true
	_, q.burst.crowded = q.session.dev.engine.endTurn(&q.burst.turn, nanos, outcome.Outcome{}, comesAgain)
	q.inEngine = false
}

// serveHeld is hold with the turn.
func (q *queue) serveHeld(spins int, byTurn bool) (could bool, err error) {
	h, s := &q.burst.held, q.session
	h.ran, h.nanos, h.bursts, h.told, h.byTurn = 0, 0, 0, 0, byTurn
	if q.bidden() || s.banned() != nil || s.account.CanSpend(ledger.DeviceTime) != nil || !h.holder.Hold() {
		return false, nil
	}
	defer h.holder.Release()
	q.forBurst() // a queue that only sweepers have served has never needed it
	q.begun = 0
	q.batch.Kept = q.burst.memo.known
	left, err := h.ring.Serve(q.batch, len(q.jobs), spins, q)
	q.taken += uint64(left)
	if h.told > 0 { // the ring ended before it could be told
		q.settleHeld()
	}
	return true, err
}

// Served implements ring.Servant.
func (q *queue) Served(named []uint8) []uint64 {
	b, s := &q.burst, q.session
	h, n := &b.held, len(named)
	if !q.Goes() || s.spoils.active.Load() || s.unpoisoned() != nil || !q.pickNamed(named) || !q.chargeBurst(n) {
		return nil
	}
	if !h.byTurn || h.bursts > 0 {
		b.turn.work.ID += maxBurst
	}
	q.inEngine = true
	ran := q.burstHeld(n)
	q.inEngine = false
	q.burstRan()
	took := q.nanos[:ran]
	h.nanos = clampAll(took, s.dev.cfg.HangBound)
	if ran < n || h.last != outcome.Success || s.dev.isLost.Load() {
		q.spellBurst(named[:ran])
		if h.launches, h.ran = 0, ran; ran == 0 {
			q.freeBurst()
		}
		return nil
	}
	q.freeBurst()
	q.taken += uint64(n)
	h.told = uint64(n)
	if h.byTurn {
		q.settleHeld()
		h.before += h.nanos
	}
	q.burstCounted()
	return took
}

// clampAll bounds what a backend says of each of some jobs, and returns the sum.
func clampAll(nanos []uint64, most time.Duration) (sum int64) {
	for i, n := range nanos {
		n = min(n, uint64(most))
		nanos[i] = n
		sum += int64(n)
	}
	return sum
}

// pickNamed is pick and mayStill of what is known to the ring. It reports whether all of it can
// be run.
func (q *queue) pickNamed(named []uint8) bool {
	b, now := &q.burst, q.session.dev.engine.closings.Load()
	ready := q.ready[:len(named)]
	var last *resolved
	expected, launches, launch := int64(0), uint64(0), uint64(0)
	for i, slot := range named {
		r := b.memo.slots[slot] // which has what the ring knows of it, this version
		if r != last {
			if r.fitness != fit || !r.openSince(now) {
				return false
			}
			if launch = 0; ring.Op(r.known.Words[0]) == ring.OpLaunch {
				launch = 1
			}
			last = r
		}
		expected += r.nanos
		launches += launch
		ready[i] = r.ready
	}
	b.memo.last, b.held.launches = last, launches
	return expected <= maxBurstNanos || len(named) == 1
}

// burstHeld calls the backend.
func (q *queue) burstHeld(n int) (ran int) {
	e, b := q.session.dev.engine, &q.burst
	defer (&guardedBackend{e.backend, e}).caught("BurstHeld", nil)
	return b.held.holder.BurstHeld(b.turn.work.ID, q.ready[:n], q.nanos[:n], &b.held.last)
}

// spellBurst says for endBurst what was run, and how it ended.
func (q *queue) spellBurst(ran []uint8) {
	b := &q.burst
	for i, slot := range ran {
		q.picked[i] = b.memo.slots[slot]
		q.ends[i] = backend.End{Outcome: outcome.Success, DeviceTime: time.Duration(q.nanos[i])}
	}
	if n := len(ran); n > 0 {
		q.ends[n-1].Outcome = b.held.last
	}
}

// Told implements ring.Servant.
func (q *queue) Told() bool {
	b := &q.burst
	q.burstTold()
	b.unseen = 0
	h, s := &b.held, q.session
	if h.byTurn {
		return h.bursts < turnBursts && h.before < sweepNanos
	}
	q.settleHeld()
	q.spin.kept += keptLook
	if !b.loan.again(h.nanos) {
		return false
	}
	h.nanos = 0
	return q.spin.kept < keptQuick && !q.crowd.swept.Load() && s.account.CanSpend(ledger.DeviceTime) == nil
}

// settleHeld charges and counts the burst that was told last.
func (q *queue) settleHeld() {
	h, s := &q.burst.held, q.session
	q.payBurst(h.nanos)
	if h.launches > 0 {
		s.launches.Add(h.launches)
	}
	s.ended[outcome.OK].Add(h.told)
	h.told = 0
	h.bursts++
}

// awaitHold waits until the books have what a queue has told that holds the device, if it is
// one of that tenant, or with no name of any.
func (e *engine) awaitHold(tenant string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.turn.holder
	if j != nil && j.queue.burst.loan.word.Load()&loanRuns != 0 && (tenant == "" || tenant == j.queue.session.tenant.name) {
		e.awaitTurnLocked()
	}
}

// Goes implements ring.Servant.
func (q *queue) Goes() bool { return q.burst.held.byTurn || q.burst.loan.goes() }
