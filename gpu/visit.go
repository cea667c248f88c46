package gpu

import (
	"runtime/debug"
	"time"

	"capgpu/gpuerr"
)

// visitSlice is how long the reactor takes entries in, before it sees to the device and to
// completions again.
const visitSlice = 50 * time.Microsecond

// visit looks at the rings that are active, in turn: it takes entries. Where a ring had
// nothing for a while, its client has to wake the reactor.
func (r *reactor) visit(now time.Time) {
	look := r.lookFor()
	until := now.Add(visitSlice)

	for n := len(r.active); n > 0; n-- {
		if r.next >= len(r.active) {
			r.next = 0
		}
		q := r.active[r.next]
		r.next++
		if !r.visitQueue(q, now, look) {
			continue
		}
		r.idle.worked = true
		if len(r.active) > 1 && time.Now().After(until) {
			return
		}
	}
}

// lookFor is how long a ring without entries is looked at. A device that is the host's own
// processor needs that itself while it works.
func (r *reactor) lookFor() time.Duration {
	if r.traits.virtual || r.traits.runner != nil && r.sent.n > 0 {
		return 0
	}
	return mostLook
}

// visitQueue reports whether the queue had something.
func (r *reactor) visitQueue(q *queue, now time.Time, look time.Duration) (worked bool) {
	if q.drain != nil {
		r.deactivate(q) // what it has left is looked at as jobs end
		q.look()
		return true
	}

	if q.poll.active && (q.left() || q.ring.Ready()) {
		worked = r.takeFrom(q)
	}

	switch {
	case worked:
		q.poll.worked = now
	case !q.mayBegin():
		r.deactivate(q)
		q.poll.held = true // until what holds it has ended: see retire
	case now.Sub(q.poll.worked) >= look:
		r.arm(q)
	}
	return worked
}

// takeFrom takes in what a ring has, at most one batch.
func (r *reactor) takeFrom(q *queue) (worked bool) {
	defer r.caught(q)
	worked, err := q.take()
	if err != nil {
		q.broke()
	}
	return worked || err != nil
}

// broke ends a queue because its client broke the rules of the ring.
func (q *queue) broke() {
	q.beginDrain(drain{how: protocolOutcome, last: true, code: gpuerr.Protocol}, false)
}

// arm has the client of a queue wake the reactor, and ends the looking, unless there is
// something.
func (r *reactor) arm(q *queue) {
	defer r.caught(q)
	switch ready, err := q.ring.Arm(); {
	case err != nil && gpuerr.CodeOf(err) == gpuerr.Disconnected:
		q.poll.deaf = true // all that was published is taken; it ends when the queue is closed
		r.deactivate(q)
	case err != nil:
		q.broke()
	case !ready:
		r.deactivate(q)
	}
}

// activate has the reactor look at a queue's ring in each round.
func (r *reactor) activate(q *queue) {
	if q.poll.active || q.drain != nil || r.state == deviceLost {
		return
	}
	q.poll.active = true
	q.poll.index = len(r.active)
	q.poll.worked = time.Time{}
	r.active = append(r.active, q)
}

func (r *reactor) deactivate(q *queue) {
	if !q.poll.active {
		return
	}

	last := len(r.active) - 1
	moved := r.active[last]
	r.active[q.poll.index], r.active[last] = moved, nil
	moved.poll.index = q.poll.index
	r.active = r.active[:last]
	q.poll.active = false
}

// caught is deferred around a step of a queue. A bug on the way ends this queue and what it
// has, as failed, and no other. Within the reactor's own books it is not caught: nobody
// could say what the device is doing, and the driver is better replaced.
func (r *reactor) caught(q *queue) {
	p := recover()
	if p == nil {
		return
	}

	if r.books > 0 {
		panic(p)
	}

	r.dev.log.Error("a queue ends because of a bug", "session", q.session.id, "panic", p, "stack", string(debug.Stack()))
	q.abandon()
}
