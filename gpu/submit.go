package gpu

import (
	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// mayBegin reports whether an entry could be begun: no wait holds the queue, and there is a
// position for a job.
func (q *queue) mayBegin() bool {
	return q.intake.waiting == nil && q.tail-q.head < uint64(len(q.jobs))
}

// mayFetch reports whether the ring could be looked at for the next entries.
func (q *queue) mayFetch() bool { return !q.left() && q.mayBegin() }

// left reports whether entries were taken from the ring and not begun.
func (q *queue) left() bool {
	return q.intake.batch != nil && q.intake.begun < len(q.intake.batch.Entries)
}

// fetch takes entries from the ring, not more than there are positions for. The error is
// the client's breach of the ring protocol.
func (q *queue) fetch(most int) (n int, err error) {
	if !q.mayFetch() {
		return 0, nil
	}

	in, r := &q.intake, q.session.dev.reactor
	if in.batch == nil {
		in.batch = r.batches.get(q.mostArgs)
	}

	in.begun = 0
	n, err = q.ring.TakeMany(in.batch, min(most, len(q.jobs)-int(q.tail-q.head)))
	in.taken += uint64(len(in.batch.Entries))
	q.giveBatch()

	return n, err
}

// giveBatch gives the batch back when nothing is left in it.
func (q *queue) giveBatch() {
	if in := &q.intake; in.batch != nil && !q.left() {
		q.session.dev.reactor.batches.put(in.batch, q.mostArgs)
		in.batch = nil
	}
}

// take begins the entries of one look at the ring. It reports whether there were any.
func (q *queue) take() (took bool, err error) {
	if !q.left() {
		if _, err = q.fetch(ring.BatchEntries); err != nil {
			return false, err
		}
	}

	in, r := &q.intake, q.session.dev.reactor
	for q.left() && q.mayBegin() {
		t := &in.batch.Entries[in.begun]
		in.begun++
		took = true
		switch j := q.nextJob(t); {
		case in.discard > 0:
			q.discardOne(j, t, cancelledOutcome)
		case q.begin(j, t):
			r.books++
			r.share.pushReady(j)
			r.books--
		}
	}

	q.giveBatch()
	if took {
		q.look() // a signal may be the head
	}
	return took, nil
}

// nextJob is a clean job for the next position.
func (q *queue) nextJob(t *ring.Taken) *job {
	slot := &q.jobs[q.tail%uint64(len(q.jobs))]
	q.tail++

	if *slot == nil || (*slot).lent {
		*slot = &job{queue: q}
	}

	j := *slot
	j.op, j.user = t.Op, t.UserData
	j.ended = ended{}
	j.atLeast = outcome.Success
	j.flight = flight{}
	j.short.asked, j.work.From, j.work.Ready = false, 0, nil
	j.pos = q.intake.taken - uint64(len(q.intake.batch.Entries)-q.intake.begun) - 1
	j.next = nil
	j.state = jobHeld

	return j
}

// begin charges an entry, checks it and starts it. True means that it is work for
// the device.
func (q *queue) begin(j *job, t *ring.Taken) bool {
	crashpoint.Here("driver.submit.taken")
	skips := &q.intake.skipping
	if err := q.lease.Take(1); err != nil {
		*skips = *skips || t.Op == ring.OpWait // see beginWait
		j.refuseFor(err)
		return false
	}

	j.charged = true
	crashpoint.Here("driver.submit.charged")

	if t.Code != gpuerr.None {
		*skips = *skips || t.Op == ring.OpWait
		j.refuse(t.Code)
		return false
	}

	e := &t.Entry
	switch e.Op {
	case ring.OpNop:
		j.end(outcome.Success)
	case ring.OpSignal:
		q.beginSignal(j, e)
	case ring.OpWait:
		q.beginWait(j, e)
	default:
		return q.beginWork(j, t)
	}
	return false
}

// beginWork resolves device work.
func (q *queue) beginWork(j *job, t *ring.Taken) bool {
	s, e := q.session, &t.Entry
	if e.Op == ring.OpLaunch && s.facet < FacetProgram {
		j.refuse(gpuerr.Unimplemented)
		return false
	}

	if q.intake.skipping {
		j.end(dependentOutcome)
		return false
	}

	if err := s.banned(); err != nil {
		j.refuseFor(err)
		return false
	}

	if err := s.account.CanSpend(ledger.DeviceTime); err != nil {
		j.refuseFor(err)
		return false
	}

	if code := q.resolve(j, t); code != gpuerr.None {
		j.letGo()
		j.refuse(code)
		return false
	}

	// Only now: what is wrong with an entry is told all the same.
	switch {
	case s.unpoisoned() != nil:
		j.letGo()
		j.end(poisonedOutcome)
		return false
	case q.depends(j.pos):
		j.letGo()
		j.end(dependentOutcome)
		return false
	}

	crashpoint.Here("driver.submit.resolved")
	j.budget, j.stall = s.budget(e.DeadlineMicros)

	if e.Op == ring.OpLaunch {
		s.countLaunch(&j.work)
	}
	return true
}

// countLaunch counts a launch, and records every so many.
func (s *Session) countLaunch(w *backend.Job) {
	if n, every := s.launches.Add(1), s.dev.cfg.LaunchRecords; every != 0 && n%every == 0 {
		s.dev.auditEvent("launch", s.tenant, "session=%d launch=%d program=%q grid=%d,%d,%d block=%d,%d,%d", s.id, n,
			w.Program.Info().Name, w.Grid.X, w.Grid.Y, w.Grid.Z, w.Block.X, w.Block.Y, w.Block.Z)
	}
}

// beginSignal promises the point; it ends when the signal is retired.
func (q *queue) beginSignal(j *job, e *ring.Entry) {
	f, err := handles.Lookup[fence](q.session.handles, Handle(e.Object))
	if err == nil {
		err = f.promise(e.FenceValue())
	}

	if err != nil {
		j.refuseFor(err)
		return
	}

	j.fence, j.value = f, e.FenceValue()
	q.intake.skipping = false // what follows is not covered by the wait that failed
}

// beginWait holds the queue, unless the point is reached.
func (q *queue) beginWait(j *job, e *ring.Entry) {
	in := &q.intake
	if in.skipping {
		j.end(dependentOutcome)
		return
	}

	f, err := handles.Lookup[fence](q.session.handles, Handle(e.Object))
	if err != nil {
		// Running what was to wait would be worse than not running it.
		j.refuseFor(err)
		in.skipping = true
		return
	}

	j.fence, j.value, j.orderOnly = f, e.FenceValue(), e.OrderOnly()
	q.waitFor(j)
}

// waitFor has a wait hold the queue, unless it is over.
func (q *queue) waitFor(j *job) {
	in := &q.intake
	in.waiter.value = j.value
	if how, over := j.fence.wait(&in.waiter); over {
		q.waited(j, how)
	} else {
		in.waiting = j
	}
}

// waited ends a wait. A wait for a point that did not end ok ends cancelled, and
// so does what depends on it, unless it is for the order alone.
func (q *queue) waited(j *job, how outcome.Outcome) {
	if how.Kind == outcome.OK || j.orderOnly {
		j.end(outcome.Success)
		return
	}
	q.intake.skipping = true
	j.end(dependentOutcome)
}
