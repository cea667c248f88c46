package rpcguard

import (
	"context"
	"sync"

	"capnproto.org/go/capnp/v3/server"
)

// A Line makes the objects that share it take their calls in the order in which they came
// from the peer, one at a time, as one object does by itself. It is for objects with methods
// that depend on each other: a launch that promises a value of a fence, and a wait for that
// value. A method leaves the line when it returns, or earlier by Go.
type Line struct {
	mu sync.Mutex
	// last is closed when the latest call leaves the line.
	// +checklocks:mu
	last chan struct{}
}

// place is a call's place in a line.
type place struct {
	before chan struct{} // closed when it is this call's turn; nil: at once
	left   chan struct{}
	once   sync.Once
}

func (l *Line) enter() *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &place{before: l.last, left: make(chan struct{})}
	l.last = p.left
	return p
}

// await waits for the call's turn. Those before it leave by themselves.
func (p *place) await() {
	if p.before != nil {
		<-p.before
		p.before = nil
	}
}

// leave keeps the order: no call leaves before the call that it waits for.
func (p *place) leave() {
	p.await()
	p.once.Do(func() { close(p.left) })
}

type placeKey struct{}

// Go lets the next calls begin: those of this object and, if it is in a Line, of
// the others there. A method that blocks calls it once it has done what must
// happen in order. ctx is the method's.
func Go(ctx context.Context, call *server.Call) {
	call.Go()
	if p, ok := ctx.Value(placeKey{}).(*place); ok {
		p.leave()
	}
}
