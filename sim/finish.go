package sim

import (
	"time"
)

// finish lets everybody end: stopped processes continue, time passes, and then
// every request must be answered, and nothing may remain.
func (w *world) finish() {
	if w.failed() {
		w.abandon()
		return
	}

	w.trace("finish")
	w.guarded.mu.Lock()
	d := w.guarded.driver
	w.guarded.memoryOut, w.guarded.lateness, w.guarded.dieAt = 0, 0, ""
	w.guarded.mu.Unlock()
	if d != nil {
		d.mu.Lock()
		if d.thaw != nil {
			close(d.thaw)
			d.thaw = nil
		}
		d.mu.Unlock()
	}

	for _, t := range w.clients.tenants {
		w.letGo(t)
	}

	for _, s := range w.clients.sessions {
		for _, q := range s.queues {
			w.letRead(q)
		}
	}

	w.settle()
	for range 4 {
		time.Sleep(time.Minute)
		w.settle()
	}

	w.lastWords()
	w.abandon()
}

// lastWords checks that nothing waits that could have ended.
func (w *world) lastWords() {
	for _, s := range w.clients.sessions {
		for _, q := range s.queues {
			if q.mustEnd && !q.over && s.live() {
				w.violate("queue %d is served on, and its client broke the protocol", q.n)
			}
			if len(q.pending) > 0 && !q.lied && !q.stuck(map[*queue]bool{}) {
				o := q.pending[0]
				w.violate("op %d (%s, plan %d), published %v ago, has no end", o.id, opNames[o.kind], o.plan, time.Since(o.published))
			}
		}
	}
	for _, c := range w.clients.calls {
		if c.waits != nil && c.waits.never(map[*queue]bool{}) {
			continue
		}
		w.violate("call %d, %s, has no answer", c.n, c.what)
	}
}

// never reports whether the point is never signalled, by its client's own fault:
// every signaller is an entry of a queue with a client that broke the protocol,
// which the driver need not have taken, or is behind such a wait.
func (x *wait) never(looked map[*queue]bool) bool {
	for _, p := range x.f.promised {
		if p.value >= x.value && (p.op == nil || !p.op.neverDone(looked)) {
			return false
		}
	}
	return len(x.f.promised) > 0
}

func (o *op) neverDone(looked map[*queue]bool) bool {
	if o.q.lied {
		return o.lost || !o.ended
	}
	return !o.ended && o.q.stuck(looked)
}

// stuck reports whether a queue waits for something that never comes. A wait that
// is already under examination counts as such: without a lie there is no circle,
// because every wait is for an earlier promise.
func (q *queue) stuck(looked map[*queue]bool) bool {
	if looked[q] || len(q.pending) == 0 {
		return looked[q]
	}
	looked[q] = true
	o := q.pending[0]
	x := wait{o.f, o.value}
	return o.kind == opWait && x.never(looked)
}

// abandon closes everything.
func (w *world) abandon() {
	w.guarded.mu.Lock()
	failed := len(w.guarded.violations) > 0
	w.guarded.mu.Unlock()
	for _, s := range w.clients.sessions {
		if s.live() && s.parent == nil && !failed {
			w.end(s)
		}
		for _, q := range s.queues {
			w.letRead(q)
		}
	}

	if !failed {
		w.settle()
		time.Sleep(3 * time.Second)
		w.settle()
	}

	w.closeStage()
	w.wait()
	for _, s := range w.clients.sessions {
		for _, q := range s.queues {
			q.local.Client.Close()
			<-q.done
		}
		for _, b := range s.bufs {
			b.unmap()
		}
	}

	w.wait()
}
