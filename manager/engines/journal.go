package engines

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/sandbox"
)

// Journal is a file with the processes of a function's engines, a line each: the number of
// the process and its start time. Engines die with the manager; one that a GPU's kernel
// driver keeps for seconds is found by the next manager here, which waits for its end before
// it opens the device.
type Journal struct {
	path string

	mu sync.Mutex
	// +checklocks:mu
	ids map[int]string // by process number
}

// maxJournalBytes is far more than the processes that a policy can have.
const maxJournalBytes = 64 << 10

// OpenJournal kills the processes that an earlier manager has noted, and waits for their end.
// An error names one that is still there after patience; it may use the device.
func OpenJournal(path string, patience time.Duration) (*Journal, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the journal of engines: %w", err)
	}

	deadline := time.Now().Add(patience)
	for _, id := range parseJournal(text) {
		if err := endLeftover(id, deadline); err != nil {
			return nil, err
		}
	}

	j := &Journal{path: path, ids: map[int]string{}}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j, j.writeLocked()
}

// parseJournal returns the ids in a journal. A manager that crashed may have left any part of
// a line, which it had not acted on: the file is replaced as a whole.
func parseJournal(text []byte) (ids []string) {
	text = text[:min(len(text), maxJournalBytes)]
	for line := range bytes.Lines(text) {
		id, whole := strings.CutSuffix(string(line), "\n")
		pid, start, ok := strings.Cut(id, ".")
		if n, err := strconv.Atoi(pid); whole && ok && err == nil && n > 1 && digits(start) {
			ids = append(ids, id)
		}
	}
	return ids
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// endLeftover kills a process if it is still the one of that id.
func endLeftover(id string, deadline time.Time) error {
	text, _, _ := strings.Cut(id, ".")
	pid, _ := strconv.Atoi(text) // parsed before
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for engine process %d of an earlier device-manager: %w", pid, err)
	}

	defer unix.Close(fd)
	if now, err := sandbox.ProcessID(pid); err != nil || now != id {
		return nil // another process has the number; the descriptor is of that one
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill engine process %d of an earlier device-manager: %w", pid, err)
	}
	for {
		left := time.Until(deadline)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(int(left.Milliseconds()), 0))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the end of engine process %d: %w", pid, err)
		case n > 0:
			return nil
		default:
			return fmt.Errorf("engine process %d of an earlier device-manager does not end, and may use the device: find out what it waits for (/proc/%d/stack), reset the GPU, or restart the host", pid, pid)
		}
	}
}

// add notes a process before it is used. On a nil Journal nothing is noted.
func (j *Journal) add(pid int) error {
	if j == nil {
		return nil
	}
	id, err := sandbox.ProcessID(pid)
	if err != nil {
		return nil // it has ended
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ids[pid] = id
	if err := j.writeLocked(); err != nil {
		return fmt.Errorf("note an engine: %w", err)
	}
	return nil
}

// remove takes a process that is reaped out. A note that stays does no harm: the id is of no
// other process.
func (j *Journal) remove(pid int) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.ids, pid)
	_ = j.writeLocked()
}

// +checklocks:j.mu
func (j *Journal) writeLocked() error {
	var text bytes.Buffer
	for _, id := range j.ids {
		fmt.Fprintln(&text, id)
	}
	next := j.path + ".next"
	if err := os.WriteFile(next, text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(next, j.path)
}
