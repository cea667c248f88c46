package gpu

import (
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// mayFetch reports whether the ring could be looked at for the next entries.
func (q *queue) mayFetch() bool {
	return !q.armed && !q.left() && q.waiting == nil && q.tail-q.head < uint64(len(q.jobs))
}

// left reports whether entries were taken from the ring and not begun.
func (q *queue) left() bool { return q.begun < len(q.batch.Entries) }

// fetch takes entries from the ring, at most so many, and not more than there are positions
// for. The error is the client's breach of the ring protocol.
func (q *queue) fetch(most int) (n int, err error) {
	if !q.mayFetch() {
		return 0, nil
	}
	q.begun = 0
	n, err = q.ring.TakeMany(q.batch, min(most, len(q.jobs)-int(q.tail-q.head)))
	q.taken += uint64(len(q.batch.Entries))
	return n, err
}

// take begins entries one by one; work goes to the engine.
func (q *queue) take() (took bool, err error) {
	if _, err := q.fetch(len(q.jobs)); err != nil {
		return false, err
	}
	var head, tail *job
	for q.left() && q.waiting == nil {
		t := &q.batch.Entries[q.begun]
		q.begun++
		took = true
		j := q.nextJob(t)
		if q.discard > 0 {
			q.discardOne(j, t, cancelledOutcome)
			continue
		}
		if q.begin(j, t) {
			if tail == nil {
				head = j
			} else {
				tail.next = j
			}
			tail = j
		} else if j.how.Kind != outcome.OK {
			q.spoilEntry(j, t)
		}
	}
	if head != nil {
		q.inEngine = true
		q.session.dev.engine.enqueue(q, head, tail)
		q.inEngine = false
	}
	return took, nil
}

// nextJob is a clean job for the next position.
func (q *queue) nextJob(t *ring.Taken) *job {
	slot := &q.jobs[q.tail%uint64(len(q.jobs))]
	q.tail++
	if *slot == nil || (*slot).unended {
		*slot = &job{queue: q}
	}
	j := *slot
	j.op, j.userData = t.Op, t.UserData
	j.how, j.atLeast, j.deviceTime, j.code, j.available, j.launched = outcome.Outcome{}, outcome.Success, 0, gpuerr.None, 0, 0
	j.pos, j.spoiled = q.taken-uint64(len(q.batch.Entries)-q.begun)-1, nil
	j.next = nil
	j.state.Store(jobHeld)
	return j
}

// end ends a job that the core itself deals with.
func (j *job) end(how outcome.Outcome) {
	j.how = how
	j.state.Store(jobEnded)
}

// refuse ends a job that was not begun: it is charged nothing.
func (j *job) refuse(code gpuerr.Code) {
	j.discharge()
	if !j.queue.session.node.Live() { // what it names may be gone only because of that
		j.end(revokedOutcome)
		return
	}
	j.code = code
	how := outcome.Outcome{Kind: outcome.Failed}
	if code == gpuerr.LaunchLimit {
		how.Cause = outcome.LaunchLimit
	}
	j.end(how)
}

// refuseFor is refuse with the operands of an error.
func (j *job) refuseFor(err error) {
	e := gpuerr.From(err)
	j.available = e.Available
	j.refuse(e.Code)
}

// begin charges an entry, checks it and starts it. True means that it is work for
// the engine.
func (q *queue) begin(j *job, t *ring.Taken) bool {
	crashpoint.Here("driver.submit.taken")
	if err := q.lease.Take(1); err != nil {
		q.skipping = q.skipping || t.Op == ring.OpWait // see beginWait
		j.refuseFor(err)
		return false
	}
	j.charged = true
	crashpoint.Here("driver.submit.charged")
	if t.Code != gpuerr.None {
		q.skipping = q.skipping || t.Op == ring.OpWait
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
	if q.skipping {
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
		j.unpin()
		j.refuse(code)
		return false
	}
	if s.unpoisoned() != nil { // only now: what is wrong with an entry is told all the same
		j.unpin()
		j.end(poisonedOutcome)
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
	f, err := lookup[fence](q.session.handles, Handle(e.Object))
	if err == nil {
		err = f.promise(e.FenceValue())
	}
	if err != nil {
		j.refuseFor(err)
		return
	}
	j.fence, j.value = f, e.FenceValue()
	q.skipping = false // what follows is not covered by the wait that failed
}

// beginWait holds the queue, unless the point is reached.
func (q *queue) beginWait(j *job, e *ring.Entry) {
	if q.skipping {
		j.end(dependentOutcome)
		return
	}
	f, err := lookup[fence](q.session.handles, Handle(e.Object))
	if err != nil {
		// Running what was to wait would be worse than not running it.
		j.refuseFor(err)
		q.skipping = true
		return
	}
	j.fence, j.value, j.orderOnly = f, e.FenceValue(), e.OrderOnly()
	q.waiter.value = j.value
	if how, over := f.wait(&q.waiter); over {
		q.waited(j, how)
	} else {
		q.waiting = j
	}
}

// waited ends a wait. A wait for a point that did not end ok ends cancelled, and
// so does what depends on it, unless it is for the order alone.
func (q *queue) waited(j *job, how outcome.Outcome) {
	if how.Kind == outcome.OK || j.orderOnly {
		j.end(outcome.Success)
		return
	}
	q.skipping = true
	j.end(dependentOutcome)
}

// headEnded reports whether retire would get anywhere.
func (q *queue) headEnded() bool {
	return q.head < q.tail && q.jobs[q.head%uint64(len(q.jobs))].state.Load() == jobEnded
}

// retire completes entries in queue order, as far as they have ended.
func (q *queue) retire() bool {
	if j := q.waiting; j != nil {
		if how, over := j.fence.look(j.value); over {
			j.fence.forget(&q.waiter)
			q.waiting = nil
			q.waited(j, how)
		}
	}
	from := q.head
	for q.head < q.tail {
		j := q.jobs[q.head%uint64(len(q.jobs))]
		switch {
		case j.state.Load() == jobEnded:
		case j.op == ring.OpSignal: // all before it has ended
			q.signal(j)
		default:
			return q.head != from
		}
		q.complete(j)
		q.head++
	}
	return q.head != from
}

// signal reaches the point with the worst outcome of the work it covers.
func (q *queue) signal(j *job) {
	how := outcome.Worse(q.group, j.atLeast)
	if !j.fence.end(j.value, how) { // the fence ended before
		how = outcome.Worse(how, revokedOutcome)
	}
	crashpoint.Here("driver.fence.ended")
	q.group = outcome.Success
	j.end(how)
}

// complete writes a job's completion and frees it.
func (q *queue) complete(j *job) {
	if j.op != ring.OpSignal || j.code != gpuerr.None {
		q.group = outcome.Worse(q.group, j.how)
	}
	c := q.tell()
	*c = ring.Completion{UserData: j.userData, Outcome: j.how, Code: j.code}
	switch {
	case j.how.Kind == outcome.OK:
		c.DeviceNanos = uint64(j.deviceTime)
	case j.code == gpuerr.Quota:
		c.Available = j.available
	}
	q.countEnd(j.how)
	if j.launched > 0 {
		q.session.replayed(j)
	}
	if j.spoiled != nil {
		q.spoilt = append(q.spoilt, j.spoiled)
		j.spoiled = nil
	}
	j.fence = nil
	j.discharge()
	j.state.Store(jobFree)
}

// countEnd counts how an entry ended.
func (q *queue) countEnd(how outcome.Outcome) {
	q.session.ended[how.Kind].Add(1)
	if how.Cause == outcome.TrapCause && q.session.traps.Add(1) == 1 {
		// The first one only; session.close tells how many there were.
		q.session.dev.auditEvent("fault", q.session.tenant, "session=%d cause=%q", q.session.id, how)
	}
}

// tell is the next completion for the ring, to be filled in.
func (q *queue) tell() *ring.Completion {
	n := len(q.told)
	if n == cap(q.told) {
		q.write()
		n = 0
	}
	q.told = q.told[:n+1]
	return &q.told[n]
}

// write writes completions to the ring, which the client does not see yet.
func (q *queue) write() {
	if q.told == nil {
		q.told = make([]ring.Completion, 0, toldAtOnce)
	}
	if len(q.told) > 0 {
		q.ring.CompleteMany(q.told)
		q.told = q.told[:0]
		q.unflushed = true
	}
}

// flush publishes completions: once per round, so that one wake serves many.
func (q *queue) flush() {
	if len(q.told) > 0 || q.unflushed {
		crashpoint.Here("driver.completion.told")
		if len(q.spoilt) > 0 {
			q.publishSpoils()
		} else {
			q.ring.Publish(q.told)
		}
		crashpoint.Here("driver.completion.published")
		q.told, q.unflushed = q.told[:0], false
	}
}

// drain ends everything taken, and with whole everything published until now, and
// returns when all of it has ended that has room for its completion. It is bounded
// by the engine's ladder. Entries without such room are not taken, and left to take,
// which ends them as soon as they can be: nothing of them runs.
func (q *queue) drain(how outcome.Outcome, whole bool) {
	q.disarm()
	q.inEngine = true
	q.session.dev.engine.cancel(q.session, func(j *job) bool { return j.queue == q }, how)
	q.inEngine = false
	if j := q.waiting; j != nil {
		j.fence.forget(&q.waiter)
		q.waiting = nil
		j.end(how)
	}
	for j := q.head; j < q.tail; j++ {
		if s := q.jobs[j%uint64(len(q.jobs))]; s.op == ring.OpSignal && s.state.Load() != jobEnded {
			s.atLeast = how
		}
	}
	q.discard = len(q.batch.Entries) - q.begun
	if whole {
		q.discard += q.ring.Published() // includes what an earlier cancel left
		q.skipping = q.skipping && q.discard > 0
	}
	q.sleeping.Swap(true)
	defer q.sleeping.Store(false)
	for {
		q.retire()
		stuck := q.discardAll(how)
		q.flush()
		switch {
		case q.headEnded():
		case q.head < q.tail && q.jobs[q.head%uint64(len(q.jobs))].op == ring.OpSignal:
		case q.head < q.tail:
			<-q.wake
		case stuck || q.discard == 0:
			return
		}
	}
}

// discardAll ends what is to be discarded, as far as there is room. stuck says that there
// is none in the ring.
func (q *queue) discardAll(how outcome.Outcome) (stuck bool) {
	for q.discard > 0 {
		if n, err := q.fetch(q.discard); err != nil || n == 0 && !q.left() {
			return err != nil || q.mayFetch()
		}
		for q.discard > 0 && q.left() {
			t := &q.batch.Entries[q.begun]
			q.begun++
			q.discardOne(q.nextJob(t), t, how)
		}
	}
	return false
}

// discardOne ends an entry that was taken and was published before a cancel. With
// the last of them the queue is as if nothing had gone wrong.
func (q *queue) discardOne(j *job, t *ring.Taken, how outcome.Outcome) {
	q.endUnbegun(j, t, how)
	if q.discard--; q.discard == 0 {
		q.skipping = false
	}
}

// endUnbegun ends an entry that came too late to begin. A signal still ends its
// point: somebody may wait for it.
func (q *queue) endUnbegun(j *job, t *ring.Taken, how outcome.Outcome) {
	if e := &t.Entry; e.Op == ring.OpSignal && t.Code == gpuerr.None {
		if f, err := lookup[fence](q.session.handles, Handle(e.Object)); err == nil && f.promise(e.FenceValue()) == nil {
			j.fence, j.value, j.atLeast = f, e.FenceValue(), how
			return
		}
	}
	j.end(how)
	q.spoilEntry(j, t)
}
