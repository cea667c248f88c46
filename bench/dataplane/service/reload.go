package service

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// reloadTimeout bounds a reload of the policy.
const reloadTimeout = 20 * time.Second

// SetNeighbours reloads the policy with these tenants besides the first one, and
// returns when it is in effect. It does so as an operator does, by the file and
// SIGHUP.
func (s *Service) SetNeighbours(names []string) error {
	before := s.options.Neighbours
	s.options.Neighbours = names
	file := filepath.Join(s.dir, "policy.json")
	if err := os.WriteFile(file+".new", s.options.policy(), 0o600); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}

	reloads := s.log.reloaded()
	if err := unix.Kill(s.ManagerPID(), unix.SIGHUP); err != nil {
		return fmt.Errorf("have the policy reloaded: %w", err)
	}

	for end := time.Now().Add(reloadTimeout); s.log.reloaded() == reloads; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the policy was not reloaded within %v; device-manager said:\n%s", reloadTimeout, s.log)
		}
	}

	for _, name := range append(before, names...) {
		_, err := os.Stat(s.SocketOf(name))
		if there := err == nil; there != slices.Contains(names, name) {
			return fmt.Errorf("after a reload there is a socket of tenant %s: %v; device-manager said:\n%s", name, there, s.log)
		}
	}

	return nil
}

// reloaded is the number of reported reloads of the policy.
func (l *logBuffer) reloaded() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reloads
}
