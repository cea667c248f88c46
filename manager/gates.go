package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/sandbox"
	"capgpu/internal/shm"
)

// gatePool keeps gates ready, so that no client waits until a process has started, and hands
// them out in turn.
//
//	spawn ─► asked for a client, confined ─► ready ─► given to a client: the tenant's
//	  ▲                │                       │
//	  └── back-off ◄───┴── it dies, or ────────┘ the program on the disk is another one
//
// A ready gate holds only its link and belongs to no tenant. Before it gets a client, its
// limits are set to those of the tenant. It gets one client in its life. The last ready gate
// does not go to the tenant that got the one before, so that one tenant alone does not empty
// the pool for others. Gates are started from a thread of their own; drivers do not wait for
// them.
type gatePool struct {
	m       *Manager
	spawner *spawner
	ctx     context.Context // of the gates that start
	cancel  context.CancelFunc
	running sync.WaitGroup // one goroutine for each gate, until the gate is gone

	mu sync.Mutex
	// +checklocks:mu
	queue gateQueue
	// +checklocks:mu
	ready []*gateProcess // the oldest first
	// +checklocks:mu
	starting int
	// +checklocks:mu
	last *tenantServer // that got a gate
	// +checklocks:mu
	failed error // of the last start; nil once the next one may be tried
	// +checklocks:mu
	pausing bool // before the next start
	// +checklocks:mu
	respawn backoff
	// +checklocks:mu
	closed bool
}

const (
	// readyGates are kept ready: some 5 MiB each.
	readyGates = 3
	// startingGates start at the same time: the others need the CPU as well.
	startingGates = 2
)

// gateProcess is the process of a gate, with the manager's end of its link.
type gateProcess struct {
	child *child
	conn  *control.Conn
	ask   *control.Message // for a client
	from  programFile
	began time.Time
	owner atomic.Pointer[gateOwner] // nil until it gets a client
}

// gateOwner is the tenant and user of a gate's client.
type gateOwner struct {
	*tenantServer
	uid uint32
}

func newGatePool(m *Manager) *gatePool {
	p := &gatePool{m: m, spawner: newSpawner(m.jailer), respawn: backoff{policy: defaultDevicePolicy().Respawn}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stepLocked()
	return p
}

// Close ends the ready gates. Gates with clients have ended before, or were left behind.
func (p *gatePool) Close(grace *grace) error {
	p.cancel()
	p.mu.Lock()
	p.closed = true
	ready := p.ready
	p.ready = nil
	p.refuseLocked(errStopping)
	p.mu.Unlock()
	for _, g := range ready {
		g.end()
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.running.Wait()
	}()

	over := grace.wait(ended)
	p.spawner.Close()
	if !over {
		return fmt.Errorf("gates did not end within %v", closeGrace)
	}

	return nil
}

// take waits for a gate for a connection of a user of the tenant. gone reports whether the
// client has hung up, without blocking; then the error is errGone.
func (p *gatePool) take(ctx context.Context, s *tenantServer, uid uint32, gone func() bool) (*gateProcess, error) {
	r := &gateRequest{tenant: s, uid: uid, gone: gone, answer: make(chan gateAnswer, 1)}
	if err := p.enter(r); err != nil {
		return nil, err
	}

	select {
	case a := <-r.answer:
		return a.gate, a.err
	case <-ctx.Done():
	}

	p.mu.Lock()
	waiting := p.queue.remove(r)
	p.mu.Unlock()
	if !waiting {
		if a := <-r.answer; a.gate != nil {
			a.gate.end()
		}
	}

	return nil, context.Cause(ctx)
}

var errGone = errors.New("the client has gone")

func (p *gatePool) enter(r *gateRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return errStopping
	case p.failed != nil:
		return p.failed
	}
	p.queue.add(r)
	p.stepLocked()
	return nil
}

// stepLocked hands out ready gates and starts missing ones.
//
// +checklocks:p.mu
func (p *gatePool) stepLocked() {
	for len(p.ready) > 0 {
		var except *tenantServer
		if len(p.ready) == 1 {
			except = p.last
		}
		r := p.queue.next(except)
		if r == nil {
			break
		}
		if r.gone() {
			r.answer <- gateAnswer{err: errGone}
			continue
		}
		r.answer <- gateAnswer{gate: p.ready[0]}
		p.ready, p.last = p.ready[1:], r.tenant
	}

	for p.starting < startingGates && len(p.ready)+p.starting < readyGates+p.queue.waiting && !p.pausing && !p.closed {
		p.starting++
		p.running.Go(p.runGate)
	}
}

// +checklocks:p.mu
func (p *gatePool) refuseLocked(err error) {
	for r := p.queue.next(nil); r != nil; r = p.queue.next(nil) {
		r.answer <- gateAnswer{err: err}
	}
}

// runGate starts a gate and watches it until it is gone.
func (p *gatePool) runGate() {
	g, err := p.start()
	p.mu.Lock()
	p.starting--
	switch {
	case p.closed:
	case err != nil:
		p.m.log.Warn("no gate could be started", "err", err)
		p.failed = refusalOf(err)
		p.refuseLocked(p.failed)
		p.pauseLocked(0)
	default:
		p.ready = append(p.ready, g)
	}

	p.stepLocked()
	closed := p.closed
	p.mu.Unlock()
	if err != nil {
		return
	}
	if closed {
		g.end()
	}

	<-g.child.exited
	if g.owner.Load() == nil {
		p.lost(g)
	}
}

