package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// install puts the filter on every thread of the process, for good.
func install(filter []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// With TSYNC the result is 0, or the thread that could not follow.
	tid, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return fmt.Errorf("install the system call filter: %w", errno)
	case tid != 0:
		return fmt.Errorf("install the system call filter: thread %d has another one", tid)
	}
	return nil
}

// killProcessAvailable asks the kernel for SECCOMP_RET_KILL_PROCESS.
func killProcessAvailable() error {
	action := uint32(unix.SECCOMP_RET_KILL_PROCESS)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); errno != 0 {
		return fmt.Errorf("this kernel has no seccomp filters that kill (%w); it needs CONFIG_SECCOMP_FILTER", errno)
	}
	return nil
}
