package rpcguard

import (
	"net"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc/transport"
)

// ClientTransport is the transport of a Go client: rpc.NewConn(NewClientTransport(c), nil).
// It trusts its server not to crash it, and receives descriptors.
type ClientTransport struct {
	transport.Transport
}

// NewClientTransport takes ownership of c.
func NewClientTransport(c *net.UnixConn) *ClientTransport { panic("not yet") }

// TakeFD hands out, once, the descriptor that came with client, a capability
// taken from results of a call over this transport.
func (t *ClientTransport) TakeFD(client capnp.Client) (fd int, ok bool) { panic("not yet") }
