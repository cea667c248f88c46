package gpu

import (
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// beginDrain ends everything taken, and with whole everything published until now. It is
// over when all of it has ended that has room for its completion (drained): within the
// bound of the engine's escalation. Entries without such room are not taken, and left to
// take, which ends them as soon as they can be: nothing of them runs.
//
// A drain may begin while another goes on, and takes it over.
func (q *queue) beginDrain(d drain, whole bool) {
	if q.drain != nil {
		if q.drain.last {
			return // q.done tells
		}
		d.waiters = append(d.waiters, q.drain.waiters...)
	}

	q.drain = &d
	r, in := q.session.dev.reactor, &q.intake
	if r.frozen() {
		r.freeze.moved = true
	}
	r.cancel(q.session, func(j *job) bool { return j.queue == q }, d.how)

	if j := in.waiting; j != nil {
		j.fence.forget(&in.waiter)
		in.waiting = nil
		j.end(d.how)
	}

	for at := q.head; at < q.tail; at++ {
		if j := q.jobs[at%uint64(len(q.jobs))]; j.op == ring.OpSignal && j.state != jobEnded {
			j.atLeast = d.how
		}
	}

	in.discard = 0
	if in.batch != nil {
		in.discard = len(in.batch.Entries) - in.begun
	}

	if whole {
		in.discard += q.ring.Published() // includes what an earlier cancel left
		in.skipping = in.skipping && in.discard > 0
	}

	q.look()
}

// drainOn takes what is to be discarded, as far as there is room, and ends the drain when
// nothing of it is left.
func (q *queue) drainOn() {
	d := q.drain
	if q.broken {
		if q.session.dev.reactor.sent.of(q) == 0 {
			for _, j := range q.jobs {
				if j != nil {
					j.discharge()
				}
			}

			q.finishDrain()
		}
		return
	}

	stuck := q.discardAll(d.how)
	q.retire()
	q.publish()

	switch {
	case q.head < q.tail, !stuck && q.intake.discard > 0: // what is in the device ends first
	case d.last:
		q.finishDrain()
	default:
		q.drain = nil
		for _, w := range d.waiters {
			close(w)
		}
		q.session.dev.reactor.activate(q)
	}
}

// discardAll ends what is to be discarded, as far as there is room. stuck says that there
// is none in the ring.
func (q *queue) discardAll(how outcome.Outcome) (stuck bool) {
	in := &q.intake
	for in.discard > 0 {
		q.retire()
		if !q.mayBegin() {
			return false // something ends first
		}
		if !q.left() {
			if n, err := q.fetch(in.discard); err != nil || n == 0 {
				return true
			}
		}

		for in.discard > 0 && q.left() && q.mayBegin() {
			t := &in.batch.Entries[in.begun]
			in.begun++
			q.discardOne(q.nextJob(t), t, how)
		}

		q.giveBatch()
	}

	return false
}

// discardOne ends an entry that was taken and was published before a cancel. With
// the last of them the queue is as if nothing had gone wrong.
func (q *queue) discardOne(j *job, t *ring.Taken, how outcome.Outcome) {
	j.discarded = true
	q.endUnbegun(j, t, how)
	if q.intake.discard--; q.intake.discard == 0 {
		q.intake.skipping = false
	}
}

// endUnbegun ends an entry that came too late to begin. A signal still ends its
// point: somebody may wait for it.
func (q *queue) endUnbegun(j *job, t *ring.Taken, how outcome.Outcome) {
	if e := &t.Entry; e.Op == ring.OpSignal && t.Code == gpuerr.None {
		if f, err := handles.Lookup[fence](q.session.handles, Handle(e.Object)); err == nil && f.promise(e.FenceValue()) == nil {
			j.fence, j.value, j.atLeast = f, e.FenceValue(), how
			return
		}
	}
	j.end(how)
}

// finishDrain is the end of a queue. Its ring is unmapped by another goroutine: that takes
// some microseconds for each megabyte.
func (q *queue) finishDrain() {
	r, code := q.session.dev.reactor, q.drain.code
	if q.over {
		return
	}

	q.over = true
	r.leave(q)
	r.closing.Go(func() {
		q.ring.Close(code)
		close(q.done)
	})
}

// abandon ends every job, whatever state a bug has left it in, and completes none.
func (q *queue) abandon() {
	r := q.session.dev.reactor
	if q.drain == nil || !q.drain.last {
		q.drain = &drain{how: errorOutcome, last: true, code: gpuerr.Internal}
	}

	q.intake.discard, q.intake.waiting = 0, nil
	r.cancel(q.session, func(j *job) bool { return j.queue == q }, errorOutcome)

	for _, j := range q.jobs {
		if j == nil || j.state == jobReady || j.state == jobSent {
			continue
		}
		if j.state == jobHeld {
			j.letGo()
		}
		if j.fence != nil {
			j.fence.forget(&q.intake.waiter)
			if j.op == ring.OpSignal {
				j.fence.end(j.value, errorOutcome)
			}
			j.fence = nil
		}

		j.discharge()
		j.state = jobFree
	}

	q.broken = true
	q.look()
}
