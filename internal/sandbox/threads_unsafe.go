package sandbox

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Credentials belong to threads, not to processes: what takes authority away is
// done on every thread of the Go runtime.

var errCgo = errors.New("this program is built with cgo, where Go does not know every thread; build it with CGO_ENABLED=0")

// checkThreads says whether system calls can be made on all threads.
func checkThreads() error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0); errno != 0 {
		return errCgo // ENOTSUP is its only error
	}
	return nil
}

// prctlAll is prctl on every thread.
func prctlAll(option int, a, b uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), a, b, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// noNewPrivs: no exec gives privileges any more. Landlock and seccomp need it.
func noNewPrivs() error {
	if err := prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("refuse new privileges: %w", err)
	}
	return nil
}

// dropCapabilities empties all five sets. The bounding set stays as it is for a process that
// may not change it; such a process has no capability anyway, and after noNewPrivs no way
// leads from the bounding set into another one.
func dropCapabilities() error {
	for c := uintptr(0); c <= maxCapability; c++ {
		err := prctlAll(unix.PR_CAPBSET_DROP, c, 0)
		if err == unix.EINVAL { // one past the last that this kernel has
			break
		}
		if err != nil && err != unix.EPERM {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}

	if err := prctlAll(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}

	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0); errno != 0 {
		return fmt.Errorf("drop the capabilities: %w", errno)
	}

	return nil
}

const maxCapability = 63 // two words of 32 bits (linux/capability.h, version 3)

func landlockVersion() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(abi), nil
}

// restrict puts every thread under a ruleset that leaves the rights of paths, and none else.
// A path that is not there is left out.
func restrict(rules unix.LandlockRulesetAttr, paths []pathRight) error {
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
	if errno != 0 {
		return fmt.Errorf("make a landlock ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, p := range paths {
		if err := leave(fd, rules, p); err != nil {
			return fmt.Errorf("leave %s to the process: %w", p.path, err)
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("enforce a landlock ruleset: %w", errno)
	}
	return nil
}

// leave adds a rule: a right to a file, or to all below a folder.
func leave(ruleset uintptr, rules unix.LandlockRulesetAttr, p pathRight) error {
	at := p.fd
	if at == 0 {
		fd, err := unix.Open(p.path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		at = fd
	}
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	rights := p.rights & rules.Handled_access_fs
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= landlockOfFiles
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(at)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// execDescriptor executes the program that fd holds (execveat(2), AT_EMPTY_PATH). It returns
// only with an error.
func execDescriptor(fd int, args, env []string) error {
	argv, err := syscall.SlicePtrFromStrings(args)
	if err != nil {
		return err
	}
	envp, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	var empty byte
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(&empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	return errno
}
