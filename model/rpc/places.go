package rpc

import (
	"context"

	capnp "capnproto.org/go/capnp/v3/server"

	"capgpu/model/peers"
)

// maxConns is how many clients are served at a time.
const maxConns = 64

// counted has the calls of methods be known to a place while they last.
func counted(p *peers.Place, methods []capnp.Method) []capnp.Method {
	for i, m := range methods {
		methods[i].Impl = func(ctx context.Context, call *capnp.Call) error {
			p.Said(+1, 0)
			defer p.Said(-1, 0)
			return m.Impl(ctx, call)
		}
	}
	return methods
}
