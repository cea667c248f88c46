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
			if len(q.pending) > 0 && !q.lied {
				o := q.pending[0]
				w.violate("op %d (%s, plan %d), published %v ago, has no end", o.id, opNames[o.kind], o.plan, time.Since(o.published))
			}
		}
	}
	for _, c := range w.calls {
		w.violate("call %d, %s, has no answer", c.n, c.what)
	}
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
