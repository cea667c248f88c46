package control

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Descriptors says which descriptors a Conn lets into this process.
//
// A descriptor that a stranger sent is dangerous before anything is done with
// it. Once the kernel has installed it, it must be closed, by close or by the
// exit of the process, and closing asks the file system behind it: a FUSE file
// sends FLUSH to its daemon and waits, uninterruptibly, for an answer that a
// hostile daemon never gives. The thread that closes is then beyond SIGKILL, and
// so is its process. fstat asks the daemon as well. What is never installed
// cannot do that: where no control buffer is offered, the kernel drops the
// reference without close, and where SO_PASSRIGHTS is off (Linux 6.16), it
// refuses the sender.
type Descriptors uint8

const (
	// NoDescriptors takes none. A message that comes with descriptors which belong
	// to it is refused by itself (gpuerr.Unimplemented), any other ends the socket.
	NoDescriptors Descriptors = iota
	// AnyDescriptors takes those of a peer that is trusted not to send what
	// blocks: a service's replies to its clients, the manager's Attach.
	AnyDescriptors
	// MemoryDescriptors takes shared memory (memfd) from a stranger; a message with
	// any other ends the socket. What is no memory is closed by a goroutine that
	// nobody waits for, and no more is taken in this process while maxClosing of
	// them hang. That keeps the service going; only NoDescriptors keeps it killable.
	MemoryDescriptors
)

// maxClosing is how many descriptors of strangers may hang in their close.
const maxClosing = 8

// closing counts those being closed, in the whole process.
var closing atomic.Int32

// RefuseDescriptors has the kernel refuse descriptors to whoever sends them to fd
// (EPERM), which a listening socket hands down to what it accepts. Kernels before
// 6.16 cannot; there they are dropped when the message is received.
func RefuseDescriptors(fd int) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
}

// oob is the control buffer to receive with, or nil.
func (c *Conn) oob() []byte {
	if c.takes == MemoryDescriptors && closing.Load() >= maxClosing {
		return nil
	}
	return c.oobBuf
}

// discard closes descriptors that came with a message that is refused.
func (c *Conn) discard(fds []int) {
	for _, fd := range fds {
		if c.takes != MemoryDescriptors || isMemory(fd) {
			unix.Close(fd)
			continue
		}
		closing.Add(1)
		go func() {
			defer closing.Add(-1)
			unix.Close(fd)
		}()
	}
}

// isMemory asks no file system: seals are kept by the kernel's own shared memory,
// and for any other file the question is refused before it gets anywhere.
func isMemory(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil
}

func allMemory(fds []int) bool {
	for _, fd := range fds {
		if !isMemory(fd) {
			return false
		}
	}
	return true
}

// What a message is refused with whose descriptors did not come in.
func errNotTaken(t MsgType) *gpuerr.Error {
	return gpuerr.New(gpuerr.Unimplemented, "%v: the other side of this socket takes no descriptors, so this cannot be asked of it", t)
}

func errNoRoom(t MsgType) *gpuerr.Error {
	return gpuerr.New(gpuerr.IO, "%v: the descriptors of this message could not be received: too many are open, or being closed, in the process that was to take them; close objects and try again", t)
}
