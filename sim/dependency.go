package sim

import "capgpu/outcome"

// Work that fails takes along what its session had published before it was told, and what
// had not begun: nothing of that is reported ok. Moments decide the order: each
// publication, and each begin and end at the device, has one. A stopped client publishes
// its written entries when it continues, so the time of writing an entry means nothing.

// failure is work that did not end ok, and did not depend on an earlier failure.
type failure struct {
	op    *op
	after uint64  // a moment at which its completion was not published
	seen  witness // of the device
}

// success is work that was reported ok.
type success struct {
	op   *op
	seen witness
}

// published gives a moment to a queue's entries that were just published.
func (w *world) published(q *queue) {
	now := w.moments.Add(1)
	for i := len(q.pending) - 1; i >= 0 && q.pending[i].flushed == 0; i-- {
		q.pending[i].flushed = now
	}
}

// depends compares work that has ended with all that its session has done.
func (w *world) depends(o *op, seen witness, ok bool) {
	q := o.q
	// Completions come in order: this one came when all earlier ones had ended.
	q.after = max(q.after, o.flushed, seen.ended)
	s := q.s
	switch {
	case !o.kind.device() && o.kind != opBad:
	case ok:
		r := success{o, seen}
		s.successes = append(s.successes, r)
		for _, x := range s.failures {
			w.mayBeOK(r, x)
		}
	case o.how.Kind == outcome.Cancelled: // its client asked for it, or it depended itself
	default:
		x := failure{o, q.after, seen}
		s.failures = append(s.failures, x)
		for _, r := range s.successes {
			w.mayBeOK(r, x)
		}
	}
}

// mayBeOK checks work that was reported ok beside work of its session that failed.
func (w *world) mayBeOK(r success, x failure) {
	if r.op.flushed == 0 { // the client's ring had ended
		return
	}
	before := r.op.flushed <= x.after
	if r.op.q != x.op.q {
		// An op that the device never began ended at an unknown time, so this one
		// may have begun earlier.
		before = r.op.flushed < x.seen.ended && x.seen.ended < r.seen.began
	} else if r.op.id < x.op.id {
		return
	}
	if before {
		w.violate("op %d is reported ok, and was published before op %d, which ended %v, was reported", r.op.id, x.op.id, x.op.how)
	}
}
