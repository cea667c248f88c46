package epoll

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// wait is epoll_pwait(2) without a signal mask, the call that the Go runtime makes as
// well: unix.EpollWait makes another one where there are two, which the sandbox does not
// allow. It returns how many events there are; a wait that a signal has ended has none.
func wait(fd int, events []unix.EpollEvent, millis int) int {
	at, room := uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events))
	var n uintptr
	var errno unix.Errno
	if millis == 0 { // it does not block
		n, _, errno = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), at, room, 0, 0, 0)
	} else {
		n, _, errno = unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), at, room, uintptr(millis), 0, 0)
	}
	if errno != 0 {
		return 0
	}
	return int(n)
}
