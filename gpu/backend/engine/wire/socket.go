package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/internal/shm"
)

// A message is one datagram. One that is longer than MaxDatagramBytes lies in a sealed memfd,
// and the datagram has its length. A descriptor that an order comes with is never beside one.
const (
	MaxDatagramBytes = 32 << 10
	longMark         = 0xFF // instead of a kind; behind it the length, a u32
	longBytes        = 5
)

// Send sends a message and, if fd is not negative, a descriptor, which is lent. It never waits
// where flags has unix.MSG_DONTWAIT: the error is unix.EAGAIN then.
func Send(socket int, b []byte, fd, flags int) error {
	if len(b) > MaxDatagramBytes {
		m, err := shm.Create("capgpu-order", uint64(len(b)))
		if err != nil {
			return err
		}
		defer m.Close()
		to, err := m.Map(0, uint64(len(b)), true)
		if err != nil {
			return err
		}
		copy(to, b)
		if err := shm.Unmap(to); err != nil {
			return err
		}
		b, fd = binary.LittleEndian.AppendUint32([]byte{longMark}, uint32(len(b))), m.FD()
	}

	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	for {
		err := unix.Sendmsg(socket, b, rights, nil, unix.MSG_NOSIGNAL|flags)
		if err != unix.EINTR {
			return err
		}
	}
}

// Receiver takes messages off a socket. It is for one goroutine.
type Receiver struct {
	most   uint64 // bytes of a message
	buf    [MaxDatagramBytes + 1]byte
	rights [64]byte // room for more descriptors than one, so that none is left open unseen
	long   []byte

	spin  time.Duration // of the next Spin
	began time.Time     // the last one
}

// NewReceiver bounds messages to so many bytes.
func NewReceiver(most uint64) *Receiver { return &Receiver{most: most} }

// spinTime is the longest that a side looks for the next message before it sleeps: a sleep and a
// wake of each side cost more than a short launch. It looks for as long as lately paid.
const (
	spinTime  = 50 * time.Microsecond
	spinLeast = time.Microsecond
)

// Spin looks for a message for a while, in the hope that one comes soon. The error is unix.EAGAIN
// if none does: the caller sleeps, and then takes it with Late.
func (r *Receiver) Spin(socket int) (b []byte, fd int, err error) {
	r.began = time.Now()
	for until := r.began.Add(r.spin); ; runtime.Gosched() {
		b, fd, err = r.Receive(socket, unix.MSG_DONTWAIT)
		if err != unix.EAGAIN {
			r.learn()
			return b, fd, err
		}
		if time.Now().After(until) {
			return b, fd, err
		}
	}
}

// Late is Receive after a Spin that found nothing.
func (r *Receiver) Late(socket, flags int) (b []byte, fd int, err error) {
	if b, fd, err = r.Receive(socket, flags); err != unix.EAGAIN {
		r.learn()
	}
	return b, fd, err
}

// learn lets the next Spin take longer if a message came within spinTime, and else less.
func (r *Receiver) learn() {
	if time.Since(r.began) <= spinTime {
		r.spin = min(max(2*r.spin, spinLeast), spinTime)
	} else {
		r.spin /= 2
	}
}

// Receive returns the next message, which is valid until the next call, and the descriptor that
// came with it, which the caller owns, or -1. The error is io.EOF when the peer is gone, and
// unix.EAGAIN where flags says not to wait.
func (r *Receiver) Receive(socket, flags int) (b []byte, fd int, err error) {
	var n, rn, got int
	for {
		n, rn, got, _, err = unix.Recvmsg(socket, r.buf[:], r.rights[:], unix.MSG_CMSG_CLOEXEC|flags)
		if err != unix.EINTR {
			break
		}
	}
	if err == unix.ECONNRESET { // it left our messages unread
		return nil, -1, io.EOF
	}
	if err != nil {
		return nil, -1, err
	}

	fds := descriptors(r.rights[:rn])
	if got&unix.MSG_CTRUNC != 0 || len(fds) > 1 {
		closeAll(fds)
		return nil, -1, errors.New("a message came with more than one descriptor")
	}
	fd = -1
	if len(fds) == 1 {
		fd = fds[0]
	}

	switch {
	case n == 0:
		closeAll(fds)
		return nil, -1, io.EOF
	case n > MaxDatagramBytes || got&unix.MSG_TRUNC != 0:
		closeAll(fds)
		return nil, -1, fmt.Errorf("a message of more than %d bytes in one datagram", MaxDatagramBytes)
	case r.buf[0] == longMark:
		b, err = r.readLong(r.buf[:n], fd)
		return b, -1, err
	}
	return r.buf[:n], fd, nil
}

// readLong copies a message out of its memfd, once. It owns the descriptor.
func (r *Receiver) readLong(head []byte, fd int) ([]byte, error) {
	if fd < 0 || len(head) != longBytes {
		closeAll([]int{fd})
		return nil, errors.New("a long message without its memory")
	}
	bytes := uint64(binary.LittleEndian.Uint32(head[1:]))
	if bytes <= MaxDatagramBytes || bytes > r.most {
		closeAll([]int{fd})
		return nil, fmt.Errorf("a long message of %d bytes; it has up to %d", bytes, r.most)
	}

	m, err := shm.FromFD(fd, bytes)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	from, err := m.Map(0, bytes, false)
	if err != nil {
		return nil, err
	}
	if uint64(cap(r.long)) < bytes {
		r.long = make([]byte, bytes)
	}
	r.long = r.long[:bytes]
	_, faulted := shm.Guard(func() { copy(r.long, from) })
	if err := shm.Unmap(from); err != nil {
		return nil, err
	}
	if faulted {
		return nil, errors.New("a long message is gone while it is read")
	}
	return r.long, nil
}

func descriptors(rights []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for i := range messages {
		if more, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}
