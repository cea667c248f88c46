package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// newProc makes a private /proc of this process's pid namespace, and returns its path. end
// takes it down. Without the right to mount it is /proc itself.
//
// The kernel keeps a name (a dentry) of each thread that was looked up in a /proc, until the
// thread is gone. The reaper of the process drops these names, and spins on one that its
// thread is dropping itself without a CPU: on a busy host with one CPU that took a second,
// and up to ten (Linux 6.18, proc_flush_pid, shrink_dcache_parent). Names in a /proc that was
// taken down are gone.
func newProc() (path string, end func()) {
	const host = "/proc"
	ctx, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return host, func() {}
	}

	defer unix.Close(ctx)
	if unix.FsconfigCreate(ctx) != nil {
		return host, func() {}
	}

	mount, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return host, func() {}
	}

	// A mount goes with its last descriptor, and that waits for a grace period of RCU.
	return fmt.Sprintf("/proc/self/fd/%d", mount), func() { go unix.Close(mount) }
}
