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

// spawner starts children from one thread that lives as long as the manager. Pdeathsig is
// sent when the thread that forked ends, not the process: children of any other thread could
// be killed when the Go runtime retires that thread (prctl(2), PR_SET_PDEATHSIG).
type spawner struct {
	jailer   *sandbox.Jailer
	requests chan func()
	quit     chan struct{} // closed by Close
	done     chan struct{}
	leaving  sync.WaitGroup // children that are dead and not reaped yet
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

// Close ends the thread: no child is started from then on. It returns when the dead children
// are reaped.
func (s *spawner) Close() {
	close(s.quit)
	<-s.done
	s.leaving.Wait()
}

// child is a process that this manager started. The manager waits for its exit on its pidfd
// (package os), so a signal never reaches another process with its id.
type child struct {
	name    string
	cmd     *exec.Cmd
	cell    *sandbox.Cell
	confine confinement
	// exited is closed when the process is dead and none of its children runs.
	exited chan struct{}
	actor  Actor          // takes the place of the process; nil: it is a process
	err    error          // how it ended, with its last line; read it after exited
	spaces sandbox.Spaces // of a driver: its namespaces, until it is reaped
}

// start runs a program in a cell of its own. Its files are the descriptors 3, 4, …; its
// environment says only how it is confined; it has no standard input and output, and its own
// process group. Its standard error goes to log, line by line. It dies with this process.
func (s *spawner) start(log *slog.Logger, name string, how confinement, path string, args []string, files ...*os.File) (*child, error) {
	var cell *sandbox.Cell
	var err error
	if how.granted != nil {
		cell, err = s.jailer.EngineCell(name+"-"+how.name, *how.granted, how.limits)
	} else {
		cell, err = s.jailer.Cell(name+"-"+how.name, how.profile, how.limits)
	}
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
	if name == "driver" { // a gate's end is not waited for
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

// endWithin waits for the process to end by itself, kills it when ctx ends, and returns when
// the process is gone. A caller that must not wait so long waits for exited.
func (c *child) endWithin(ctx context.Context) {
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.kill()
		<-c.exited
	}
}

// stderrGrace is how long the output of a dead process is still read. It ends at once, unless
// a process that the child left behind holds the pipe.
const stderrGrace = time.Second

// A dead process is reaped after a pause, so that its last thread has had a CPU to finish on.
// When the kernel drops the /proc entries of both at once, it spins until that thread is done
// (Linux 6.18, shrink_dcache_parent). On one CPU that took a second, and every tenant waited
// for the next driver.
const (
	reapPause = time.Millisecond
	latePause = 20 * time.Millisecond // where no process waits for it
)

// runWait waits for the process's death, reaps it and logs its output.
func (c *child) runWait(log *slog.Logger, r *os.File, leaving *sync.WaitGroup) {
	lastWords := make(chan string, 1)
	go func() { lastWords <- forwardLines(log, r) }()
	status := awaitDeath(c.pid())
	leaving.Add(1)
	defer leaving.Done()
	exhausted := c.cell.Exhausted()

	// If the process was alone and killed by a signal, waiters need not wait for the rest:
	// its threads are gone, and with them its memory and its descriptors.
	// The end of an engine is told when it is reaped.
	early := c.cell.Alone() && status.Signaled() && c.confine.granted == nil
	pause := reapPause
	if early {
		c.end(fmt.Errorf("signal: %v", status.Signal()), status, exhausted, "")
		pause = latePause
	}

	time.Sleep(pause)
	err := c.cmd.Wait()
	c.spaces.Close()
	if err := c.cell.Close(); err != nil { // kills the processes that are left in it
		log.Warn("a process left something behind", "err", err)
	}

	_ = r.SetReadDeadline(time.Now().Add(stderrGrace))
	said := <-lastWords
	r.Close()
	if !early {
		status, _ = c.cmd.ProcessState.Sys().(syscall.WaitStatus) // 0 without a status
		c.end(err, status, exhausted, said)
	}
}

// awaitDeath waits until the process is dead, and does not reap it. It returns 0 if the
// reaper learns more. No other code reaps it, so its id is not reused.
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

// end formats how the process ended.
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
	if said != "" && status.Exited() { // a signal tells enough
		err = fmt.Errorf("%w: %s", err, said)
	}
	c.err = err
	close(c.exited)
}
