package control

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// ConnOptions tunes a Conn; the zero value follows docs/wire.md.
type ConnOptions struct {
	WriteTimeout time.Duration // 0: 5 s
	Descriptors  bool          // accept descriptors: only from a trusted peer, see rights.go
}

// writeTimeout limits how long a peer may leave its replies unread.
const writeTimeout = 5 * time.Second

// Conn is one end of a SEQPACKET socket. Send may be called from any number of
// goroutines, Recv from one at a time. Waiting blocks no OS thread.
type Conn struct {
	file         *os.File
	raw          syscall.RawConn
	writeTimeout time.Duration

	sending chan struct{} // holds one token: the right to send
	sendBuf []byte        // the holder's

	// These belong to the receiver; see Recv.
	recvBuf []byte
	oobBuf  []byte // nil: no descriptor is accepted

	dropped   atomic.Pointer[gpuerr.Error] // why the Conn closed itself
	closeOnce sync.Once
	closeErr  error
}

// NewConn takes ownership of fd, a connected SEQPACKET socket, also when it fails.
func NewConn(fd int, opts ConnOptions) (*Conn, error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_SEQPACKET {
		closeAll([]int{fd})
		return nil, gpuerr.New(gpuerr.Protocol, "descriptor %d is no SEQPACKET socket", fd)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		closeAll([]int{fd})
		return nil, gpuerr.New(gpuerr.IO, "cannot make a socket non-blocking: %v", err)
	}

	file := os.NewFile(uintptr(fd), "seqpacket socket")
	if err := file.SetDeadline(time.Time{}); err != nil { // only a file in the poller has deadlines
		file.Close()
		return nil, gpuerr.New(gpuerr.IO, "cannot poll a socket: %v", err)
	}

	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, gpuerr.New(gpuerr.IO, "cannot poll a socket: %v", err)
	}

	c := &Conn{
		file: file, raw: raw, writeTimeout: opts.WriteTimeout,
		sending: make(chan struct{}, 1),
		recvBuf: make([]byte, MaxMessageBytes+1),
	}

	if opts.Descriptors {
		c.oobBuf = make([]byte, unix.CmsgSpace(MaxFDs*4))
	} else {
		RefuseDescriptors(fd)
	}

	if c.writeTimeout <= 0 {
		c.writeTimeout = writeTimeout
	}

	return c, nil
}

// expectLong makes room for the long replies; only a caller gets them.
func (c *Conn) expectLong() { c.recvBuf = make([]byte, MaxLongBytes+1) }

// Send sends one message. The descriptors are only lent; the message may be reused
// afterwards. A peer that leaves the socket full for the write timeout is dropped:
// the Conn is closed. When ctx ends first, nothing was sent.
func (c *Conn) Send(ctx context.Context, m *Message) error {
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	case <-ctx.Done():
		return ctx.Err()
	}

	if err := ctx.Err(); err != nil {
		return err
	}

	b, err := appendMessage(c.sendBuf[:0], m)
	if err != nil {
		return err
	}

	c.sendBuf = b
	var oob []byte
	if len(m.FDs) > 0 {
		oob = unix.UnixRights(m.FDs...)
	}

	err = c.sendmsg(ctx, b, oob)
	switch {
	case err == nil:
		return nil

	case ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.dropped.CompareAndSwap(nil, gpuerr.New(gpuerr.Disconnected, "the peer did not read for %v and was dropped", c.writeTimeout))
		c.Close()
		return c.closedError()

	case errors.Is(err, os.ErrClosed):
		return c.closedError()
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.ENOTCONN):
		return gpuerr.New(gpuerr.Disconnected, "%v: the peer is gone", m.Type)

	case errors.Is(err, unix.EPERM) && len(m.FDs) > 0:
		return errNotTaken(m.Type)
	default:
		return gpuerr.New(gpuerr.IO, "%v: cannot send: %v", m.Type, err)
	}
}

// sendmsg sends one datagram, whole or not at all, before the write timeout. The
// caller holds the token.
func (c *Conn) sendmsg(ctx context.Context, b, oob []byte) error {
	if c.file.SetWriteDeadline(time.Now().Add(c.writeTimeout)) != nil {
		return os.ErrClosed
	}

	if ctx.Done() != nil {
		interrupted := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			c.file.SetWriteDeadline(time.Unix(1, 0))
			close(interrupted)
		})
		defer func() {
			if !stop() {
				<-interrupted // otherwise it would hit the next sender's deadline
			}
		}()
	}

	var sendErr error
	err := c.raw.Write(func(fd uintptr) bool {
		for {
			sendErr = unix.Sendmsg(int(fd), b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			if sendErr != unix.EINTR {
				return sendErr != unix.EAGAIN
			}
		}
	})
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return os.ErrClosed // RawConn reports a closed file by an error without a value
	}
	if err != nil {
		return err
	}

	return sendErr
}

