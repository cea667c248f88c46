package driver

import (
	"errors"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// A driver checks its predecessor's descriptors before it uses them.

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// closeForeign closes descriptors that another driver sent and that are still
// unchecked. Closing such a descriptor may block for ever, so nothing waits for it.
func closeForeign(fds []int) {
	if len(fds) > 0 {
		go closeAll(fds)
	}
}

// checkKinds refuses descriptors of the wrong kind. It expects sessions' sockets,
// and for each queue the memory of its ring and the ends of its two pipes. It asks
// only questions that the kernel answers by itself, because stat on a file can be a
// request to a stranger's daemon.
func checkKinds(sockets, rings []int) error {
	bad := func(what string, i int) error {
		return gpuerr.New(gpuerr.Protocol, "the state of the other driver: descriptor %d is no %s", i, what)
	}

	for i, fd := range sockets {
		if !isSocket(fd) {
			return bad("session's socket", i)
		}
	}

	if len(rings)%3 != 0 {
		return gpuerr.New(gpuerr.Protocol, "the state of the other driver: %d descriptors of rings, which have three each", len(rings))
	}

	for i, fd := range rings {
		switch {
		case i%3 == 0 && !isMemory(fd):
			return bad("ring's memory", len(sockets)+i)
		case i%3 == 1 && !isPipe(fd, unix.O_RDONLY), i%3 == 2 && !isPipe(fd, unix.O_WRONLY):
			return bad("end of a wake pipe", len(sockets)+i)
		}
	}

	return nil
}

// isSocket reports whether fd is a SEQPACKET socket that knows its peer's
// credentials, as only UNIX sockets do.
func isSocket(fd int) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return false
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && cred.Uid != ^uint32(0)
}

// isMemory reports whether fd is a memory file; only those have seals.
func isMemory(fd int) bool {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_SHRINK != 0
}

// isPipe reports whether fd is a pipe with this access mode. Only a pipe has a size
// (fcntl(2)). The size asked for is that of a wake pipe; a refusal because the pipe
// holds more also proves a pipe.
func isPipe(fd, access int) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 4096); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == access
}
