package sim

import (
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// connect makes sure that a tenant has a connection.
func (w *world) connect(t *tenant) bool {
	if t.conn != nil {
		return true
	}
	c, err := w.host.stage.Connect(t.name)
	if err != nil {
		return false
	}
	t.conn = c
	return true
}

// openSession opens the device through the broker.
func (w *world) openSession() {
	t := w.tenant()
	if t == nil || t.opening || !w.connect(t) {
		return
	}

	t.opening = true
	conn := t.conn
	w.begin(nil, "open "+t.name, func() error {
		m := conn.Ask(&control.Message{Type: control.TypeOpenDevice, Body: control.OpenDeviceRequest{}.AppendTo(nil)})
		if err := m.Err(); err != nil {
			if conn.Ended() {
				return errHungUp
			}
			return err
		}
		unix.Close(m.FDs[0])
		return nil
	}, func(err error) {
		t.opening = false
		if t.conn != conn { // it has hung up since
			w.orphan(t)
			return
		}

		w.asked(t, err)
		if err != nil {
			return
		}

		d := w.current()
		real := d.takeSession(t.name)
		if real == nil {
			if !d.gone() {
				w.violate("a session was opened for %s that its driver does not have", t.name)
			}
			return
		}

		s := &session{t: t, drv: d, real: real}
		w.addSession(s)
		if w.rand.IntN(3) > 0 {
			w.furnish(s)
		}
	})
}

var errHungUp = gpuerr.New(gpuerr.Disconnected, "this client has hung up")

// furnish makes the objects that most clients make first, all at once.
func (w *world) furnish(s *session) {
	w.createBufferOf(s, 4096<<w.rand.IntN(3))
	w.createBufferOf(s, 4096)
	w.createFenceOf(s)
	w.createQueueOf(s)
}

// orphan closes a session if its client has left before it had the socket.
func (w *world) orphan(t *tenant) {
	d := w.current()
	real := d.takeSession(t.name)
	if real != nil && !d.gone() {
		s := &session{t: t, drv: d, real: real}
		w.addSession(s)
		w.end(s)
	}
}

func (w *world) addSession(s *session) {
	s.n = len(w.clients.sessions)
	w.clients.sessions = append(w.clients.sessions, s)
}

// asked follows up an answer that a ban may have turned into a refusal.
func (w *world) asked(t *tenant, err error) {
	if gpuerr.CodeOf(err) == gpuerr.Banned {
		w.bannedNow(t)
	}
}

func (w *world) closeSession() {
	if s := w.session(false); s != nil && w.rand.IntN(2) == 0 {
		w.end(s)
	}
}

// end closes a session and those restricted from it.
func (w *world) end(s *session) {
	for _, x := range w.clients.sessions {
		for p := x; p != nil; p = p.parent {
			if p == s {
				x.closing = true
			}
		}
	}
	w.begin(s, fmt.Sprintf("closeSession %d", s.n), func() error {
		err := s.real.Close()
		s.closed.Store(true)
		return err
	}, func(error) {})
}

func (w *world) restrict() {
	s := w.session(true)
	if s == nil || s.parent != nil {
		return
	}

	l := ledger.NoLimits()
	l[ledger.Buffers] = 4
	child := &session{t: s.t, drv: s.drv, parent: s}
	w.begin(s, fmt.Sprintf("restrict %d", s.n), func() (err error) {
		child.real, err = s.real.Restrict(gpu.Policy{Facet: gpu.FacetFull, Limits: l})
		return err
	}, func(err error) {
		if err == nil {
			child.closing = s.closing
			w.addSession(child)
		}
	})
}
