package sim

import (
	"context"
	"errors"
	"time"

	"capgpu/gpuerr"
)

// act takes one action.
func (w *world) act() {
	switch n := w.rand.IntN(200); {
	case n < 14:
		w.openSession()

	case n < 24:
		w.createBuffer()
	case n < 30:
		w.createQueue()

	case n < 34:
		w.createFence()
	case n < 110:
		w.submit()

	case n < 114:
		w.destroyBuffer()
	case n < 115:
		w.closeQueue()

	case n < 118:
		w.cancelQueue()
	case n < 120:
		w.closeSession()

	case n < 123:
		w.restrict()
	case n < 127:
		w.waitFence()

	case n < 130:
		w.signalFence()
	case n < 160:
		w.pass()

	case n < 180:
		w.deviceFault()
	default:
		w.fault()
	}
}

// pass lets time pass: from microseconds to a minute.
func (w *world) pass() {
	d := time.Microsecond << w.rand.IntN(23)
	d += time.Duration(w.rand.Int64N(int64(d)))
	w.trace("pass %v", d)
	time.Sleep(d)
}

// begin starts a request. The request runs in a goroutine, and the run ignores it
// before it is reaped.
func (w *world) begin(s *session, what string, ask func() error, then func(error)) *call {
	w.clients.calling++
	c := &call{n: w.clients.calling, what: what, s: s}
	w.trace("call %d %s", c.n, what)
	c.then = func() {
		err := c.err
		if s != nil {
			s.busy--
			if s.drv.gone() {
				err = errNoDriver
			}
		}
		w.trace("answer %d %s %v", c.n, what, codeOf(err))
		if gpuerr.CodeOf(err) == gpuerr.Internal && !errors.Is(err, context.Canceled) {
			w.violate("%s: a bug of the service: %v", what, err)
		}
		then(err)
	}

	if s != nil {
		s.busy++
	}

	w.clients.calls = append(w.clients.calls, c)
	go func() {
		c.err = ask()
		c.done.Store(true)
	}()

	w.wait() // so that the next action finds this one done, or waiting
	return c
}

func codeOf(err error) string {
	if err == nil {
		return "ok"
	}
	return gpuerr.CodeOf(err).String()
}

// tenant draws a tenant that is not stopped.
func (w *world) tenant() *tenant {
	t := w.clients.tenants[w.rand.IntN(len(w.clients.tenants))]
	if t.stopped {
		return nil
	}
	return t
}

// session draws a live session of a tenant that is not stopped; idle: without open
// calls.
func (w *world) session(idle bool) *session {
	var live []*session
	for _, s := range w.clients.sessions {
		if s.live() && !s.t.stopped && (!idle || s.busy == 0) {
			live = append(live, s)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[w.rand.IntN(len(live))]
}

// queue draws a usable queue.
func (w *world) queue(s *session) *queue {
	var live []*queue
	if s != nil {
		for _, q := range s.queues {
			if !q.ending && !q.over && !q.lied {
				live = append(live, q)
			}
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[w.rand.IntN(len(live))]
}
