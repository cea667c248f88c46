package rpcguard

import (
	"context"
	"net"

	"capnproto.org/go/capnp/v3"
)

// Serve answers the peer of conn until it is gone, breaks the protocol, or ctx
// ends. It takes ownership of conn and of bootstrap, the capability that the
// peer gets first, which must come from Export. A peer that closes is nil.
func Serve(ctx context.Context, conn *net.UnixConn, bootstrap capnp.Client, limits Limits) error {
	panic("not yet")
}
