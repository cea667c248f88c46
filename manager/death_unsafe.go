package manager

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Codes of a child's end (waitid(2), si_code).
const (
	cldExited = 1
	cldKilled = 2
	cldDumped = 3
)

// statusOffset is where si_status lies in a siginfo of a child, on 64-bit Linux: behind
// signo, errno, code, four bytes unused, pid and uid.
const statusOffset = 24

// statusOf is what wait4 would say of the end that waitid has told; 0: of none.
func statusOf(info *unix.Siginfo) syscall.WaitStatus {
	status := *(*int32)(unsafe.Add(unsafe.Pointer(info), statusOffset))
	const dumped = 0x80
	switch info.Code {
	case cldExited:
		return syscall.WaitStatus(status&0xff) << 8
	case cldKilled:
		return syscall.WaitStatus(status)
	case cldDumped:
		return syscall.WaitStatus(status) | dumped
	}
	return 0
}
