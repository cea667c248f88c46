package sim

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/ring/ringtest"
)

// clientKilled: a client dies between any two steps of its protocol, perhaps with
// entries that it has written and not published. Its sockets end, and so do its
// sessions.
func (w *world) clientKilled() {
	t := w.clients.tenants[w.rand.IntN(len(w.clients.tenants))]
	w.trace("kill client %s", t.name)
	w.hit(ClientKilled)
	if s := w.session(false); s != nil && s.t == t {
		if q := w.queue(s); q != nil && w.push(q, planGood) && w.rand.IntN(2) == 0 {
			w.flush(q)
		}
	}

	t.stopped = false
	for _, s := range w.clients.sessions {
		if s.t != t || !s.live() {
			continue
		}
		for _, q := range s.queues {
			w.letRead(q)
		}
		if s.parent == nil {
			w.end(s)
		}
	}

	if t.conn != nil {
		w.hangUp(t)
	}
}

func (w *world) hangUp(t *tenant) {
	if w.mutant != MutantLeaksCharge {
		t.conn.Close()
	}
	t.conn = nil
}

// clientStopped: a client is stopped with a half-written ring, or continues.
func (w *world) clientStopped() {
	t := w.clients.tenants[1+w.rand.IntN(len(w.clients.tenants)-1)]
	if t.stopped {
		w.trace("continue client %s", t.name)
		w.letGo(t)
		return
	}

	s := w.session(false)
	if s == nil || s.t != t {
		return
	}

	w.trace("stop client %s", t.name)
	if q := w.queue(s); q != nil && w.push(q, planGood) {
		w.hit(ClientStopped)
	}

	t.stopped = true
	for _, s := range w.clients.sessions {
		for _, q := range s.queues {
			if s.t == t {
				w.holdBack(q)
			}
		}
	}
}

// letGo continues a client, which first publishes the entries that it had written.
func (w *world) letGo(t *tenant) {
	t.stopped = false
	for _, s := range w.clients.sessions {
		if s.t != t {
			continue
		}
		for _, q := range s.queues {
			if !q.over && !q.ending && s.live() {
				w.flush(q)
			}
			w.letRead(q)
		}
	}
}

func (w *world) holdBack(q *queue) {
	if q.held.Load() == nil {
		c := make(chan struct{})
		q.held.Store(&c)
	}
}

func (w *world) letRead(q *queue) {
	if c := q.held.Swap(nil); c != nil {
		close(*c)
	}
}

// tailLies: a client writes nonsense to its position.
func (w *world) tailLies() {
	s := w.session(false)
	q := w.queue(s)
	if q == nil || len(s.queues) < 2 {
		return
	}

	word := []int{ringtest.WordSQTail, ringtest.WordSQTail, ringtest.WordCQHead}[w.rand.IntN(3)]
	lie := []func(uint64) uint64{
		func(x uint64) uint64 { return x + 17 }, func(x uint64) uint64 { return x - 1 }, func(x uint64) uint64 { return ^uint64(0) },
		func(x uint64) uint64 { return x + 1<<63 }, func(x uint64) uint64 { return x + 1<<40 },
	}[w.rand.IntN(5)]

	w.trace("lie %d", q.n)
	w.hit(TailLies)
	// The driver notices a position that goes back only if it has seen the later
	// one. It reads the other word only when there is no room.
	q.lied, q.mustEnd = true, word == ringtest.WordSQTail && len(q.pending) == 0
	q.local.Corrupt(word, lie)
	q.local.Wake() // an unseen lie would have no effect
}

// entryChanged: a client overwrites entries and arguments that were taken.
func (w *world) entryChanged() {
	s := w.session(false)
	q := w.queue(s)
	if q == nil || len(q.pending) == 0 {
		return
	}

	// At a point of quiescence every pending entry was taken, except those that
	// wait for room.
	if q.local.Client.Free() != int(q.local.Client.Config().Entries) {
		return
	}

	w.trace("change %d", q.n)
	w.hit(EntryChanged)
	for i := range q.pending {
		first, n := q.local.WordsOfEntry(q.pushed - 1 - uint64(i))
		for k := range n {
			q.local.Corrupt(first+k, func(x uint64) uint64 { return x ^ 0xdeadbeefcafe })
		}
	}

	arena, n := q.local.WordsOfArena()
	for k := range min(n, 64) {
		q.local.Corrupt(arena+k, func(uint64) uint64 { return ^uint64(0) })
	}
}

// neverDrained: a client takes no completions, and submits until there is no room.
func (w *world) neverDrained() {
	s := w.session(false)
	q := w.queue(s)
	if q == nil {
		return
	}

	if q.held.Load() != nil {
		w.trace("drain %d", q.n)
		w.letRead(q)
		return
	}

	w.trace("do not drain %d", q.n)
	w.hit(NeverDrained)
	w.holdBack(q)
	for w.push(q, planGood) {
	}

	w.flush(q)
}

