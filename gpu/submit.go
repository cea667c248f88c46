package gpu

import (
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

// mayTake reports whether the next entry could be dealt with now.
func (q *queue) mayTake() bool {
	return q.waiting == nil && q.tail-q.head < uint64(len(q.jobs))
}

// take takes entries from the ring and gives their work to the engine. The error
// is the client's breach of the ring protocol.
func (q *queue) take() (took bool, err error) {
	if q.armed {
		return false, nil
	}
	var head, tail *job
	for n := 0; n < takeBatch && q.mayTake(); n++ {
		ok, takeErr := q.ring.Take(&q.entry)
		if err = takeErr; err != nil || !ok {
			break
		}
		took = true
		j := q.nextJob(&q.entry)
		if q.discard > 0 {
			q.discardOne(j, cancelledOutcome)
			continue
		}
		if q.begin(j, &q.entry) {
			if tail == nil {
				head = j
			} else {
				tail.next = j
			}
			tail = j
		}
	}
	if took {
		q.ring.Consumed()
	}
	if head != nil {
		q.inEngine = true
		q.session.dev.engine.enqueue(q, head, tail)
		q.inEngine = false
	}
	return took, err
}

// nextJob is a clean job for the next position.
func (q *queue) nextJob(e *ring.Entry) *job {
	slot := &q.jobs[q.tail%uint64(len(q.jobs))]
	q.tail++
	if *slot == nil || (*slot).unended {
		*slot = &job{queue: q}
	}
	j := *slot
	j.op, j.userData = e.Op, e.UserData
	j.how, j.atLeast, j.deviceTime, j.code, j.available = outcome.Outcome{}, outcome.Success, 0, gpuerr.None, 0
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
	j.inFlight.Release()
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
func (q *queue) begin(j *job, e *ring.Entry) bool {
	s := q.session
	var err error
	if j.inFlight, err = s.account.Reserve(ledger.InFlight, 1); err != nil {
		j.refuseFor(err)
		return false
	}
	if err := ring.Check(e, q.argBytes); err != nil {
		j.refuseFor(err)
		return false
	}
	switch e.Op {
	case ring.OpNop:
		j.end(outcome.Success)
	case ring.OpSignal:
		q.beginSignal(j, e)
	case ring.OpWait:
		q.beginWait(j, e)
	case ring.OpLaunch, ring.OpCopy, ring.OpFill:
		return q.beginWork(j, e)
	default: // OpReplay: nothing records lists
		j.refuse(gpuerr.Unimplemented)
	}
	return false
}

// beginWork resolves device work.
func (q *queue) beginWork(j *job, e *ring.Entry) bool {
	s := q.session
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
	if code := q.resolve(j, e); code != gpuerr.None {
		j.unpin()
		j.refuse(code)
		return false
	}
	if s.unpoisoned() != nil { // only now: what is wrong with an entry is told all the same
		j.unpin()
		j.end(poisonedOutcome)
		return false
	}
	j.budget, j.stall = s.budget(e.DeadlineMicros)
	if e.Op == ring.OpLaunch {
		if n, every := s.launches.Add(1), s.dev.cfg.LaunchRecords; every != 0 && n%every == 0 {
			w := &j.work
			s.dev.auditEvent("launch", s.tenant, "session=%d launch=%d program=%q grid=%d,%d,%d block=%d,%d,%d", s.id, n,
				w.Program.Info().Name, w.Grid.X, w.Grid.Y, w.Grid.Z, w.Block.X, w.Block.Y, w.Block.Z)
		}
	}
	return true
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
	j.fence, j.value = f, e.FenceValue()
	q.waiter.value = j.value
	if how, over := f.wait(&q.waiter); over {
		q.waited(j, how)
	} else {
		q.waiting = j
	}
}

// waited ends a wait. A wait for a point that did not end ok ends cancelled, and
// so does what depends on it.
func (q *queue) waited(j *job, how outcome.Outcome) {
	if how.Kind == outcome.OK {
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
	q.group = outcome.Success
	j.end(how)
}

// complete writes a job's completion and frees it.
func (q *queue) complete(j *job) {
	if j.op != ring.OpSignal || j.code != gpuerr.None {
		q.group = outcome.Worse(q.group, j.how)
	}
	c := &q.completion
	*c = ring.Completion{UserData: j.userData, Outcome: j.how, Code: j.code}
	switch {
	case j.how.Kind == outcome.OK:
		c.DeviceNanos = uint64(j.deviceTime)
	case j.code == gpuerr.Quota:
		c.Available = j.available
	}
	q.session.ended[j.how.Kind].Add(1)
	if j.how.Cause == outcome.TrapCause && q.session.traps.Add(1) == 1 {
		// The first one only; session.close tells how many there were.
		q.session.dev.auditEvent("fault", q.session.tenant, "session=%d cause=%q", q.session.id, j.how)
	}
	j.fence = nil
	j.inFlight.Release()
	j.state.Store(jobFree)
	q.ring.Complete(c)
	q.unflushed = true
}

// flush publishes completions: once per round, so that one wake serves many.
func (q *queue) flush() {
	if q.unflushed {
		q.unflushed = false
		q.ring.Flush()
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
	if whole {
		q.discard = q.ring.Published() // includes what an earlier cancel left
		q.skipping = q.skipping && q.discard > 0
	}
	q.sleeping.Swap(true)
	defer q.sleeping.Store(false)
	for {
		q.retire()
		stuck := !whole
		for !stuck && q.discard > 0 && q.mayTake() {
			ok, err := q.ring.Take(&q.entry)
			if stuck = err != nil || !ok; !stuck {
				q.discardOne(q.nextJob(&q.entry), how)
			}
		}
		q.ring.Consumed()
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

// discardOne ends an entry that was taken and was published before a cancel. With
// the last of them the queue is as if nothing had gone wrong.
func (q *queue) discardOne(j *job, how outcome.Outcome) {
	q.endUnbegun(j, &q.entry, how)
	if q.discard--; q.discard == 0 {
		q.skipping = false
	}
}

// endUnbegun ends an entry that came too late to begin. A signal still ends its
// point: somebody may wait for it.
func (q *queue) endUnbegun(j *job, e *ring.Entry, how outcome.Outcome) {
	if e.Op == ring.OpSignal && ring.Check(e, q.argBytes) == nil {
		if f, err := lookup[fence](q.session.handles, Handle(e.Object)); err == nil && f.promise(e.FenceValue()) == nil {
			j.fence, j.value, j.atLeast = f, e.FenceValue(), how
			return
		}
	}
	j.end(how)
}
