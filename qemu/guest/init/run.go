package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopBound is how long the manager may take to stop everything it started.
const stopBound = 15 * time.Second

// runSmoke runs everything and returns how many checks passed.
func runSmoke(broken string) (checks int, err error) {
	policy := policyPath
	if broken == "manager" {
		policy += ".missing"
	}

	manager, logged, err := startManager(policy)
	if err != nil {
		return 0, err
	}

	checks, err = runClient(manager, broken)
	if err != nil {
		return checks, err
	}
	if err := stopManager(manager); err != nil {
		return checks, err
	}
	if err := <-logged; err != nil {
		return checks, fmt.Errorf("the manager's log: %w", err)
	}

	checks++
	fmt.Printf("ok %d - device-manager stopped cleanly: exit status 0, no process and no socket left\n", checks)

	if err := waitFor("gpuctl audit verify", "/bin/gpuctl", "audit", "verify", "--log="+auditPath); err != nil {
		return checks, err
	}

	checks++
	fmt.Printf("ok %d - the audit log verifies after shutdown\n", checks)
	return checks, nil
}

// startManager starts device-manager. All its output goes to the log; its messages to a
// person go to the console as well. logged delivers the end of that.
func startManager(policy string) (pid int, logged <-chan error, err error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, nil, err
	}

	r, w, err := os.Pipe()
	if err != nil {
		log.Close()
		return 0, nil, err
	}

	pid, err = start(w, w, "/bin/device-manager", "--policy="+policy, "--run-dir="+runDir)
	w.Close()
	if err != nil {
		r.Close()
		log.Close()
		return 0, nil, err
	}

	ended := make(chan error, 1)
	go func() {
		defer r.Close()
		defer log.Close()
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "capgpu: ") {
				fmt.Println(lines.Text())
			}
			if _, err := fmt.Fprintln(log, lines.Text()); err != nil {
				ended <- err
				return
			}
		}
		ended <- lines.Err()
	}()

	return pid, ended, nil
}

// runClient runs the smoke client to its end. The client writes the number of checks to
// descriptor 3, so that a client that exits early with status 0 is noticed.
func runClient(manager int, broken string) (checks int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	client, err := start(os.Stdout, os.Stdout, "/bin/smoke", "-run-dir="+runDir, "-audit="+auditPath, "-break="+broken, w)
	w.Close()
	if err != nil {
		return 0, err
	}
	return awaitClient(client, manager, r)
}

// awaitClient waits for a suite's client, and reads its number of checks.
func awaitClient(client, manager int, r io.Reader) (checks int, err error) {
	for {
		pid, status, err := reap()
		switch {
		case err != nil:
			return 0, err
		case pid == manager:
			_ = unix.Kill(client, unix.SIGKILL)
			return 0, fmt.Errorf("device-manager ended early: %s", describe(status))
		case pid == client:
			if !status.Exited() || status.ExitStatus() != 0 {
				return 0, fmt.Errorf("the client: %s", describe(status))
			}
			said, err := io.ReadAll(r)
			if err != nil {
				return 0, err
			}
			if _, err := fmt.Sscanf(string(said), "%d checks", &checks); err != nil || checks == 0 {
				return 0, fmt.Errorf("the client ended before its last check")
			}
			return checks, nil
		}
	}
}

func stopManager(manager int) error {
	var killed atomic.Bool
	timer := time.AfterFunc(stopBound, func() {
		killed.Store(true)
		_ = unix.Kill(manager, unix.SIGKILL)
	})
	defer timer.Stop()
	if err := unix.Kill(manager, unix.SIGTERM); err != nil {
		return fmt.Errorf("stop device-manager: %w", err)
	}

	for {
		pid, status, err := reap()
		if err != nil {
			return err
		}
		if pid != manager {
			continue
		}
		if killed.Load() {
			return fmt.Errorf("device-manager did not stop within %v", stopBound)
		}
		if !status.Exited() || status.ExitStatus() != 0 {
			return fmt.Errorf("device-manager stopped badly: %s", describe(status))
		}
		break
	}

	// Processes that the manager started and did not reap are our children now.
	if left, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
		return fmt.Errorf("device-manager left processes behind (%s; wait4: %d, %v)", processes(), left, err)
	}

	var sockets []string
	entries, _ := os.ReadDir(runDir)
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 {
			sockets = append(sockets, e.Name())
		}
	}

	if len(sockets) > 0 {
		return fmt.Errorf("device-manager left sockets behind: %v", sockets)
	}

	return nil
}

// waitFor runs a command to its end; its output goes to the console.
func waitFor(what, path string, args ...any) error {
	child, err := start(os.Stdout, os.Stdout, path, args...)
	if err != nil {
		return err
	}

	for {
		pid, status, err := reap()
		if err != nil {
			return err
		}
		if pid == child {
			if !status.Exited() || status.ExitStatus() != 0 {
				return fmt.Errorf("%s: %s", what, describe(status))
			}
			return nil
		}
	}
}

// start runs a program. An *os.File among the arguments becomes descriptor 3.
func start(stdout, stderr *os.File, path string, args ...any) (pid int, err error) {
	argv := []string{path}
	files := []uintptr{0, stdout.Fd(), stderr.Fd()}
	for _, a := range args {
		switch a := a.(type) {
		case string:
			argv = append(argv, a)
		case *os.File:
			files = append(files, a.Fd())
		}
	}

	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: []string{"PATH=/bin", "HOME=/tmp"}, Dir: "/", Files: files})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}

	return pid, nil
}

// reap waits for any child, ours or an orphan's.
func reap() (pid int, status unix.WaitStatus, err error) {
	for {
		pid, err = unix.Wait4(-1, &status, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("wait for a child: %w", err)
	}
	return pid, status, err
}

func describe(s unix.WaitStatus) string {
	if s.Signaled() {
		return fmt.Sprintf("killed by %v", s.Signal())
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}

// processes names the user processes that are there besides us.
func processes() string {
	var names []string
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		cmdline, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if err != nil || len(cmdline) == 0 || d.Name() == "1" || strings.Trim(d.Name(), "0123456789") != "" {
			continue
		}
		names = append(names, d.Name()+" "+strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " "))
	}
	return strings.Join(names, "; ")
}
