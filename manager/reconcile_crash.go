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

// A manager that crashes leaves the following, and each part is taken back:
//
//	its children                  the kernel kills them with it (spawn.go), and closes their files
//	functions, claimed            the journal of claims: the next manager claims and resets them (internal/pci)
//	DMA memory, mappings, ledger  end with the processes that had them
//	cgroups of its cells          the next Jailer removes them with all processes in them (internal/sandbox)
//	half a record of the log      audit.Open cuts it off, and records that
//	sockets, half made ones       openRunDir, below
//	the fact of the crash         its lock still names it; recorded as manager.crashed

// leftovers are the parts of crashed managers that were found in the run directory.
type leftovers struct {
	pids    []int // of these managers, oldest first; none: the last one stopped in order
	sockets int
	hidden  int // directories of sockets that were being made
}

// hiddenPrefix begins the name of a directory in which a socket is made (tenant.go).
const hiddenPrefix = ".new"

// maxCrashed is how many managers the lock names at most, the latest ones. Each of them
// crashed before it had recorded the crash of the one before.
const maxCrashed = 16

// takeLock returns the processes that the lock names, which did not release it, and adds this
// one.
func takeLock(lock *os.File) (pids []int, err error) {
	text := make([]byte, 1024)
	n, _ := lock.ReadAt(text, 0) // an unreadable lock names no process
	for line := range strings.Lines(string(text[:n])) {
		name, whole := strings.CutSuffix(line, "\n")
		if pid, err := strconv.Atoi(name); whole && err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	pids = pids[max(0, len(pids)-maxCrashed+1):]
	return pids, writeLock(lock, append(slices.Clone(pids), os.Getpid())...)
}

// writeLock makes the lock name these managers.
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

// sweep removes the files that an earlier manager has left in the run directory. Other files
// stay.
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

// recordCrash records that the last manager crashed. The lock keeps that manager's name until
// the record is on disk.
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