// memoryPunched: a client punches pages out of its buffers, and tries to truncate
// them.
func (w *world) memoryPunched() {
	s := w.session(false)
	if s == nil || len(s.bufs) == 0 {
		return
	}

	b := s.bufs[w.rand.IntN(len(s.bufs))]
	if b.mem == nil {
		return
	}

	w.trace("punch %d", s.n)
	w.hit(MemoryPunched)
	if unix.Ftruncate(b.fd, 0) == nil {
		w.violate("a client can truncate the memory of a buffer")
	}

	w.guarded.mu.Lock()
	for _, x := range s.bufs { // a chunk may belong to several
		x.wrote = 0
	}

	w.guarded.mu.Unlock()
	_ = unix.Fallocate(b.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(b.mem)))
}

// badHandles: calls with handles that belong to nobody.
func (w *world) badHandles() {
	s := w.session(true)
	if s == nil {
		return
	}
	w.hit(BadHandles)
	h := gpu.Handle([]uint64{0, 1, 1 << 32, ^uint64(0), uint64(s.program) + 1<<33}[w.rand.IntN(5)])
	w.begin(s, fmt.Sprintf("forged %d", s.n), func() error {
		if s.real.DestroyBuffer(h) == nil || s.real.DestroyFence(h) == nil || s.real.CloseQueue(h) == nil || s.real.CancelQueue(h) == nil {
			return gpuerr.New(gpuerr.Internal, "a forged handle was taken")
		}
		return nil
	}, func(error) {})
}

// flood: a client makes as many objects as it may, and more.
func (w *world) flood() {
	s := w.session(true)
	if s == nil {
		return
	}

	w.hit(Flood)
	w.begin(s, fmt.Sprintf("flood %d", s.n), func() error {
		for i := range 200 {
			if _, err := s.real.CreateFence(0); err != nil {
				if gpuerr.CodeOf(err) == gpuerr.Quota || i == 0 {
					return nil
				}
				return err
			}
		}
		return gpuerr.New(gpuerr.Internal, "200 fences were made, and the quota is 24")
	}, func(error) {
		s.closing = s.closing || s.parent == nil // it is of no more use
		if s.live() || s.drv.gone() {
			return
		}
		w.end(s)
	})
}

// garbage: too many silent connections, and invalid messages.
func (w *world) garbage() {
	t := w.clients.tenants[w.rand.IntN(len(w.clients.tenants))]
	w.trace("garbage %s", t.name)
	w.hit(Garbage)
	refused := 0
	var conns []interface{ Close() }
	for range 12 {
		c, err := w.host.stage.Connect(t.name)
		if err != nil {
			refused++
			continue
		}

		conns = append(conns, c)
		body := make([]byte, w.rand.IntN(40))
		for i := range body {
			body[i] = byte(w.rand.Uint32())
		}

		m := c.Ask(&control.Message{Type: control.MsgType(w.rand.IntN(100) + 100), Body: body})
		if m.Err() == nil {
			w.violate("garbage was answered without an error")
		}

		for _, typ := range []control.MsgType{control.TypeHello, control.TypeNextState, control.TypeStatus, control.TypeOpenDevice} {
			if m := c.Ask(&control.Message{Type: typ, Body: append([]byte{9, 9, 9, 9, 9}, body...)}); m.Err() == nil {
				w.violate("a malformed %v was answered without an error", typ)
			}
		}
	}

	if refused == 0 {
		w.violate("12 connections of a tenant that may have 8")
	}

	for _, c := range conns {
		c.Close()
	}
}

// bombs are streams that crash go-capnp's own server: a call to its own answer, a
// cyclic list, a list of half a billion empty structs.
var bombs = []string{
	"\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x0f\x00\x00\x00\x04\x00\x00\x00\x00\x00\x01\x00\xf9\xff\xff\xff\x0f\x00\x00\x00",
	"\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x01\x00\x01\x00\x0c\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\xff\xff\xff\xff",
	"\xff\xff\xff\x7f\xff\xff\xff\x7f\xff\xff\xff\x7f",
}

// pointerBomb: a peer of the guard sends one, on a real socket, because the guard
// needs one. The clock stands still meanwhile.
func (w *world) pointerBomb() {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}

	bomb := bombs[w.rand.IntN(len(bombs))]
	w.trace("bomb %d", len(bomb))
	w.hit(PointerBomb)
	f := os.NewFile(uintptr(fds[0]), "guard")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		unix.Close(fds[1])
		return
	}

	ended := make(chan error, 1)
	nothing := rpcguard.Export(rpcguard.Spec{Name: "Nothing"})
	go func() {
		ended <- rpcguard.Serve(context.Background(), conn.(*net.UnixConn), nothing, rpcguard.StrictLimits())
	}()

	_, _ = unix.Write(fds[1], []byte(bomb))
	_ = unix.Shutdown(fds[1], unix.SHUT_WR)
	if err := <-ended; err != nil && gpuerr.CodeOf(err) != gpuerr.Protocol {
		w.violate("a pointer bomb ends its connection with %v", err)
	}

	unix.Close(fds[1])
}

// hangs: a tenant's work hangs until the tenant is banned.
func (w *world) hangs() {
	s := w.session(false)
	q := w.queue(s)
	if q == nil || len(s.bufs) < 2 || q.held.Load() != nil {
		return
	}
	for range strikeLimit + 1 {
		w.push(q, planNever)
	}
	w.flush(q)
	for range strikeLimit + 1 {
		w.settle()
		time.Sleep(2200 * time.Millisecond)
	}
	w.settle()
	w.openSession()
}
