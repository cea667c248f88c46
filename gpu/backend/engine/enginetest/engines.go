// Package enginetest has engines for tests: processes of gpu-engine-lane, and scripted ones.
package enginetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpu/backend/engine/control"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// built is gpu-engine-lane, built once for all tests of a binary.
var built struct {
	once sync.Once
	path string
	err  error
}

// Program is the path of gpu-engine-lane, which it builds, without the race detector.
func Program(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		// Not the test's own folder: other tests use it. Clean removes it.
		dir, err := os.MkdirTemp("", "capgpu-engine")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "gpu-engine-lane")
		cmd := exec.Command("go", "build", "-o", built.path, "capgpu/cmd/gpu-engine-lane")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build gpu-engine-lane: %w\n%s", err, out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}

// Clean removes what Program built. TestMain calls it.
func Clean() {
	if built.path != "" {
		_ = os.RemoveAll(filepath.Dir(built.path)) // it may not be there
	}
}

// Engines starts processes of gpu-engine-lane, as the device-manager would: each is asked for
// its self-test before it is given out, and after a kill the next one for a known answer.
type Engines struct {
	program string
	most    int
	// args are those of the n-th engine, from 0; nil: none has any.
	args func(n int) []string

	mu      sync.Mutex
	started int
	live    map[*Engine]struct{}
	waiting *Engine // has no group
	closed  bool
}

// Start makes engines, at most so many at a time; they end with the test.
func Start(t testing.TB, most int, args func(n int) []string) *Engines {
	t.Helper()
	return StartProgram(t, Program(t), most, args)
}

// StartProgram is Start with another program.
func StartProgram(t testing.TB, program string, most int, args func(n int) []string) *Engines {
	t.Helper()
	e := &Engines{program: program, most: most, args: args, live: map[*Engine]struct{}{}}
	t.Cleanup(e.close)
	return e
}

// Engine is one process.
type Engine struct {
	of      *Engines
	Group   uint32
	cmd     *exec.Cmd
	link    int
	control int
	done    chan struct{}
	device  wire.Device
}

// Open implements ddf.Engines.
func (e *Engines) Open(_ context.Context, group uint32) (ddf.Engine, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.live) >= e.most {
		return nil, gpuerr.New(gpuerr.Busy, "%d engines are open", len(e.live))
	}
	x, err := e.takeLocked()
	if err != nil {
		return nil, err
	}
	x.Group = group
	e.live[x] = struct{}{}
	return x, nil
}

// takeLocked is the engine that waits, or a new one.
func (e *Engines) takeLocked() (*Engine, error) {
	if x := e.waiting; x != nil {
		e.waiting = nil
		return x, nil
	}
	return e.start()
}

// start starts a process and waits for its self-test.
func (e *Engines) start() (x *Engine, err error) {
	x = &Engine{of: e, done: make(chan struct{})}
	var theirs [2]int
	if x.link, theirs[0], err = shm.Socketpair(); err != nil {
		return nil, err
	}
	if x.control, theirs[1], err = shm.Socketpair(); err != nil {
		return nil, err
	}
	link, ctl := os.NewFile(uintptr(theirs[0]), "link"), os.NewFile(uintptr(theirs[1]), "control")
	defer link.Close()
	defer ctl.Close()

	var args []string
	if e.args != nil {
		args = e.args(e.started)
	}
	e.started++
	x.cmd = exec.Command(e.program, append([]string{"--link=3", "--control=4"}, args...)...)
	x.cmd.ExtraFiles, x.cmd.Stderr = []*os.File{link, ctl}, os.Stderr
	if err := x.cmd.Start(); err != nil {
		return nil, err
	}
	go x.runWait()

	m, err := x.hear()
	if err != nil {
		return nil, err
	}
	if m.Ready == nil {
		return nil, gpuerr.New(gpuerr.IO, "an engine failed its self-test: %s", m.Failed)
	}
	x.device = *m.Ready
	return x, nil
}

func (x *Engine) runWait() {
	_ = x.cmd.Wait() // how it ended does not matter
	close(x.done)
}

// patience is how long an engine may take to answer.
const patience = 30 * time.Second

func (x *Engine) hear() (m control.FromEngine, err error) {
	poll := []unix.PollFd{{Fd: int32(x.control), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, int(patience.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return m, fmt.Errorf("an engine does not answer: %w", os.ErrDeadlineExceeded)
		}
		break
	}
	b, _, err := wire.NewReceiver(control.MaxBytes).Receive(x.control, 0)
	if err != nil {
		return m, err
	}
	return control.ParseFromEngine(b)
}

// Link implements ddf.Engine.
func (x *Engine) Link() int { return x.link }

// Done implements ddf.Engine.
func (x *Engine) Done() <-chan struct{} { return x.done }

// PID is the process's.
func (x *Engine) PID() int { return x.cmd.Process.Pid }

// Kill implements ddf.Engine.
func (x *Engine) Kill(context.Context) (err error) {
	_ = x.cmd.Process.Kill() // it may have ended
	<-x.done
	e := x.of
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.live[x]; !ok {
		return nil
	}
	delete(e.live, x)
	x.closeSockets()
	if e.closed {
		return nil
	}

	if e.waiting == nil { // the self-test at its start is a known answer
		e.waiting, err = e.start()
		return err
	}
	n := uint64(e.started)
	next := e.waiting
	if err = wire.Send(next.control, control.ToEngine{Test: &n}.Bytes(), -1, 0); err != nil {
		return err
	}
	m, err := next.hear()
	if err == nil && (m.Tested == nil || *m.Tested != n) {
		err = gpuerr.New(gpuerr.IO, "an engine does not give the known answer: %s", m.Failed)
	}
	return err
}

func (x *Engine) closeSockets() {
	_ = unix.Close(x.link)
	_ = unix.Close(x.control)
}

// Live is the engine of a group; nil if it has none.
func (e *Engines) Live(group uint32) *Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := range e.live {
		if x.Group == group {
			return x
		}
	}
	return nil
}

// Started counts the processes that were started.
func (e *Engines) Started() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.started
}

func (e *Engines) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.waiting != nil {
		e.live[e.waiting] = struct{}{}
	}
	for x := range e.live {
		_ = x.cmd.Process.Kill()
		<-x.done
		x.closeSockets()
	}
}

// Flags are for engines that are all alike.
func Flags(args ...string) func(int) []string { return func(int) []string { return args } }

// Local is the flag of engines with memory of the device's own.
func Local(bytes uint64) string { return "--local=" + strconv.FormatUint(bytes, 10) }

var _ ddf.Engines = (*Engines)(nil)
