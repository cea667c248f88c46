package sim

import (
	"time"
)

// finish lets everybody end: whoever was stopped goes on, time passes, and then all that
// was asked must have been answered, and nothing be left.
func (w *world) finish() {
	if w.failed() {
		w.abandon()
		return
	}
	w.trace("finish")
	w.mu.Lock()
	d := w.driver
	w.memoryOut, w.lateness, w.dieAt = 0, 0, ""
	w.mu.Unlock()
	if d != nil {
		d.mu.Lock()
		if d.thaw != nil {
			close(d.thaw)
			d.thaw = nil
		}
		d.mu.Unlock()
	}
	for _, t := range w.tenants {
		w.letGo(t)
	}
	for _, s := range w.sessions {
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
	for _, s := range w.sessions {
		for _, q := range s.queues {
			if q.mustEnd && !q.told && s.live() {
				w.violate("queue %d is served on, and its client broke the protocol", q.n)
			}
			if len(q.pending) > 0 && !q.lied && !q.stuck(map[*queue]bool{}) {
				o := q.pending[0]
				w.violate("op %d (%s, plan %d), published %v ago, has no end", o.id, opNames[o.kind], o.plan, time.Since(o.published))
			}
		}
	}
	for _, c := range w.calls {
		if c.waits != nil && c.waits.never(map[*queue]bool{}) {
			continue
		}
		w.violate("call %d, %s, has no answer", c.n, c.what)
	}
}

// never reports whether nobody signals the point, by its client's own fault: whatever was
// to do so was an entry of a queue whose client broke the protocol, of which the driver
// need not have taken it, or is behind such a wait.
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
		return o.untold || !o.ended
	}
	return !o.ended && o.q.stuck(looked)
}

// stuck reports whether a queue waits for what never comes. What it was found to wait for
// already counts as such: without a lie nobody waits in a circle, for who waits does so for
// what was promised before.
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
	w.mu.Lock()
	failed := len(w.violations) > 0
	w.mu.Unlock()
	for _, s := range w.sessions {
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
	for _, s := range w.sessions {
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
