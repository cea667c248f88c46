package rpc

import (
	"context"

	capnp "capnproto.org/go/capnp/v3/server"

	"capgpu/model/peers"
)

// maxConns is the largest number of clients served at a time.
const maxConns = 64

// counted makes a place count the calls of methods while they last.
func counted(p *peers.Place, methods []capnp.Method) []capnp.Method {
	for i, m := range methods {
		methods[i].Impl = func(ctx context.Context, call *capnp.Call) error {
			p.Count(+1, 0)
			defer p.Count(-1, 0)
			return m.Impl(ctx, call)
		}
	}
	return methods
}
