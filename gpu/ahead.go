package gpu

import (
	"capgpu/internal/prefetch"
	"capgpu/ledger"
	"capgpu/outcome"
)

// A sweeper comes to queues of which nothing is in a cache: for each of them it would wait
// for some tens of lines of memory, one after the other. So it asks for them in time, in as
// many steps as there are pointers on the way, each while another queue is served:
//
//	the queue ─► its ring, session, accounts, launch ─► entries, the backend's part, operands
//
// Nobody else's work depends on it, and what is asked for too early, or in vain, costs some
// nanoseconds.

// ahead is called before the turn of the queue at a place.
func (w *sweeper) ahead(at int) {
	n := len(w.queues)
	w.queues[(at+3)%n].aheadItself()
	w.queues[(at+2)%n].aheadOwn()
	w.queues[(at+1)%n].aheadUsed()
}

// ringLines and readyLines are about what a ring has besides its memory, and a backend of a
// launch.
const ringLines, readyLines = 7, 6

func (q *queue) aheadItself() { prefetch.Between(&q.session, &q.burst.turn.work.ID) }

func (q *queue) aheadOwn() {
	prefetch.In(q.ring, ringLines)
	prefetch.Between(&q.session.dev, &q.session.ended[outcome.OK])
	q.lease.Ahead()
	q.meter.Ahead()
	q.burst.memo.ahead()
	q.withLast(func(r *resolved) { prefetch.Between(&r.known, &r.memory) })
}

func (q *queue) aheadUsed() {
	q.ring.Ahead()
	q.session.account.Ahead(ledger.DeviceTime, ledger.InFlight)
	prefetch.Of(q.session.flow)
	q.withLast(func(r *resolved) {
		prefetch.In(r.ready, readyLines)
		prefetch.Lines(r.memory[:])
	})
}

// ahead asks for what says what is in the first slots.
func (m *memo) ahead() {
	if len(m.slots) > 0 {
		prefetch.Of(&m.slots[0])
		prefetch.Of(&m.known[0])
	}
}

// withLast calls f with what the queue launched last, if it sleeps.
//
// +checklocksignore: TryLock is not understood
func (q *queue) withLast(f func(r *resolved)) {
	if !q.serving.TryLock() {
		return
	}
	defer q.serving.Unlock()
	if r := q.burst.memo.last; r != nil {
		f(r)
	}
}
