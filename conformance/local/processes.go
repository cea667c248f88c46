package local

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/proctest"
)

// Manager implements conformance.Stack.
func (s *Stack) Manager() int { return s.manager.Process.Pid }

// Driver implements conformance.Stack. It waits for a running driver.
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

// over forgets a driver that is dead, or about to be: it may be a zombie for a
// moment, and the next one may not have been reported yet.
func (s *Stack) over(device uint32, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.device.names()[device]; s.ready[name].pid == pid {
		delete(s.ready, name)
	}
}

// Gates implements conformance.Stack.
func (s *Stack) Gates() (pids []int) {
	gates, _ := proctest.Children(s.Manager(), "gpu-gate")
	for _, gate := range gates {
		pids = append(pids, gate.PID)
	}
	return pids
}
