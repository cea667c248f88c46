package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Accesses that each version of the Landlock ABI can deny (linux/landlock.h, 6.15).
const (
	landlockFS      = 1<<13 - 1 // 1: execute … make_sym
	landlockRefer   = unix.LANDLOCK_ACCESS_FS_REFER
	landlockTrunc   = unix.LANDLOCK_ACCESS_FS_TRUNCATE
	landlockIoctl   = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockTCP     = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	landlockScopeUN = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	landlockSignal  = unix.LANDLOCK_SCOPE_SIGNAL
)

// pathRight is what a process may do below a path, or with the file there.
type pathRight struct {
	path   string
	rights uint64
	fd     int // of an open file, in place of the path; 0: none
}

// Rights below paths. landlockOfFiles are those that a file can have (linux/landlock.h).
const (
	landlockRead    = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockRun     = landlockRead | unix.LANDLOCK_ACCESS_FS_EXECUTE
	landlockWrite   = landlockRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	landlockNode    = landlockWrite | landlockIoctl
	landlockOfFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE | landlockTrunc | landlockIoctl
)

// landlockRules is the ruleset that handles all that an ABI knows and allows
// nothing of it: there is no rule in it yet.
func landlockRules(abi int) unix.LandlockRulesetAttr {
	var r unix.LandlockRulesetAttr
	for _, step := range []struct {
		abi  int
		bits uint64
		to   *uint64
	}{
		{1, landlockFS, &r.Handled_access_fs},
		{2, landlockRefer, &r.Handled_access_fs},
		{3, landlockTrunc, &r.Handled_access_fs},
		{4, landlockTCP, &r.Handled_access_net},
		{5, landlockIoctl, &r.Handled_access_fs},
		{6, landlockScopeUN, &r.Scoped},
		// ABI 6 has it too, but could then keep the threads of one process, each
		// restricted by its own call, from signalling each other, as Go's
		// scheduler does (kernel commit 18eb75f3af40, Linux 6.15 and stable).
		{7, landlockSignal, &r.Scoped},
	} {
		if abi >= step.abi {
			*step.to |= step.bits
		}
	}

	return r
}

// landlockABI is the version that this kernel has enabled.
func landlockABI() (int, error) {
	abi, err := landlockVersion()
	if err != nil {
		return 0, fmt.Errorf("this kernel has no Landlock (%w); it needs CONFIG_SECURITY_LANDLOCK and \"landlock\" among lsm= on its command line", err)
	}
	return abi, nil
}
