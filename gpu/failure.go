package gpu

import (
	"capgpu/outcome"
)

// Work that does not end ok may be what other work of its session builds on, and nobody
// tracks which. So it takes along what the session had published before it was told, and
// what has not begun:
//
//	work ends, not ok             ─► what comes after it in its queue ends as dependent
//	it is next to be told         ─► what its session has waiting for the device does, too
//	its completion is published   ─► and so does what was published until then
//	what is published later runs: the client may know, and decides
//
// Work of the same session that the device had behind the failure ends as dependent as
// well, whatever the device says of it: it may have read half a result. Work that ended
// as dependent takes nothing along: the failure before it did. A trap needs none of this:
// it ends all that its session has (poison.go).

// failures are those of a session. The reactor's.
type failures struct {
	round  uint64 // of its work on the device, from 0: see backend.Context
	untold int    // that are next to be told, with completions that are not published
}

// fail notes that work did not end ok.
func (j *job) fail() {
	q, s := j.queue, j.session()
	// The device knows best whether it has begun it: it begins no more of that round then.
	if f := &j.flight; f.order != 0 && (f.begun || s.context.Over(j.work.Round)) {
		f.begun = true
		s.failures.round = max(s.failures.round, j.work.Round)
	}
	if j.how == dependentOutcome || j.discarded || s.poison.Load() != nil || s.dev.isLost.Load() || !s.node.Live() {
		return // the failure that it depends on did, its client asked for it, or all of the session ends
	}

	j.failed = true
	q.intake.failed++
	r := s.dev.reactor
	finishAll(r.unready(q, func(k *job) bool { return k.pos > j.pos }), dependentOutcome)
	for at := q.head; at < q.tail; at++ { // what the device did out of order
		if k := q.jobs[at%uint64(len(q.jobs))]; k.pos > j.pos && k.state == jobEnded && k.isWork() && k.how.Kind == outcome.OK {
			k.how = dependentOutcome
		}
	}

	r.doubt(j)
}

// doubt has what the device may have begun behind a job end as dependent: what comes after
// it in its queue, and if it had begun, all of its session.
func (r *reactor) doubt(j *job) {
	any := false
	for k := r.sent.newest; k != nil && k != j; k = k.flight.older {
		if k.queue == j.queue && k.pos > j.pos || j.flight.begun && k.session() == j.session() && k.flight.order > j.flight.order {
			k.flight.broken, any = true, true
		}
	}

	if any {
		r.stop(j.session(), func(k *job) bool { return k.flight.broken }, dependentOutcome)
	}
}

// depends reports whether work of a queue, at a position of its ring, comes too late to
// begin.
func (q *queue) depends(pos uint64) bool {
	return q.intake.failed > 0 || q.session.failures.untold > 0 || pos < q.intake.doomed
}

// retireFailed follows a failed job that is told next.
func (q *queue) retireFailed(j *job) {
	j.failed = false
	q.intake.failed--
	q.session.failures.untold++
	if q.outlet.failed++; q.outlet.failed == 1 {
		q.outlet.first = j.pos
	}

	for _, other := range q.session.queues {
		finishAll(q.session.dev.reactor.unready(other, anyJob), dependentOutcome)
	}
}

// finishAll ends jobs that did not reach the device.
func finishAll(list jobList, how outcome.Outcome) {
	for j := list.pop(); j != nil; j = list.pop() {
		j.finish(how, 0)
	}
}

// publishFailed publishes completions of which some are of work that failed. The work that
// the client had published by then depends on them. Looking at the rings after publishing
// finds all of it; if the client has collected a failure by then it may have published more,
// and looking before tells what it had.
func (q *queue) publishFailed() {
	s := q.session
	before := s.published()
	q.ring.Publish(q.outlet.told)
	after := s.published()
	if _, _, collected := q.ring.Marks(); collected > q.outlet.first {
		after = before
	}

	for i, other := range s.queues {
		other.intake.doomed = max(other.intake.doomed, after[i])
	}

	s.failures.untold -= q.outlet.failed
	q.outlet.failed = 0
}

// published is the position up to which the client has published entries, of each queue.
func (s *Session) published() []uint64 {
	all := make([]uint64, len(s.queues))
	for i, q := range s.queues {
		_, all[i], _ = q.ring.Marks()
	}
	return all
}