// refusalOf returns the error for the client.
func refusalOf(err error) error {
	if errors.Is(err, errNotConfined) {
		return gpuerr.New(gpuerr.Denied, "the gate is not confined as the policy requires; device-manager's log says why")
	}
	return gpuerr.New(gpuerr.Busy, "no gate could be started, and device-manager's log says why; connect again in some seconds, or use the tenant socket")
}

// lost replaces a ready gate that has died.
func (p *gatePool) lost(g *gateProcess) {
	g.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, x := range p.ready {
		if x == g {
			p.ready = append(p.ready[:i:i], p.ready[i+1:]...)
			p.m.log.Warn("a gate was lost that had no client", "pid", g.child.pid(), "err", g.child.err)
			p.pauseLocked(time.Since(g.began))
			p.stepLocked()
			return
		}
	}
}

// pauseLocked delays the next start; the sooner the last gates died, the longer.
//
// +checklocks:p.mu
func (p *gatePool) pauseLocked(lived time.Duration) {
	delay, _ := p.respawn.died(time.Now(), lived, true) // never given up
	if delay == 0 || p.pausing || p.closed {
		return
	}
	p.pausing = true
	p.running.Go(func() {
		sleep(p.ctx, delay)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pausing, p.failed = false, nil
		p.stepLocked()
	})
}

var errNotConfined = errors.New("the gate is not confined")

// start starts a gate, and returns when it is confined and asks for a client.
func (p *gatePool) start() (_ *gateProcess, err error) {
	from, err := programOf(p.m.cfg.GatePath, nil)
	if err != nil {
		return nil, err
	}

	ours, theirs, err := shm.Socketpair()
	if err != nil {
		return nil, err
	}

	link := os.NewFile(uintptr(theirs), "gate link")
	defer link.Close()
	g := &gateProcess{from: from, began: time.Now()}
	if g.conn, err = control.NewConn(ours, control.ConnOptions{}); err != nil {
		return nil, err
	}

	log := slog.New(ownedHandler{Handler: p.m.log.Handler(), owner: &g.owner})
	if g.child, err = p.spawner.start(log, "gate", p.m.confineGate(&g.owner), from.path, nil, link); err != nil {
		return nil, errors.Join(err, g.conn.Close())
	}

	link.Close() // now only the gate holds it, so its death ends the wait for its message
	if err := p.hear(g); err != nil {
		g.end()
		if newGrace(exitGrace).wait(g.child.exited) && !errors.Is(err, errNotConfined) {
			err = fmt.Errorf("it died: %w", g.child.err)
		}
		return nil, err
	}

	return g, nil
}

// hear waits for the gate's first message. The gate is confined by then.
func (p *gatePool) hear(g *gateProcess) (err error) {
	shut := func() { g.conn.Close() }
	late := time.AfterFunc(p.m.cfg.ReadyTimeout, shut)
	defer late.Stop()
	stop := context.AfterFunc(p.ctx, shut)
	defer stop()
	if g.ask, err = g.conn.Recv(); err != nil {
		return fmt.Errorf("it did not ask for a client: %w", err)
	}
	if g.ask.Type != control.TypeAwaitClient || g.ask.Reply {
		return gpuerr.New(gpuerr.Protocol, "it said %v, and is to ask for a client", g.ask.Type)
	}
	if err := g.child.checkConfined(p.m.log, slog.LevelDebug); err != nil {
		return fmt.Errorf("%w: %w", errNotConfined, err)
	}

	return nil
}

// give passes the gate its client and a tenant socket, which stay the caller's. After an
// error the gate is not usable.
func (g *gateProcess) give(s *tenantServer, uid uint32, client, socket int) error {
	if now, err := programOf(g.from.path, nil); err != nil || !now.same(g.from) {
		return errStale
	}
	g.owner.Store(&gateOwner{s, uid})
	if err := g.child.cell.SetLimits(s.gateLimits()); err != nil {
		return err
	}
	err := g.conn.Send(s.ctx, control.NewReply(g.ask, nil, client, socket))
	return errors.Join(err, g.conn.Close())
}

// end kills a gate that has no client.
func (g *gateProcess) end() {
	g.child.kill()
	g.conn.Close()
}

// hungUp reports whether the other end of a connection is closed. A client that has shut down
// only its sending side still receives.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// confineGate returns the confinement of a gate without a client. No memory is granted to it.
func (m *Manager) confineGate(owner *atomic.Pointer[gateOwner]) confinement {
	p := &m.cfg.Policy.Sandbox
	return confinement{
		name: "waiting", profile: sandbox.Gate,
		limits: sandbox.Limits{MemoryBytes: p.GateMemoryBytes, Pids: p.GatePids},
		violation: func(pid int) {
			if s := owner.Load(); s != nil {
				s.gateViolated(pid)
				return
			}
			if _, err := m.audit.Append("sandbox.violation", "", fmt.Sprintf("gate pid=%d", pid)); err != nil {
				m.log.Error("write the audit log", "kind", "sandbox.violation", "err", err)
			}
		},
	}
}

// ownedHandler adds the tenant and the user of a gate to each log line about the gate.
type ownedHandler struct {
	slog.Handler
	owner *atomic.Pointer[gateOwner]
}

func (h ownedHandler) Handle(ctx context.Context, r slog.Record) error {
	if s := h.owner.Load(); s != nil {
		r.AddAttrs(slog.String("tenant", s.policy().Name), slog.Uint64("uid", uint64(s.uid)))
	}
	return h.Handler.Handle(ctx, r)
}

func (h ownedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return ownedHandler{Handler: h.Handler.WithAttrs(attrs), owner: h.owner}
}

func (h ownedHandler) WithGroup(name string) slog.Handler {
	return ownedHandler{Handler: h.Handler.WithGroup(name), owner: h.owner}
}
