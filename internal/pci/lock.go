package pci

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// lockName is the file in the folder of the journal that a Claimer locks to be the only one
// there. It is never removed: two could lock two files of one name then.
const lockName = "claims.lock"

// HeldError refuses a folder of claims that another process works with.
type HeldError struct {
	Dir string
	PID int // of the other process; 0: not known
}

func (e *HeldError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s: %s holds the claims in %s, and the functions that are noted there are its own; stop it first, or give this device-manager another --state and other functions", gpuerr.Busy, who, e.Dir)
}

// Unwrap makes errors.Is(err, gpuerr.Busy) work.
func (e *HeldError) Unwrap() error { return gpuerr.Busy }

// lockDir takes the folder until the file is closed. The kernel gives it back however
// the process ends.
func lockDir(dir string) (_ *os.File, err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "open the lock of the claims: %v", err)
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()

	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, &HeldError{dir, holder(f)}
	}
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "lock the claims in %s: %v", dir, err)
	}

	// For an error message of a refused Claimer; no code acts upon it.
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "write the lock of the claims: %v", err)
	}

	return f, nil
}

// holder is the process that is noted in a lock file, or 0.
func holder(f *os.File) int {
	text, err := io.ReadAll(io.LimitReader(f, 20))
	if err != nil {
		return 0
	}
	pid, err := parseCount(strings.TrimSuffix(string(text), "\n"))
	if err != nil {
		return 0
	}
	return pid
}
