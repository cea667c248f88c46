package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/qemu/guest/tap"
)

const (
	logPath   = "/var/log/device-manager.log"
	stopBound = 15 * time.Second
)

// manager is a running device-manager.
type manager struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // how it ended; read after exited

	mu sync.Mutex
	// +checklocks:mu
	drivers map[string]driver // of each function, the last that was ready
	// +checklocks:mu
	changed chan struct{} // closed and replaced when drivers changes
}

// driver is a driver that the manager has called ready.
type driver struct {
	epoch uint64
	pid   int
}

// startManager starts device-manager as a host does. Its output goes to the log.
func startManager(policy string) (*manager, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}

	defer log.Close()
	m := &manager{
		cmd:    exec.Command("/bin/device-manager", "--policy="+policy, "--run-dir="+runDir),
		exited: make(chan struct{}), drivers: map[string]driver{}, changed: make(chan struct{}),
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	m.cmd.Stdout, m.cmd.Stderr = w, w
	err = m.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}

	out, err := os.OpenFile(logPath, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		m.kill()
		return nil, err
	}

	read := make(chan struct{})
	go func() {
		defer close(read)
		defer r.Close()
		defer out.Close()
		m.runRead(r, out)
	}()

	go func() {
		m.err = m.cmd.Wait()
		<-read
		close(m.exited)
	}()

	return m, nil
}

func (m *manager) runRead(r io.Reader, log io.Writer) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fmt.Fprintln(log, lines.Text())
		var name string
		var d driver
		if n, _ := fmt.Sscanf(lines.Text(), "capgpu: device %s ready (epoch %d, driver pid %d)", &name, &d.epoch, &d.pid); n == 3 {
			m.mu.Lock()
			m.drivers[name] = d
			close(m.changed)
			m.changed = make(chan struct{})
			m.mu.Unlock()
		}
	}
}

// pid is the manager's process.
func (m *manager) pid() int { return m.cmd.Process.Pid }

func (m *manager) running() bool {
	if m == nil {
		return false
	}
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

func (m *manager) kill() {
	_ = m.cmd.Process.Kill()
	select {
	case <-m.exited:
	case <-time.After(stopBound):
	}
}

// waitReady waits for a driver of a later epoch than after.
func (m *manager) waitReady(ctx context.Context, function string, after uint64) (driver, error) {
	for {
		m.mu.Lock()
		d, changed := m.drivers[function], m.changed
		m.mu.Unlock()
		if d.epoch > after {
			return d, nil
		}
		select {
		case <-changed:
		case <-m.exited:
			return d, fmt.Errorf("device-manager has ended: %v", m.err)
		case <-ctx.Done():
			return d, fmt.Errorf("%s has no ready driver after epoch %d: %w", function, after, context.Cause(ctx))
		}
	}
}

// ready is the present driver of a function.
func (s *suite) ready(c *tap.Check, function string) driver {
	return tap.Get[driver](c, "wait for a driver")(s.manager.waitReady(c.Ctx, function, 0))
}

// checkStart starts a manager and waits for both drivers.
func (s *suite) checkStart(name, policy string) {
	s.Check(name, func(c *tap.Check) {
		start := time.Now()
		s.manager = tap.Get[*manager](c, "start device-manager")(startManager(policy))
		for _, f := range []string{edu0, edu1} {
			d := s.ready(c, f)
			c.That(d.epoch == 1, "the first driver of %s has epoch %d", f, d.epoch)
			bound := tap.Get[string](c, "read the function's driver")(boundTo(f))
			c.That(bound == "vfio-pci", "%s is bound to %q", f, bound)
		}
		c.Say("after %v", time.Since(start).Round(10*time.Millisecond))
	})
}

// checkStop stops the manager; nothing of it must be left.
func (s *suite) checkStop(name string) {
	s.Check(name, func(c *tap.Check) {
		c.Must(s.manager.cmd.Process.Signal(unix.SIGTERM), "tell device-manager to stop")
		start := time.Now()
		select {
		case <-s.manager.exited:
		case <-time.After(stopBound):
			s.manager.kill()
			c.Fatalf("device-manager did not stop within %v", stopBound)
		}
		c.Must(s.manager.err, "stop device-manager")
		left := tap.Get[[]process](c, "list processes")(processes())
		c.That(len(left) == 0, "processes are left: %v", left)
		for _, f := range []string{edu0, edu1} {
			bound, err := boundTo(f)
			if os.IsNotExist(err) {
				continue // pulled out
			}
			c.Must(err, "read the function's driver")
			c.That(bound == "", "%s is still bound to %q", f, bound)
			override := tap.Get[[]byte](c, "read driver_override")(os.ReadFile(sysfs(f, "driver_override")))
			said := strings.TrimSpace(string(override))
			c.That(said == "(null)" || said == "", "driver_override of %s is still %q", f, said)
		}
		groups, err := filepath.Glob("/dev/vfio/[0-9]*")
		c.Must(err, "list groups")
		c.That(len(groups) == 0, "groups are still there: %v", groups)
		cells := tap.Get[[]string](c, "list cgroups")(cgroups())
		c.That(len(cells) == 0, "cgroups are left: %v", cells)
		entries := tap.Get[[]os.DirEntry](c, "list the run directory")(os.ReadDir(runDir))
		for _, e := range entries {
			c.That(e.Type()&os.ModeSocket == 0, "socket %s is left", e.Name())
		}
		c.Say("in %v", time.Since(start).Round(10*time.Millisecond))
	})
}

// boundTo is the kernel driver of a function, "" for none.
func boundTo(function string) (string, error) {
	if _, err := os.Stat(sysfs(function)); err != nil {
		return "", err
	}
	link, err := os.Readlink(sysfs(function, "driver"))
	if os.IsNotExist(err) {
		return "", nil
	}
	return filepath.Base(link), err
}

func sysfs(function string, more ...string) string {
	return filepath.Join(append([]string{"/sys/bus/pci/devices", addresses[function]}, more...)...)
}

// showLog prints the end of the manager's log, to find the cause.
func (s *suite) showLog() {
	const lines = 60
	text, err := os.ReadFile(logPath)
	if err != nil {
		fmt.Println("log:", err)
		return
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range all[max(0, len(all)-lines):] {
		fmt.Println("log:", line)
	}
}

// signalled reports whether err is the end of a process by SIGKILL.
func signalled(err error) bool {
	exit, ok := err.(*exec.ExitError)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
