package manager

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"capgpu/internal/crashpoint"
)

const lockName = "lock"

// runDir is the directory of the sockets. Its lock file makes this process its only manager;
// the kernel releases the lock however the process ends.
type runDir struct {
	path string
	lock *os.File  // names this process while it is held
	left leftovers // of a manager that crashed
}

// openRunDir makes or takes over a directory that only this user can write to. It removes the
// leftovers of a manager that crashed.
func openRunDir(path string) (*runDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find the run directory: %w", err)
	}
	if err := MakeRunDir(path); err != nil {
		return nil, err
	}

	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the run directory: %w", err)
	}

	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another device-manager runs in %s; stop it first, or give this one another --run-dir", path)
		}
		return nil, fmt.Errorf("lock the run directory: %w", err)
	}

	d := &runDir{path: path, lock: lock}
	if d.left.pids, err = takeLock(lock); err == nil {
		crashpoint.Here("manager.start.locked")
		err = d.sweep()
	}

	if err != nil {
		return nil, errors.Join(err, d.Close())
	}

	return d, nil
}

// MakeRunDir makes a run directory with mode 0700, or checks an existing one. Call it before
// putting a file into it: in a shared folder such as /tmp another user may have made it.
func MakeRunDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the run directory: %w", err)
	}
	return checkRunDir(path)
}

// checkRunDir refuses a directory in which another user could replace a socket or a link.
func checkRunDir(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("look at the run directory: %w", err)
	}

	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fmt.Errorf("look at the run directory %s: %w", path, err)
	}

	switch {
	case !info.IsDir():
		return fmt.Errorf("the run directory %s is not a directory; remove it or choose another with --run-dir", path)
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("the run directory %s belongs to user %d, not to us (%d); choose another with --run-dir", path, st.Uid, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("others can write to the run directory %s (mode %#o); chmod 0755 or stricter", path, info.Mode().Perm())
	}

	return nil
}

// socketPath is where a tenant connects.
func (d *runDir) socketPath(tenant string) string { return filepath.Join(d.path, tenant+".sock") }

// capnpSocketPath is where a tenant's Cap'n Proto clients connect.
func (d *runDir) capnpSocketPath(tenant string) string {
	return filepath.Join(d.path, tenant+".capnp.sock")
}

// Close releases the directory for the next manager. The emptied lock file stays: removing it
// would let two managers lock two files of one name.
func (d *runDir) Close() error { return errors.Join(d.lock.Truncate(0), d.lock.Close()) }
