package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Manager implements conformance.Stack.
func (s *Stack) Manager() int { return s.manager.Process.Pid }

// Driver implements conformance.Stack. It waits for one that runs.
func (s *Stack) Driver(ctx context.Context, device uint32) (int, error) {
	name := s.device.names()[device]
	for {
		s.mu.Lock()
		p := s.ready[name]
		s.mu.Unlock()
		if p.pid != 0 && unix.Kill(p.pid, 0) == nil {
			return p.pid, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s has no driver: %w", name, context.Cause(ctx))
		case <-s.exited:
			return 0, fmt.Errorf("device-manager has ended")
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Kill implements conformance.Stack.
func (s *Stack) Kill(ctx context.Context, device uint32) error {
	pid, err := s.Driver(ctx, device)
	if err != nil {
		return err
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill the driver: %w", err)
	}
	s.over(device, pid)
	return nil
}

// over forgets a driver that is dead, or will be: it may be seen as a zombie for a moment,
// and the next one may not have been told of.
func (s *Stack) over(device uint32, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.device.names()[device]; s.ready[name].pid == pid {
		delete(s.ready, name)
	}
}

// Gates implements conformance.Stack.
func (s *Stack) Gates() []int { return children(s.Manager(), "gpu-gate") }

// children are the processes of a name that a process has started.
func children(parent int, name string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		before, after, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(after)
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) || !strings.HasSuffix(before, "("+name) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
