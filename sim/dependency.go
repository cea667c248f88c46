package sim

// Work that reads what earlier work was to write, which did not end ok, does not run if it
// was published before the completion of that was. Moments say what was first: each
// publication, and each begin and end at the device has one. A client that is stopped
// publishes what it had written when it goes on, so when an entry was written says nothing.

// spoil is what an op that did not end ok was to write.
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

// published gives a queue's entries that were not published before their moment.
func (w *world) published(q *queue) {
	now := w.moments.Add(1)
	for i := len(q.pending) - 1; i >= 0 && q.pending[i].flushed == 0; i-- {
		q.pending[i].flushed = now
	}
}

// depends looks at what an op that has ended was to write or has read.
func (w *world) depends(o *op, seen witness, ok bool) {
	q := o.q
	// Completions come in order: that of this one came when those before it had ended.
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

// mayRead checks one op that read what another was to write.
func (w *world) mayRead(r reading, x spoil) {
	if r.op.flushed == 0 { // by a client whose ring had ended
		return
	}
	before := r.op.flushed <= x.after
	if r.op.q != x.op.q {
		// What the device never began ended when nobody knows, so this may have begun before.
		before = r.op.flushed < x.seen.ended && x.seen.ended < r.seen.began
	} else if r.op.id < x.op.id {
		return
	}
	if before {
		w.violate("op %d was begun, and reads what op %d was to write, which ended %v and was not told by then", r.op.id, x.op.id, x.op.how)
	}
}
