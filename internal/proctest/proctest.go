// Package proctest is for tests that start processes, watch those of a service, or hold
// work to a bound of processor time.
package proctest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Process is a process that runs, or has ended and was not yet waited for.
type Process struct {
	PID   int
	State string // as ps has it: S, R, Z …
}

// Children are the processes that parent has started of the programs with this name; with
// "", of all programs. The kernel keeps 15 bytes of a program's name.
func Children(parent int, name string) (list []Process, err error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	for _, e := range all {
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue // not a process, or one that has ended
		}
		// PID (name) state parent …; the name may hold anything, parentheses too.
		open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
		if open < 0 || end < open || name != "" && name != string(text[open+1:end]) {
			continue
		}
		var p Process
		var itsParent int
		if _, err := fmt.Sscan(string(text[:open]), &p.PID); err != nil {
			continue
		}
		if _, err := fmt.Sscan(string(text[end+1:]), &p.State, &itsParent); err == nil && itsParent == parent {
			list = append(list, p)
		}
	}
	return list, nil
}

// WriteProgram writes a program that every user can run at once.
//
// No process is forked meanwhile. A child would have the descriptor that is open for
// writing until it execs, and the kernel runs no file that is open for writing (ETXTBSY;
// golang.org/issue/22315).
func WriteProgram(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, text, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755) // whatever the umask
}
