package control

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ConnOptions tunes a Conn; the zero value is the wire's.
type ConnOptions struct {
	WriteTimeout time.Duration // 0: 5 s
}

// Conn is one end of a SEQPACKET socket.
type Conn struct{}

// NewConn takes ownership of fd, also when it fails.
func NewConn(fd int, opts ConnOptions) (*Conn, error)      { panic("control: not yet") }
func (c *Conn) Send(ctx context.Context, m *Message) error { panic("control: not yet") }
func (c *Conn) Recv() (*Message, error)                    { panic("control: not yet") }
func (c *Conn) PeerCred() (*unix.Ucred, error)             { panic("control: not yet") }
func (c *Conn) SyscallConn() (syscall.RawConn, error)      { panic("control: not yet") }
func (c *Conn) Close() error                               { panic("control: not yet") }

// Handler answers one request. It may block; m.FDs are the handler's, the
// reply's FDs become Serve's.
type Handler func(ctx context.Context, m *Message) *Message

// Serve answers requests until the peer is gone or ctx ends; it closes c.
func Serve(ctx context.Context, c *Conn, h Handler) error { panic("control: not yet") }

// Caller asks over a Conn.
type Caller struct{}

// NewCaller starts a Caller for a peer that asks nothing.
func NewCaller(c *Conn) *Caller { panic("control: not yet") }

// NewPeer starts a Caller on a link where both sides ask; h answers the other's.
func NewPeer(ctx context.Context, c *Conn, h Handler) *Caller { panic("control: not yet") }

// Call returns the reply, or the error that it carries. fds are only lent.
func (k *Caller) Call(ctx context.Context, t MsgType, body []byte, fds []int) (*Message, error) {
	panic("control: not yet")
}
func (k *Caller) Done() <-chan struct{} { panic("control: not yet") }
func (k *Caller) Err() error            { panic("control: not yet") }
func (k *Caller) Close() error          { panic("control: not yet") }
