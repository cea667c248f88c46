package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/crashpoint"
	"capgpu/internal/sandbox"
)

// spawner starts children from one thread that lives as long as the manager.
// Pdeathsig is about the thread that forked, not the process: from any other
// thread, children could be killed when the Go runtime retires it
// (prctl(2), PR_SET_PDEATHSIG).
type spawner struct {
	jailer   *sandbox.Jailer
	requests chan func()
	quit     chan struct{} // closed by Close
	done     chan struct{}
	leaving  sync.WaitGroup // children that are reaped and not gone yet
}

func newSpawner(jailer *sandbox.Jailer) *spawner {
	s := &spawner{jailer: jailer, requests: make(chan func()), quit: make(chan struct{}), done: make(chan struct{})}
	go s.runThread()
	return s
}

func (s *spawner) runThread() {
	defer close(s.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case start := <-s.requests:
			start()
		case <-s.quit:
			return
		}
	}
}

// Close ends the thread: no child is started any more. It returns when those that are
// reaped are gone.
func (s *spawner) Close() {
	close(s.quit)
	<-s.done
	s.leaving.Wait()
}

// child is a process that this manager started. Its exit is seen by a wait on
// its pidfd (package os), so a signal never reaches another process of its id.
type child struct {
	name    string
	cmd     *exec.Cmd
	cell    *sandbox.Cell
	confine confinement
	// exited is closed when the process is dead, and nothing that it started runs.
	exited chan struct{}
	actor  Actor          // stands for the process; nil: it is one
	err    error          // how it ended, with its last words; read it after exited
	spaces sandbox.Spaces // of a driver: its namespaces, until it is reaped
}

// start runs a program in a cell of its own, with files as descriptors 3, 4, …, an
// environment that says only how it is confined, no standard input and output, and
// its own process group. Its standard error goes to log, line by line. It dies with
// this process.
func (s *spawner) start(log *slog.Logger, name string, how confinement, path string, args []string, files ...*os.File) (*child, error) {
	cell, err := s.jailer.Cell(name+"-"+how.name, how.profile, how.limits)
	if err != nil {
		return nil, fmt.Errorf("confine %s: %w", name, err)
	}

	crashpoint.Here("manager.spawn.cell")
	cmd := exec.Command(path, args...)
	cmd.Env = append([]string{}, crashpoint.ForChild(name)...)
	cmd.Dir = "/"
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a pipe for %s: %w", name, err), cell.Close())
	}

	cmd.Stderr = w
	started := make(chan error, 1)
	select {
	case s.requests <- func() { started <- withShortSlice(name == "driver", func() error { return cell.Start(cmd) }) }:
		err = <-started
	case <-s.quit:
		err = errStopping
	}

	w.Close()
	if err != nil {
		r.Close()
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), cell.Close())
	}

	crashpoint.Here("manager.spawn.started")
	c := &child{name: name, cmd: cmd, cell: cell, confine: how, exited: make(chan struct{})}
	if name == "driver" { // nobody waits for a gate's end
		c.spaces = cell.Spaces(cmd.Process.Pid)
	}

	go c.runWait(log.With("process", name, "pid", cmd.Process.Pid), r, &s.leaving)
	return c, nil
}

func (c *child) pid() int {
	if c.actor != nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// kill ends the process if it still runs.
func (c *child) kill() {
	if c.actor != nil {
		c.actor.Kill()
		return
	}
	_ = c.cmd.Process.Kill()
}

// endWithin waits for the process to end by itself, and kills it when ctx ends. It
// returns when the process is gone: whoever must not wait for that waits for exited.
func (c *child) endWithin(ctx context.Context) {
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.kill()
		<-c.exited
	}
}

// stderrGrace is how long the output of a dead process is still read: it ends at
// once, unless a process that it left behind holds the pipe.
const stderrGrace = time.Second

// A dead process is reaped so much later. What is left of its last thread then has had
// a CPU to be gone: the kernel spins, for as long as that thread has none, when it
// drops what /proc knows of both at once (Linux 6.18, shrink_dcache_parent). On one CPU
// that was a second, with every tenant waiting for the next driver.
const (
	reapPause = time.Millisecond
	latePause = 20 * time.Millisecond // where nobody waits for it
)

// runWait waits for the process's death, reaps it and forwards its output.
func (c *child) runWait(log *slog.Logger, r *os.File, leaving *sync.WaitGroup) {
	lastWords := make(chan string, 1)
	go func() { lastWords <- forwardLines(log, r) }()
	status := awaitDeath(c.pid())
	leaving.Add(1)
	defer leaving.Done()
	exhausted := c.cell.Exhausted()

	// Whoever waits for it need not wait for the rest, where a signal says enough: its
	// threads are gone, and with them its memory and its descriptors.
	early := c.cell.Alone() && status.Signaled()
	pause := reapPause
	if early {
		c.end(fmt.Errorf("signal: %v", status.Signal()), status, exhausted, "")
		pause = latePause
	}

	time.Sleep(pause)
	err := c.cmd.Wait()
	c.spaces.Close()
	if err := c.cell.Close(); err != nil { // it kills what is left in there
		log.Warn("a process left something behind", "err", err)
	}

	_ = r.SetReadDeadline(time.Now().Add(stderrGrace))
	said := <-lastWords
	r.Close()
	if !early {
		status, _ = c.cmd.ProcessState.Sys().(syscall.WaitStatus) // 0 without one
		c.end(err, status, exhausted, said)
	}
}

// awaitDeath waits until the process is dead, and leaves it to be reaped. 0: whoever
// reaps it is told more. Nobody else reaps it, so its number stays its own.
func awaitDeath(pid int) syscall.WaitStatus {
	for {
		var info unix.Siginfo
		switch err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err {
		case nil:
			return statusOf(&info)
		case unix.EINTR:
		default:
			return 0
		}
	}
}

// end says how the process ended.
func (c *child) end(err error, status syscall.WaitStatus, exhausted bool, said string) {
	switch {
	case err == nil:
		err = errors.New("exited by itself")
	case sandbox.Violated(status):
		err = errForbiddenCall
		c.confine.violation(c.pid())
	case exhausted:
		err = errOverMemory
	}
	if said != "" && status.Exited() { // a signal says enough
		err = fmt.Errorf("%w: %s", err, said)
	}
	c.err = err
	close(c.exited)
}
