package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpu/backend/engine/control"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/internal/sanitize"
	"capgpu/internal/shm"
)

// Process is the process of an engine.
type Process interface {
	PID() int
	// Exited is closed when it is dead and reaped, and nothing that it started runs.
	Exited() <-chan struct{}
	// Reason is how it ended; read it after Exited.
	Reason() error
	Kill()
	// Check fails if a confinement that the policy requires is not in force. It is called when
	// the engine has said that it is ready.
	Check() error
}

// Engine is one process, from its spawn to its end.
type Engine struct {
	pool    *Pool
	number  uint64 // of the pool, from 1
	process Process
	control *net.UnixConn
	began   time.Time
	done    chan struct{}

	// device is what it said of itself; set before it waits.
	device wire.Device

	link  int      // to the core; -1 once it is taken. Guarded by pool.mu.
	ended *os.File // the write end of a pipe: closed when the process is reaped

	// Guarded by pool.mu.
	group   uint32
	open    bool
	testing bool
	why     string // it is killed for; empty: it is not

	killOnce sync.Once
	killed   chan struct{} // closed when Kill has its result
	killErr  error
}

// Done is closed when the process is dead and reaped.
func (e *Engine) Done() <-chan struct{} { return e.done }

// TakeLink returns the descriptors for the driver, once: the link, and the read end of a pipe
// that hangs up when the process is dead and reaped. The caller owns both.
func (e *Engine) TakeLink() (link, ended int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return -1, -1, gpuerr.New(gpuerr.IO, "make a pipe for the end of an engine: %v", err)
	}
	defer r.Close()

	e.pool.mu.Lock()
	link, e.link = e.link, -1
	if link >= 0 {
		e.ended, w = w, nil
	}
	e.pool.mu.Unlock()
	_ = w.Close() // nil does no harm
	if link < 0 {
		return -1, -1, gpuerr.New(gpuerr.IO, "engine %d is dead already", e.number)
	}

	ended, err = unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		unix.Close(link)
		return -1, -1, gpuerr.New(gpuerr.IO, "hand over the end of an engine: %v", err)
	}
	return link, ended, nil
}

// start spawns an engine and returns when it has answered its self-test.
func (p *Pool) start(ctx context.Context) (*Engine, error) {
	e, err := p.spawn()
	if err != nil {
		return nil, err
	}

	m, err := e.hear(ctx, p.cfg.Times.Ready)
	switch {
	case err != nil:
		err = fmt.Errorf("it did not become ready: %w", err)
	case m.Failed != "":
		err = gpuerr.New(gpuerr.IO, "it failed: %s", sanitize.Text(m.Failed))
	case m.Ready == nil:
		err = gpuerr.New(gpuerr.Protocol, "its first word is neither ready nor failed")
	default:
		err = e.process.Check()
	}
	if err != nil {
		err = e.exitOr(err)
		p.end(e, "it did not start")
		return nil, err
	}

	e.device = *m.Ready
	if err := p.record("engine.ready", fmt.Sprintf("pid=%d engine=%d device=%q driver=%q address=%q", e.process.PID(), e.number,
		shown(e.device.Name), shown(e.device.Driver), shown(e.device.PCIAddress))); err != nil {
		p.end(e, "the audit log takes no record")
		return nil, err
	}
	return e, nil
}

// shown is a vendor's text for logs.
func shown(s string) string { return sanitize.Text(s[:min(len(s), 256)]) }

// exitOr returns the exit of the process as the reason if it has ended: it tells more.
func (e *Engine) exitOr(err error) error {
	timer := time.NewTimer(exitGrace)
	defer timer.Stop()
	select {
	case <-e.process.Exited():
		return gpuerr.New(gpuerr.IO, "the engine ended: %v (%v)", e.process.Reason(), err)
	case <-timer.C:
		return err
	}
}

// exitGrace is how long the exit of a process may follow its last word.
const exitGrace = 100 * time.Millisecond

// spawn starts a process. runEnd owns what is left of it when it ends.
func (p *Pool) spawn() (_ *Engine, err error) {
	link, linkTheirs, err := shm.Socketpair()
	if err != nil {
		return nil, err
	}
	linkFile := os.NewFile(uintptr(linkTheirs), "link")
	defer linkFile.Close()
	defer func() {
		if err != nil {
			unix.Close(link)
		}
	}()

	conn, controlFile, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer controlFile.Close()

	process, err := p.cfg.Spawn(linkFile, controlFile)
	if err != nil {
		conn.Close()
		return nil, gpuerr.New(gpuerr.IO, "start an engine: %v", err)
	}

	p.mu.Lock()
	p.last++
	e := &Engine{
		pool: p, number: p.last, process: process, control: conn, began: time.Now(), link: link,
		done: make(chan struct{}), killed: make(chan struct{}),
	}
	p.alive[e] = struct{}{}
	p.mu.Unlock()
	p.running.Go(func() { p.runEnd(e) })

	err = p.cfg.Journal.add(process.PID())
	if err == nil {
		err = p.record("engine.start", fmt.Sprintf("pid=%d engine=%d", process.PID(), e.number))
	}
	if err != nil {
		p.end(e, "no record of it can be kept")
		link = -1 // runEnd's
		return nil, err
	}
	return e, nil
}

// controlPair returns our end of a control socket, and the engine's.
func controlPair() (ours *net.UnixConn, theirs *os.File, err error) {
	a, b, err := shm.Socketpair()
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(a), "control")
	defer f.Close()
	theirs = os.NewFile(uintptr(b), "control")
	c, err := net.FileConn(f) // duplicates
	if err != nil {
		theirs.Close()
		return nil, nil, gpuerr.New(gpuerr.IO, "poll a control socket: %v", err)
	}
	return c.(*net.UnixConn), theirs, nil
}

// hear returns the engine's next word, which comes within patience.
func (e *Engine) hear(ctx context.Context, patience time.Duration) (control.FromEngine, error) {
	if err := e.control.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return control.FromEngine{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = e.control.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	b := make([]byte, control.MaxBytes+1) // one more shows what is too long
	n, err := e.control.Read(b)
	switch {
	case ctx.Err() != nil:
		return control.FromEngine{}, ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return control.FromEngine{}, gpuerr.New(gpuerr.IO, "it said nothing for %v", patience)
	case err != nil:
		return control.FromEngine{}, gpuerr.New(gpuerr.IO, "its control socket is closed")
	}
	m, err := control.ParseFromEngine(b[:n])
	if err != nil {
		return control.FromEngine{}, gpuerr.New(gpuerr.Protocol, "%v", err)
	}
	return m, nil
}

// test asks the engine, which waits, for a known answer.
func (e *Engine) test(ctx context.Context, n uint64) error {
	_ = e.control.SetWriteDeadline(time.Now().Add(e.pool.cfg.Times.Test))
	if _, err := e.control.Write(control.ToEngine{Test: &n}.Bytes()); err != nil {
		return gpuerr.New(gpuerr.IO, "ask it for a known answer: %v", err)
	}
	m, err := e.hear(ctx, e.pool.cfg.Times.Test)
	switch {
	case err != nil:
		return fmt.Errorf("ask it for a known answer: %w", err)
	case m.Failed != "":
		return gpuerr.New(gpuerr.IO, "the known answer was wrong: %s", sanitize.Text(m.Failed))
	case m.Tested == nil || *m.Tested != n:
		return gpuerr.New(gpuerr.Protocol, "it answered another test")
	}
	return nil
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
