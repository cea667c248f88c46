package sim

// If earlier work did not end ok, work that reads its output does not run, unless
// it was published after the earlier work's completion. Moments decide the order:
// each publication, and each begin and end at the device, has one. A stopped client
// publishes its written entries when it continues, so the time of writing an entry
// means nothing.

// spoil is the output of an op that did not end ok.
type spoil struct {
	op    *op
	after uint64  // a moment at which its completion was not published
	seen  witness // of the device
}

// reading is an op that the device began, and that reads.
type reading struct {
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

// depends records the output or the inputs of an op that has ended.
func (w *world) depends(o *op, seen witness, ok bool) {
	q := o.q
	// Completions come in order: this one came when all earlier ones had ended.
	q.after = max(q.after, o.flushed, seen.ended)
	if !ok && o.dst != nil {
		x := spoil{o, q.after, seen}
		o.dst.spoils = append(o.dst.spoils, x)
		for _, r := range o.dst.readings {
			w.mayRead(r, x)
		}
	}

	if seen.begun > 0 && o.src != nil {
		r := reading{o, seen}
		o.src.readings = append(o.src.readings, r)
		for _, x := range o.src.spoils {
			w.mayRead(r, x)
		}
	}
}

// mayRead checks one op that read another's output.
func (w *world) mayRead(r reading, x spoil) {
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
		w.violate("op %d was begun, and reads what op %d was to write, which ended %v and was not reported by then", r.op.id, x.op.id, x.op.how)
	}
}
