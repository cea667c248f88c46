package shm

import (
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Socketpair makes two connected SEQPACKET sockets, close-on-exec.
func Socketpair() (a, b int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, ioError("make a socket pair", err)
	}
	return fds[0], fds[1], nil
}

// dupFD returns a close-on-exec duplicate.
func dupFD(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, ioError("duplicate a descriptor", err)
	}
	return n, nil
}

// closeFD closes the descriptor of a failed constructor. No caller can use its error.
func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

func ioError(doing string, err error) error {
	return gpuerr.New(gpuerr.IO, "cannot %s: %v", doing, err)
}
