package gpu

import (
	"capgpu/gpu/backend"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// A queue that has the device on loan and looks at its ring holds all that it needs for the
// next burst meanwhile: the ring's locks (ring.Server.Serve), the turn (loan.again) and the
// device (backend.Holder). A launch that comes is then run and told with next to no locked
// instruction on its way, of which each takes some 5 ns, and it had more than ten.
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
type holding struct {
	ring   *ring.Server   // nil: nothing is held
	holder backend.Holder // nil: the same
	ran    int            // of the burst that is the caller's to end
	bursts int            // that were run and told
	// Of the one that was told last.
	nanos          int64 // that are not the loan's yet
	launches, told uint64
}

// init is called before the queue's goroutine starts.
func (h *holding) init(q *queue) {
	h.ring, _ = q.ring.(*ring.Server)
	h.holder, _ = q.session.dev.engine.burster.(backend.Holder)
}

// mayHold reports whether the queue could hold all that now: only where there is nothing but
// bursts to do.
func (q *queue) mayHold() bool {
	b := &q.burst
	return b.held.ring != nil && b.held.holder != nil && b.loan.word.Load() != 0 && b.turn.state.Load() == jobFree && b.replay == nil &&
		q.head == q.tail && q.mayFetch() && q.discard == 0 && !q.skipping && len(q.told) == 0 && !q.unflushed && len(q.spoilt) == 0 &&
		!q.crowd.swept.Load() && q.session.dev.cfg.LaunchRecords == 0
}

// hold serves the ring as long as there is something within so many looks, and reports what it
// ran, and whether it could. Of what it has taken and not run entries are left.
func (q *queue) hold(spins int) (bursts int, could bool, err error) {
	b := &q.burst
	h := &b.held
	if !b.loan.begin() {
		return 0, false, nil
	}
	h.ran, h.nanos, h.bursts, h.told = 0, 0, 0, 0
	if s := q.session; !q.bidden() && s.banned() == nil && s.account.CanSpend(ledger.DeviceTime) == nil {
		could, err = q.serveHeld(spins)
	}
	if h.told > 0 { // the ring ended before it could be told
		q.settleHeld()
	}
	switch {
	case h.ran > 0:
		q.endBurst(h.ran)
	case b.loan.runs != 0 && !b.loan.rest():
		q.inEngine = true
		_, b.crowded = q.session.dev.engine.endTurn(&b.turn, h.nanos, outcome.Outcome{}, comesAgain)
		q.inEngine = false
	}
	return h.bursts, could, err
}

// serveHeld is hold with the turn.
func (q *queue) serveHeld(spins int) (could bool, err error) {
	h := &q.burst.held
	if !h.holder.Hold() {
		return false, nil
	}
	defer h.holder.Release()
	q.begun = 0
	q.batch.Kept = q.burst.memo.known
	_, err = h.ring.Serve(q.batch, len(q.jobs), spins, q)
	return true, err
}

// Served implements ring.Servant.
func (q *queue) Served() []uint64 {
	b, s := &q.burst, q.session
	entries := q.batch.Entries
	q.taken += uint64(len(entries))
	q.begun = 0
	if !b.loan.goes() || s.spoils.active.Load() || s.unpoisoned() != nil {
		return nil
	}
	expected, launches := int64(0), uint64(0)
	now := s.dev.engine.closings.Load()
	for i := range entries {
		t := &entries[i]
		if t.Known == nil {
			return nil
		}
		r := b.memo.slots[t.Slot]
		if r.fitness != fit || r.known.Version != t.Version {
			return nil
		}
		if !r.openSince(now) {
			return nil
		}
		if expected += r.nanos; expected > maxBurstNanos && i > 0 {
			return nil
		}
		if t.Op == ring.OpLaunch {
			launches++
		}
		q.picked[i], q.ready[i] = r, r.ready
	}
	n := len(entries)
	if !q.chargeBurst(n) {
		return nil
	}
	b.turn.work.ID += maxBurst
	q.inEngine = true
	ran := q.burstHeld(n)
	q.inEngine = false
	q.burstRan()
	nanos, sound := int64(0), ran == n
	most := s.dev.cfg.HangBound
	for i := range q.ends[:ran] {
		x := &q.ends[i]
		took := int64(min(max(x.DeviceTime, 0), most))
		nanos += took
		q.nanos[i] = uint64(took)
		sound = sound && x.Outcome == outcome.Success
	}
	if !sound || s.dev.isLost.Load() {
		if b.held.ran = ran; ran == 0 {
			q.freeBurst()
		}
		return nil
	}
	q.freeBurst()
	b.held.nanos, b.held.launches, b.held.told = nanos, launches, uint64(n)
	q.burstCounted()
	return q.nanos[:n]
}

// burstHeld calls the backend.
func (q *queue) burstHeld(n int) (ran int) {
	e, b := q.session.dev.engine, &q.burst
	defer (&guardedBackend{e.backend, e}).caught("BurstHeld", nil)
	return b.held.holder.BurstHeld(b.turn.work.ID, q.ready[:n], q.ends[:n])
}

// Told implements ring.Servant.
func (q *queue) Told() bool {
	b := &q.burst
	q.burstTold()
	q.begun, b.unseen = 0, 0
	h, s := &b.held, q.session
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
func (q *queue) Goes() bool { return q.burst.loan.goes() }
