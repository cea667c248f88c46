package manager

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// What a manager leaves that does not stop by itself, and who takes it back:
//
//	its children                  the kernel kills them with it (spawn.go), and closes all they hold
//	functions, claimed            the journal of claims: they are taken up again, reset (internal/pci)
//	DMA memory, mappings, ledger  go with the processes that had them
//	cgroups of its cells          the next Jailer, with whatever still runs in there (internal/sandbox)
//	half a record of the log      audit.Open cuts it off, and records that
//	sockets, half made ones       openRunDir, below
//	that it crashed               its lock still names it; recorded as manager.crashed

// leftovers are what was found in the run directory of managers that crashed.
type leftovers struct {
	pids    []int // of these managers, oldest first; none: the last one stopped in order
	sockets int
	hidden  int // directories of sockets that were being made
}

// hiddenPrefix begins the name of a directory in which a socket is made (tenant.go).
const hiddenPrefix = ".new"

// maxCrashed is how many managers the lock names at most, the latest ones: each of them
// crashed before it had recorded that the one before had.
const maxCrashed = 16

// takeLock notes whose the lock was that did not let it go, and adds this process.
func takeLock(lock *os.File) (pids []int, err error) {
	text := make([]byte, 1024)
	n, _ := lock.ReadAt(text, 0) // what cannot be read tells nothing
	for line := range strings.Lines(string(text[:n])) {
		name, whole := strings.CutSuffix(line, "\n")
		if pid, err := strconv.Atoi(name); whole && err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	pids = pids[max(0, len(pids)-maxCrashed+1):]
	return pids, writeLock(lock, append(slices.Clone(pids), os.Getpid())...)
}

// writeLock has the lock name so many managers.
func writeLock(lock *os.File, pids ...int) error {
	var text []byte
	for _, pid := range pids {
		text = fmt.Appendln(text, pid)
	}
	err := lock.Truncate(0)
	if err == nil {
		_, err = lock.WriteAt(text, 0)
	}
	if err != nil {
		return fmt.Errorf("write the lock of the run directory: %w", err)
	}
	return nil
}

// sweep removes what an earlier manager has left in the run directory: whatever else
// lies there is not ours.
func (d *runDir) sweep() error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("read the run directory: %w", err)
	}

	for _, e := range entries {
		path := filepath.Join(d.path, e.Name())
		switch {
		case e.Type() == fs.ModeSocket && strings.HasSuffix(e.Name(), ".sock"):
			err = os.Remove(path)
			d.left.sockets++
		case e.IsDir() && strings.HasPrefix(e.Name(), hiddenPrefix):
			err = os.RemoveAll(path)
			d.left.hidden++
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove what an earlier manager has left: %w", err)
		}
	}

	return nil
}

// recordCrash records that the manager before this one did not stop by itself. Only
// when that is on disk does the lock forget of it.
func (m *Manager) recordCrash() error {
	left := m.dir.left
	if len(left.pids) == 0 {
		return nil
	}

	var err error
	for i, pid := range left.pids {
		m.log.Warn("the manager before this one crashed; what it had is taken back", "pid", pid)
		detail := fmt.Sprintf("pid=%d", pid)
		if i == len(left.pids)-1 {
			detail += fmt.Sprintf(" sockets=%d hidden=%d", left.sockets, left.hidden)
		}
		if _, err = m.audit.Append("manager.crashed", "", detail); err != nil {
			break
		}
	}

	if err == nil {
		err = m.audit.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}

	return writeLock(m.dir.lock, os.Getpid())
}
