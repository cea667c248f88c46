package control

import (
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// A descriptor that a stranger sent is dangerous before anything is done with
// it. Once the kernel has installed it, it must be closed, by close or by the
// exit of the process, and closing asks the file system behind it: a FUSE file
// sends FLUSH to its daemon and waits, uninterruptibly, for an answer that a
// hostile daemon never gives. The thread that closes is then beyond SIGKILL, and
// so is its process. fstat asks the daemon as well. What is never installed
// cannot do that: where no control buffer is offered, the kernel drops the
// reference without close, and where SO_PASSRIGHTS is off (Linux 6.16), it
// refuses the sender. So a Conn takes descriptors of trusted peers only
// (ConnOptions.Descriptors). On any other a message that comes with descriptors
// which belong to it is refused by itself (gpuerr.Unimplemented), and one that
// comes with any others ends the socket.

// RefuseDescriptors has the kernel refuse descriptors to whoever sends them to fd
// (EPERM), which a listening socket hands down to what it accepts. Kernels before
// 6.16 cannot; there they are dropped when the message is received.
func RefuseDescriptors(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
}

// What a message is refused with whose descriptors did not come in.
func errNotTaken(t MsgType) *gpuerr.Error {
	return gpuerr.New(gpuerr.Unimplemented, "%v: the other side of this socket takes no descriptors, so this cannot be asked of it", t)
}

func errNoRoom(t MsgType) *gpuerr.Error {
	return gpuerr.New(gpuerr.IO, "%v: the descriptors of this message could not be received: too many are open in the process that was to take them; close objects and try again", t)
}
