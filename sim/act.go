package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
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

// begin asks something. what is done in a goroutine, and is not the run's business
// before it is reaped.
func (w *world) begin(s *session, what string, ask func() error, then func(error)) {
	w.calling++
	c := &call{n: w.calling, what: what, s: s}
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
	w.calls = append(w.calls, c)
	go func() {
		c.err = ask()
		c.done.Store(true)
	}()
	w.wait() // what comes next finds this done, or waiting
}

func codeOf(err error) string {
	if err == nil {
		return "ok"
	}
	return gpuerr.CodeOf(err).String()
}

// tenant draws one that is not stopped.
func (w *world) tenant() *tenant {
	t := w.tenants[w.rand.IntN(len(w.tenants))]
	if t.stopped {
		return nil
	}
	return t
}

// session draws a live one of a tenant that is not stopped; idle: with no call open.
func (w *world) session(idle bool) *session {
	var live []*session
	for _, s := range w.sessions {
		if s.live() && !s.t.stopped && (!idle || s.busy == 0) {
			live = append(live, s)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[w.rand.IntN(len(live))]
}

// connect makes sure that a tenant has a connection.
func (w *world) connect(t *tenant) bool {
	if t.conn != nil {
		return true
	}
	c, err := w.stage.Connect(t.name)
	if err != nil {
		return false
	}
	t.conn = c
	return true
}

// openSession opens the device by the broker.
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

// furnish makes what most clients make first, all at once.
func (w *world) furnish(s *session) {
	w.createBufferOf(s, 4096<<w.rand.IntN(3))
	w.createBufferOf(s, 4096)
	w.createFenceOf(s)
	w.createQueueOf(s)
}

// orphan closes a session whose client has gone before it had its socket.
func (w *world) orphan(t *tenant) {
	d := w.current()
	real := d.takeSession(t.name)
	if real != nil && !d.gone() {
		s := &session{t: t, drv: d, real: real}
		w.addSession(s)
		w.end(s)
	}
}

var errHungUp = gpuerr.New(gpuerr.Disconnected, "this client has hung up")

func (w *world) addSession(s *session) {
	s.n = len(w.sessions)
	w.sessions = append(w.sessions, s)
}

// asked follows an answer that a ban could have kept from being good.
func (w *world) asked(t *tenant, err error) {
	if gpuerr.CodeOf(err) == gpuerr.Banned {
		w.bannedNow(t)
	}
}

func (w *world) createBuffer() {
	s := w.session(true)
	if s == nil || len(s.bufs) > 12 {
		return
	}
	bytes := uint64(4096) << w.rand.IntN(4)
	if w.rand.IntN(10) == 0 {
		bytes = 1<<20 + 4096 // one of its own
	}
	w.createBufferOf(s, bytes)
}

func (w *world) createBufferOf(s *session, bytes uint64) {
	b := &buffer{fd: -1}
	w.begin(s, fmt.Sprintf("createBuffer %d %d", s.n, bytes), func() error {
		info, err := s.real.CreateBuffer(context.Background(), bytes, 0)
		if err != nil {
			return err
		}
		b.h, b.bytes = info.Handle, info.MemLen
		if b.fd, err = s.real.BufferFD(info.Handle); err != nil {
			return err
		}
		b.mem, err = unix.Mmap(b.fd, int64(info.MemOff), int(info.MemLen), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return err
	}, func(err error) {
		if err != nil {
			b.unmap()
			return
		}
		for i := 0; i < len(b.mem); i += 8 {
			if [8]byte(b.mem[i:i+8]) != [8]byte{} {
				w.violate("a new buffer of session %d is not zero at %d", s.n, i)
				break
			}
		}
		b.mem[0], b.mem[len(b.mem)/2], b.mem[len(b.mem)-1] = 0xff, 0xff, 0xff
		s.bufs = append(s.bufs, b)
	})
}

func (w *world) destroyBuffer() {
	s := w.session(true)
	if s == nil || len(s.bufs) == 0 {
		return
	}
	i := w.rand.IntN(len(s.bufs))
	b := s.bufs[i]
	s.bufs = append(s.bufs[:i:i], s.bufs[i+1:]...)
	b.dying = true
	w.begin(s, fmt.Sprintf("destroyBuffer %d", s.n), func() error {
		err := s.real.DestroyBuffer(b.h)
		if err == nil {
			b.dead.Store(true)
		}
		return err
	}, func(error) { b.unmap() })
}

func (w *world) createFence() {
	s := w.session(true)
	if s != nil && len(s.fences) <= 6 {
		w.createFenceOf(s)
	}
}

func (w *world) createFenceOf(s *session) {
	f := &fence{}
	w.begin(s, fmt.Sprintf("createFence %d", s.n), func() (err error) {
		f.h, err = s.real.CreateFence(0)
		return err
	}, func(err error) {
		if err == nil {
			s.fences = append(s.fences, f)
		}
	})
}

func (w *world) createQueue() {
	s := w.session(true)
	if s != nil && len(s.queues) <= 2 {
		w.createQueueOf(s)
	}
}

func (w *world) createQueueOf(s *session) {
	q := &queue{n: w.calling + 1, s: s, group: outcome.Success, done: make(chan struct{})}
	w.begin(s, fmt.Sprintf("createQueue %d", s.n), func() error {
		info, err := s.real.CreateQueue(16, q.argBytes())
		if err != nil {
			return err
		}
		q.h = info.Handle
		if s.program == 0 {
			s.program, _, err = s.real.OpenProgram(programName)
		}
		return err
	}, func(err error) {
		if s.parent == nil { // else it may be its branch that is banned, for good
			w.asked(s.t, err)
		}
		if err != nil {
			return
		}
		s.drv.mu.Lock()
		q.local = s.drv.rings[q.argBytes()]
		s.drv.mu.Unlock()
		s.queues = append(s.queues, q)
		go q.run(w)
	})
}

// queue draws one that can be used.
func (w *world) queue(s *session) *queue {
	var live []*queue
	if s != nil {
		for _, q := range s.queues {
			if !q.ending && !q.told && !q.lied {
				live = append(live, q)
			}
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[w.rand.IntN(len(live))]
}

func (w *world) closeQueue() {
	s := w.session(true)
	q := w.queue(s)
	if q == nil {
		return
	}
	q.ending = true
	w.begin(s, fmt.Sprintf("closeQueue %d", q.n), func() error { return s.real.CloseQueue(q.h) }, func(error) {})
}

func (w *world) cancelQueue() {
	s := w.session(true)
	q := w.queue(s)
	if q == nil || q.held.Load() != nil {
		return // it may wait for room
	}
	w.begin(s, fmt.Sprintf("cancelQueue %d", q.n), func() error { return s.real.CancelQueue(q.h) }, func(error) {})
}

func (w *world) closeSession() {
	if s := w.session(false); s != nil && w.rand.IntN(2) == 0 {
		w.end(s)
	}
}

// end closes a session and what was restricted from it.
func (w *world) end(s *session) {
	for _, x := range w.sessions {
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

func (w *world) signalFence() {
	s := w.session(true)
	if s == nil || len(s.fences) == 0 {
		return
	}
	f := s.fences[w.rand.IntN(len(s.fences))]
	f.next++
	v := f.next
	w.begin(s, fmt.Sprintf("signalFence %d %d", s.n, v), func() error { return s.real.SignalFence(f.h, v) }, func(err error) {
		if err == nil {
			f.promised = append(f.promised, promise{value: v})
		}
	})
}

// waitFence waits for a point that somebody has promised.
func (w *world) waitFence() {
	s := w.session(true)
	if s == nil || len(s.fences) == 0 {
		return
	}
	f := s.fences[w.rand.IntN(len(s.fences))]
	if len(f.promised) == 0 {
		return
	}
	p := f.promised[w.rand.IntN(len(f.promised))]
	var st gpu.FenceState
	s.busy-- // it may take as long as it likes
	w.begin(s, fmt.Sprintf("waitFence %d %d", s.n, p.value), func() (err error) {
		st, err = s.real.WaitFence(context.Background(), f.h, p.value)
		return err
	}, func(err error) {
		s.busy++
		if err != nil {
			return
		}
		w.trace("reached %v", st.Outcome)
		w.reached(f, p, st)
	})
}

// submit writes some entries and publishes them.
func (w *world) submit() {
	s := w.session(false)
	q := w.queue(s)
	if q == nil {
		return
	}
	n := 1 + w.rand.IntN(6)
	w.trace("submit %d %d", q.n, n)
	for range n {
		if !w.push(q, w.planned()) {
			break
		}
	}
	w.flush(q)
}

// planned draws what the device does with the next job: mostly what it should.
func (w *world) planned() plan {
	if w.rand.IntN(100) < 96 {
		return planGood
	}
	return []plan{planSlow, planSlow, planTrap, planError}[w.rand.IntN(4)]
}

func (w *world) flush(q *queue) {
	err := q.local.Client.Flush()
	if err == nil {
		w.published(q)
	}
	w.trace("flush %d %s", q.n, codeOf(err))
	w.wait() // what comes next finds it taken
}

// push writes one entry. False: the ring is full, or has ended.
func (w *world) push(q *queue, p plan) bool {
	s := q.s
	o := &op{id: uint64(len(w.ops) + 1), q: q, plan: p, published: time.Now()}
	o.kind = []opKind{opNop, opFill, opFill, opFill, opCopy, opCopy, opLaunch, opLaunch, opSignal, opWait, opBad}[w.rand.IntN(11)]
	if p != planGood {
		o.kind = []opKind{opFill, opLaunch}[w.rand.IntN(2)]
	}
	return w.pushOp(s, q, o)
}

func (w *world) pushOp(s *session, q *queue, o *op) bool {
	var e ring.Entry
	var bindings []ring.Binding
	var inline []byte
	if len(s.bufs) < 2 && o.kind.device() || len(s.fences) == 0 && (o.kind == opSignal || o.kind == opWait) {
		o.kind = opNop
	}
	switch o.kind {
	case opFill:
		o.dst = s.bufs[w.rand.IntN(len(s.bufs))]
		o.n = 4 * (1 + w.rand.Uint64N(256))
		o.off = 4 * w.rand.Uint64N((o.dst.bytes-o.n)/4+1)
		e = ring.FillEntry(o.id, uint64(o.dst.h), o.off, o.n, uint32(o.id), 0)
	case opCopy:
		i := w.rand.IntN(len(s.bufs))
		o.dst, o.src = s.bufs[i], s.bufs[(i+1)%len(s.bufs)]
		o.n = 4 * (1 + o.id%1000)
		e = ring.CopyEntry(o.id, uint64(o.dst.h), 0, uint64(o.src.h), 0, o.n, 0)
	case opLaunch:
		i := w.rand.IntN(len(s.bufs))
		o.dst, o.src = s.bufs[i], s.bufs[(i+1)%len(s.bufs)]
		o.n = 256
		e = ring.LaunchEntry(o.id, uint64(s.program), ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3{}, 0, 0)
		bindings = []ring.Binding{{Buffer: uint64(o.src.h), Len: o.n}, {Buffer: uint64(o.dst.h), Len: o.n}}
		inline = idBytes(o.id)
	case opSignal:
		o.f = s.fences[w.rand.IntN(len(s.fences))]
		o.f.next++
		o.value = o.f.next
		e = ring.SignalEntry(o.id, uint64(o.f.h), o.value)
	case opWait:
		// For what was promised before, by another queue or this one: it can always end.
		o.f = s.fences[w.rand.IntN(len(s.fences))]
		if len(o.f.promised) > 0 {
			o.value = o.f.promised[w.rand.IntN(len(o.f.promised))].value
		}
		e = ring.WaitEntry(o.id, uint64(o.f.h), o.value)
	case opBad:
		w.hit(BadHandles)
		h := []uint64{1, 1 << 63, ^uint64(0), uint64(s.program) + 1<<32, 0xffffffff}[w.rand.IntN(5)]
		e = ring.FillEntry(o.id, h, 0, 4, 0, 0)
	default:
		e = ring.NopEntry(o.id)
	}
	// Known before the driver can see it.
	w.mu.Lock()
	w.ops[o.id] = o
	if o.kind == opCopy {
		w.copies[int(o.n)] = o.id
	}
	w.mu.Unlock()
	if err := q.local.Client.Push(&e, bindings, inline); err != nil {
		o.ended = true // never published
		o.how = outcome.Outcome{Kind: outcome.Cancelled}
		return false
	}
	q.pushed++
	q.pending = append(q.pending, o)
	if o.kind == opSignal {
		o.f.promised = append(o.f.promised, promise{o.value, o})
	}
	w.trace("op %d %s plan=%d", o.id, opNames[o.kind], o.plan)
	return true
}
