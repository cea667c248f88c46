package control

import (
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// A descriptor from a stranger is dangerous even before it is used. Once the kernel
// has installed it, it must be closed, by close or by the exit of the process, and
// closing asks the file system behind it: a FUSE file sends FLUSH to its daemon and
// waits, uninterruptibly, for an answer that a hostile daemon never gives. The
// thread that closes is then beyond SIGKILL, and so is its process. fstat asks the
// daemon as well. A descriptor that is never installed cannot do that. Without a
// control buffer the kernel drops the reference without close, and with
// SO_PASSRIGHTS off (Linux 6.16) it refuses the sender. A Conn therefore accepts
// descriptors only from trusted peers (ConnOptions.Descriptors). On any other Conn,
// a message with the descriptors that its type demands is itself refused
// (gpuerr.Unimplemented), and a message with any other descriptors ends the socket.

// RefuseDescriptors makes the kernel refuse every sender of descriptors to fd
// (EPERM). A listening socket passes this on to the sockets that it accepts.
// Kernels before 6.16 cannot do this; there a descriptor is dropped when the
// message is received.
func RefuseDescriptors(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
}

// errNotTaken refuses a message because its descriptors were not accepted.
func errNotTaken(t MsgType) *gpuerr.Error {
	return gpuerr.New(gpuerr.Unimplemented, "%v: the other side of this socket takes no descriptors, so this cannot be asked of it", t)
}

func errNoRoom(t MsgType) *gpuerr.Error {
	return gpuerr.New(gpuerr.IO, "%v: the descriptors of this message could not be received: too many are open in the process that was to take them; close objects and try again", t)
}
