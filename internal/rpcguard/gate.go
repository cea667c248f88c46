package rpcguard

import (
	"context"

	"capgpu/gpuerr"
)

// A Gate is a node of a revocation tree. Revoking it refuses all calls of the
// capabilities exported behind it and behind the gates below it, and ends the
// contexts of those running.
type Gate struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// NewGate makes a root. The caller revokes it in the end.
func NewGate() *Gate { return newGate(context.Background()) }

func newGate(parent context.Context) *Gate {
	ctx, cancel := context.WithCancelCause(parent)
	return &Gate{ctx: ctx, cancel: cancel}
}

// NewChild makes a gate that ends with g.
func (g *Gate) NewChild() *Gate { return newGate(g.ctx) }

// Revoke closes the gate for good. Callers see cause, or E_REVOKED if cause is
// nil. Only the first cause counts.
func (g *Gate) Revoke(cause error) {
	if cause == nil {
		cause = gpuerr.New(gpuerr.Revoked, "the capability was revoked")
	}
	g.cancel(cause)
}

// Err is the cause of the revocation of g or of a gate above it; nil while open.
func (g *Gate) Err() error { return context.Cause(g.ctx) }

// Done is closed by the revocation.
func (g *Gate) Done() <-chan struct{} { return g.ctx.Done() }

// Context ends with the gate; context.Cause of it is Err.
func (g *Gate) Context() context.Context { return g.ctx }
