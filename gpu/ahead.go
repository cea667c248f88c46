package gpu

import "capgpu/internal/prefetch"

// A sweeper comes to queues of which nothing is in a cache: for each of them it would wait
// for some tens of lines of memory, one after the other. So it asks for them in time, in as
// many steps as there are pointers on the way, each while another queue is served:
//
//	the queue ─► its ring, session, accounts, launch ─► entries, program, buffers ─► pins, operands
//
// Nobody else's work depends on it, and what is asked for too early, or in vain, costs some
// nanoseconds.

// ahead is called before the turn of the queue at a place.
func (w *sweeper) ahead(at int) {
	n := len(w.queues)
	prefetch.Of(w.queues[(at+4)%n])
	w.queues[(at+3)%n].aheadOwn()
	w.queues[(at+2)%n].aheadUsed()
	w.queues[(at+1)%n].aheadMemory()
}

// ringLines and readyLines are about what a ring has besides its memory, and a backend of a
// launch.
const ringLines, readyLines = 7, 6

func (q *queue) aheadOwn() {
	prefetch.In(q.ring, ringLines)
	prefetch.Of(q.session)
	prefetch.Of(q.lease)
	prefetch.Of(q.meter)
	q.withLast(func(r *resolved) { prefetch.Of(r) })
}

func (q *queue) aheadUsed() {
	q.ring.Ahead()
	prefetch.Of(q.session.account)
	prefetch.Of(q.session.flow)
	q.withLast(func(r *resolved) {
		prefetch.In(r.ready, readyLines)
		prefetch.Of(r.job.program)
		for i := range r.job.buffers {
			prefetch.Of(&r.job.buffers[i])
		}
		for i := range r.job.work.Spans {
			prefetch.Of(&r.job.work.Spans[i])
		}
	})
}

func (q *queue) aheadMemory() {
	q.withLast(func(r *resolved) {
		for _, b := range r.job.buffers {
			prefetch.Of(&b.pins)
		}
		for i := range r.job.work.Spans {
			prefetch.Bytes(r.job.work.Spans[i].Host)
		}
	})
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