// Recv waits for the next message. The caller owns its descriptors. Recv fails with
// io.EOF when the peer is gone, with gpuerr.Protocol on a datagram that breaks the
// rules (its descriptors are closed), and with gpuerr.Closed after Close. If the
// kernel could not install a message's descriptors, the message comes without them,
// and is marked refused.
func (c *Conn) Recv() (*Message, error) {
	var n, oobn, flags int
	var recvErr error
	reset := false
	err := c.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), c.recvBuf, c.oobBuf, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
			switch {
			case recvErr == unix.EINTR:
			case recvErr == unix.ECONNRESET && !reset:
				// The peer closed with unread messages of ours. The kernel reports
				// that once, before the peer's earlier messages, which still count.
				reset = true
			default:
				return recvErr != unix.EAGAIN
			}
		}
	})

	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // interruptRead
		return nil, err
	case err != nil:
		return nil, c.closedError()
	case errors.Is(recvErr, unix.ECONNRESET): // the peer left with our messages unread
		return nil, io.EOF
	case recvErr != nil:
		return nil, gpuerr.New(gpuerr.IO, "cannot receive: %v", recvErr)
	}

	fds, err := receivedFDs(c.oobBuf[:oobn])
	if n == 0 { // the end, or an empty datagram, which counts as the end
		closeAll(fds)
		return nil, io.EOF
	}

	m, err := c.check(c.recvBuf[:n], flags, fds, err)
	if err != nil || m.refused != nil {
		closeAll(fds)
	}

	return m, err
}

// check makes a Message of a datagram. On an error, and for a refused message, the
// descriptors stay open.
func (c *Conn) check(b []byte, flags int, fds []int, fdErr error) (*Message, error) {
	bad := func(m *Message, format string, args ...any) error {
		e := &badMessage{err: gpuerr.New(gpuerr.Protocol, format, args...), typ: m.Type, seq: m.Seq}
		if m.Reply {
			e.seq = 0
		}
		return e
	}

	if flags&unix.MSG_TRUNC != 0 {
		// The datagram is cut, but its header is complete, so it can be answered.
		return nil, bad(headOf(b), "a message of more than %d bytes", len(b)-1)
	}

	m, count, err := parseMessage(b)
	more := flags&unix.MSG_CTRUNC != 0 // than were installed
	switch {
	case err != nil:
		return nil, err

	case fdErr != nil:
		return nil, bad(&m, "%v: %v", m.Type, fdErr)
	case c.oobBuf == nil:
		if more != (count > 0) {
			return nil, bad(&m, "%v: fds: %d announced, not so many came", m.Type, count)
		}
		if more {
			m.refused = errNotTaken(m.Type)
		}

	case more && len(fds) < count:
		// Fewer arrived than this side would accept: its own limit of descriptors
		// is reached.
		m.refused = errNoRoom(m.Type)

	case more:
		return nil, bad(&m, "%v: more descriptors came than the %d announced", m.Type, count)
	case count != len(fds):
		return nil, bad(&m, "%v: fds: %d announced, %d came", m.Type, count, len(fds))
	}

	m.Body = append([]byte(nil), m.Body...)
	m.announced = count
	if m.refused == nil {
		m.FDs = fds
	}

	return &m, nil
}

// headOf reads type and seq of a datagram that is too long to parse.
func headOf(b []byte) *Message {
	_, _, err := parseMessage(b)
	var e *badMessage
	if errors.As(err, &e) {
		return &Message{Type: e.typ, Seq: e.seq}
	}
	return &Message{}
}

// receivedFDs collects every descriptor of the control data, also on error.
func receivedFDs(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}

	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, gpuerr.New(gpuerr.Protocol, "control data: %v", err)
	}

	for i := range messages {
		if messages[i].Header.Level != unix.SOL_SOCKET || messages[i].Header.Type != unix.SCM_RIGHTS {
			err = gpuerr.New(gpuerr.Protocol, "control data other than descriptors")
			continue
		}
		more, parseErr := unix.ParseUnixRights(&messages[i])
		if parseErr != nil {
			err = gpuerr.New(gpuerr.Protocol, "control data: %v", parseErr)
			continue
		}
		fds = append(fds, more...)
	}

	return fds, err
}

// awaitHangup waits until the peer is gone (io.EOF), interruptRead was called
// (nil), or the Conn is closed. It reads nothing, so a peer's end is noticed while
// its requests wait.
func (c *Conn) awaitHangup() error {
	err := c.raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Ppoll(p, &unix.Timespec{}, nil) // confined processes may call it
		return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	switch {
	case err == nil:
		return io.EOF
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	default:
		return c.closedError()
	}
}

// interruptRead makes awaitHangup return, now or at its next call; resumeRead
// undoes that.
func (c *Conn) interruptRead() { c.file.SetReadDeadline(time.Unix(1, 0)) }
func (c *Conn) resumeRead()    { c.file.SetReadDeadline(time.Time{}) }

// PeerCred returns the credentials of the other end's creator.
func (c *Conn) PeerCred() (*unix.Ucred, error) {
	var cred *unix.Ucred
	var err error
	if c.raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil {
		return nil, c.closedError()
	}
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "cannot read the peer's credentials: %v", err)
	}
	return cred, nil
}

// SyscallConn gives access to the socket for operations without a method here.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Close is idempotent and wakes every goroutine that sends or receives.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		if err := c.file.Close(); err != nil {
			c.closeErr = gpuerr.New(gpuerr.IO, "cannot close a socket: %v", err)
		}
	})
	return c.closeErr
}

// closedError is the error of a closed Conn.
func (c *Conn) closedError() error {
	if e := c.dropped.Load(); e != nil {
		return e
	}
	return errConnClosed
}

var errConnClosed = gpuerr.New(gpuerr.Closed, "the connection is closed")
