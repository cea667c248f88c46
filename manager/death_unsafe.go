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

// statusOffset is the offset of si_status in a siginfo of a child, on 64-bit Linux: after
// signo, errno, code, four bytes of padding, pid and uid.
const statusOffset = 24

// statusOf returns the status that wait4 would return for waitid's info; 0 for none.
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
