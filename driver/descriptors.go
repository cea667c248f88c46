package driver

import (
	"errors"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// What a predecessor sends is looked at before it is used.

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// closeForeign is closeAll of what another driver has sent and nobody has looked at: to
// close such a thing may take for ever, and nobody waits for that.
func closeForeign(fds []int) {
	if len(fds) > 0 {
		go closeAll(fds)
	}
}

// checkKinds refuses descriptors that are not what they must be: sessions' sockets, and
// for each queue the memory of its ring and the ends of its two pipes. It asks only what
// the kernel answers by itself: to stat a file can be to ask a stranger's daemon.
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

// isSocket: a SEQPACKET socket of a kind that knows its peer's credentials, which are
// those of UNIX sockets.
func isSocket(fd int) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return false
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && cred.Uid != ^uint32(0)
}

// isMemory: only memory files know seals.
func isMemory(fd int) bool {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && seals&unix.F_SEAL_SHRINK != 0
}

// isPipe: only a pipe has a size, which is asked to be what it is for wakes (fcntl(2));
// one that holds more than that is one all the same.
func isPipe(fd, access int) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 4096); err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_ACCMODE == access
}
