package engine

import (
	"context"
	"errors"
	"os"
	"reflect"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
)

// proc is an engine.
//
//	opened ──hello──► live ──fail──► dead ──killed──► buried
type proc struct {
	b      *Backend
	group  uint32
	engine ddf.Engine
	device wire.Device
	file   *os.File // a duplicate of the link
	raw    syscall.RawConn
	stop   *os.File      // the writing end of a pipe: the engine stops with each byte
	over   chan struct{} // closed when it is dead
	read   chan struct{} // closed when runReader has ended

	sending sync.Mutex
	// +checklocks:sending
	out []byte
	// +checklocks:sending
	backlog []postponed
	// +checklocks:sending
	backlogBytes int
	waits        chan struct{} // capacity 1: there is a backlog
	written      chan struct{} // closed when runWriter has ended

	// Guarded by Backend.mu:
	seq      uint32
	calls    map[uint32]*call
	imported map[*piece]*importing
	compiled map[*variant]bool
	recorded map[*recording]bool
	local    int    // pieces of its own memory
	sent     []*job // runs that were ordered and have not ended, the oldest first
	context  *backend.Context
	skipping bool   // a run ended early: the engine skips others until it is told to resume
	stopping *job   // that it was told to stop
	stopped  bool   // it was ever told to
	used     uint64 // order of the last job
	dead     bool
	hadRuns  bool // when it died
	buried   bool
}

// importing is memory on its way to an engine, or there.
type importing struct {
	done chan struct{}
	err  error // once done is closed
}

// ready reports whether the engine has it. The caller holds Backend.mu.
func (i *importing) ready() bool {
	if i == nil {
		return false
	}
	select {
	case <-i.done:
		return i.err == nil
	default:
		return false
	}
}

// proc is the engine of a group, which is opened if there is none.
func (b *Backend) proc(ctx context.Context, group uint32) (*proc, error) {
	b.mu.Lock()
	p := b.procs[group]
	if p != nil || b.state == closed {
		b.mu.Unlock()
		if p == nil {
			return nil, errClosed
		}
		return p, nil
	}
	b.wg.Add(1) // Close waits for what comes of this
	b.mu.Unlock()
	defer b.wg.Done()

	select {
	case b.opening <- struct{}{}:
		defer func() { <-b.opening }()
	case <-ctx.Done():
		return nil, gpuerr.New(gpuerr.Busy, "no engine came in time: %v", ctx.Err())
	case <-b.done:
		return nil, errClosed
	}
	if p := b.procOf(group); p != nil {
		return p, nil
	}

	if err := b.awaitDeath(ctx, group); err != nil {
		return nil, err
	}
	e, err := b.open(ctx, group)
	if err != nil {
		return nil, err
	}
	return b.adopt(e, group)
}

// awaitDeath waits until no engine of a group is dying.
func (b *Backend) awaitDeath(ctx context.Context, group uint32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.dying[group] > 0 && b.state != gone {
		if err := b.waitLocked(ctx); err != nil {
			return gpuerr.New(gpuerr.Busy, "the last engine has not died in time: %v", err)
		}
	}
	if b.state == gone {
		return b.goneLocked()
	}
	return nil
}

func (b *Backend) procOf(group uint32) *proc {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.procs[group]
}

// open opens an engine. Where all places are taken an idle engine makes room.
func (b *Backend) open(ctx context.Context, group uint32) (ddf.Engine, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(b.life, stop)()
	for {
		e, err := b.engines.Open(ctx, group)
		if err == nil || !errors.Is(err, gpuerr.Busy) {
			return e, err
		}
		if !b.evict(ctx) {
			return nil, err
		}
	}
}

// evict ends the engine that has been idle longest, if there is one that holds nothing that
// cannot be had again.
func (b *Backend) evict(ctx context.Context) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var victim *proc
	for _, p := range b.procs {
		if len(p.sent) > 0 || len(p.calls) > 0 || p.local > 0 || b.preparing[p.group] {
			continue
		}
		if victim == nil || p.used < victim.used {
			victim = p
		}
	}
	if victim == nil {
		return false
	}
	b.failLocked(victim, "another needs its place", false)
	for !victim.buried {
		if b.waitLocked(ctx) != nil {
			return false
		}
	}
	return b.state != gone
}

// adopt greets an engine. It owns it.
func (b *Backend) adopt(e ddf.Engine, group uint32) (*proc, error) {
	p := &proc{
		b: b, group: group, engine: e, over: make(chan struct{}), read: make(chan struct{}), written: make(chan struct{}), waits: make(chan struct{}, 1), calls: map[uint32]*call{},
		imported: map[*piece]*importing{}, compiled: map[*variant]bool{}, recorded: map[*recording]bool{},
	}
	err := p.connect()
	if err == nil {
		err = p.greet()
	}
	if err == nil && b.device.Name != "" && !sameDevice(b.device, p.device) {
		err = gpuerr.New(gpuerr.Internal, "an engine is of another device than the first: %q, %q", p.device.Name, b.device.Name)
	}

	b.mu.Lock()
	if err == nil && b.state == closed {
		err = errClosed
	}
	if err == nil && p.dead {
		err = gpuerr.New(gpuerr.IO, "an engine died when it was greeted")
	}
	if err == nil {
		b.order++
		p.used = b.order
		b.procs[group] = p
		b.mu.Unlock()
		return p, nil
	}
	b.failLocked(p, err.Error(), false)
	b.mu.Unlock()
	return nil, err
}

// sameDevice compares what tenants were told. An engine may have less memory to give than the
// first one: others have taken some.
func sameDevice(a, b wire.Device) bool {
	a.LocalBytes = b.LocalBytes
	return reflect.DeepEqual(a, b)
}

// connect makes the link ready for the runtime's poller, and begins to read.
func (p *proc) connect() (err error) {
	defer func() {
		if err != nil {
			close(p.read)
			close(p.written)
		}
	}()
	fd, err := unix.FcntlInt(uintptr(p.engine.Link()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return gpuerr.New(gpuerr.IO, "duplicate an engine's link: %v", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return errors.Join(gpuerr.New(gpuerr.IO, "poll an engine's link: %v", err), unix.Close(fd))
	}
	p.file = os.NewFile(uintptr(fd), "engine")
	if p.raw, err = p.file.SyscallConn(); err != nil {
		return gpuerr.New(gpuerr.IO, "poll an engine's link: %v", err)
	}
	p.b.wg.Go(p.runReader)
	p.b.wg.Go(func() {
		defer close(p.written)
		p.runWriter()
	})
	return nil
}

func (p *proc) greet() error {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return gpuerr.New(gpuerr.IO, "make a pipe to an engine: %v", err)
	}
	p.stop = os.NewFile(uintptr(ends[1]), "stop")
	a, err := p.call(&wire.Order{Kind: wire.Hello}, ends[0])
	if closeErr := unix.Close(ends[0]); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	p.device = *a.Device
	return nil
}

// imports has the engine reach a piece of the host's memory.
func (p *proc) imports(x *piece) error {
	b := p.b
	b.mu.Lock()
	i := p.imported[x]
	if i != nil {
		b.mu.Unlock()
		<-i.done // the call has a bound
		return i.err
	}
	i = &importing{done: make(chan struct{})}
	p.imported[x] = i
	b.mu.Unlock()

	_, err := p.call(&wire.Order{Kind: wire.Import, ID: uint32(x.id), Bytes: x.bytes}, x.host.FD())
	b.mu.Lock()
	defer b.mu.Unlock()
	if i.err = err; err != nil {
		delete(p.imported, x)
	}
	close(i.done)
	return err
}

// frees has the engine let go of a piece, if it has it.
func (p *proc) frees(x *piece) error {
	b := p.b
	b.mu.Lock()
	i, local := p.imported[x], x.in == p
	b.mu.Unlock()
	if x.host == nil && !local {
		return nil
	}
	if x.host != nil {
		if i == nil {
			return nil
		}
		if <-i.done; i.err != nil {
			return nil
		}
	}

	_, err := p.call(&wire.Order{Kind: wire.Free, ID: uint32(x.id)}, -1)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(p.imported, x)
	return err
}

// runReader takes the engine's answers until its end.
func (p *proc) runReader() {
	defer close(p.read)
	in := wire.NewReceiver(wire.MaxAnswerBytes)
	for {
		var data []byte
		var err error
		first := true
		waitErr := p.raw.Read(func(fd uintptr) bool {
			var got int
			if first {
				data, got, err = in.Spin(int(fd))
			} else {
				data, got, err = in.Late(int(fd), unix.MSG_DONTWAIT)
			}
			first = false
			if got >= 0 {
				_ = unix.Close(got)
				err = errors.New("an answer came with a descriptor")
			}
			return err != unix.EAGAIN
		})
		if waitErr != nil {
			return // it was closed
		}

		var a *wire.Answer
		if err == nil {
			a, err = wire.ParseAnswer(data)
		}
		if err == nil {
			err = p.b.answer(p, a)
		}
		if err != nil {
			var lie *lieError
			p.b.mu.Lock()
			p.b.failLocked(p, err.Error(), errors.As(err, &lie))
			p.b.mu.Unlock()
			return
		}
	}
}

// failLocked ends an engine. With lie its word was such that none of it can be believed.
//
// +checklocks:b.mu
func (b *Backend) failLocked(p *proc, why string, lie bool) {
	if p.dead {
		return
	}
	p.dead, p.hadRuns = true, len(p.sent) > 0
	close(p.over)
	if b.procs[p.group] == p {
		delete(b.procs, p.group)
	}
	if b.active == p {
		b.active = nil
	}
	b.holdLocked(p.group, 1)
	b.dying[p.group]++
	b.log.Warn("an engine ends", "group", p.group, "runs", len(p.sent), "why", why)
	b.wg.Go(func() { b.runBury(p, why, lie) })
}
