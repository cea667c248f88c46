// Package server binds a session of the core to a control socket: it answers the
// session messages of docs/wire.md for one gpu.Session.
//
// Who is trusted: the core and the driver's own memory; nothing of the peer.
// Package control has parsed every message strictly and bounded how many are
// served at once (64); here each is checked against the session's facet, turned
// into one call of the core, and answered. Handles, sizes and quotas are the
// core's to check. A descriptor that is sent is a duplicate, made while the
// object cannot be closed by the peer (see announced); a descriptor that comes in
// is looked at, never mapped.
//
// The socket is the session: ServeSession returns when the peer is gone or the
// session has ended, whichever comes first, and not before both have, together
// with every session that was restricted from it. No descriptor, goroutine or
// charge of the session is left then.
//
// Lock order: announced.mu is a leaf.
package server

import (
	"context"
	"sync"
	"sync/atomic"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
)

// session is one served session.
type session struct {
	core  *gpu.Session
	facet gpu.Facet

	buffers announced
	queues  announced

	// loading has one place: a bundle is up to 16 MiB of the driver's own memory
	// before the ledger knows what it becomes.
	loading chan struct{}
	// closing says that the peer itself asked for the end, so that the answer to
	// Close is the last message and not that to AwaitEnd.
	closing  atomic.Bool
	children sync.WaitGroup
	ctx      context.Context // ends when the serving does
}

// ServeSession answers on conn for s until the peer is gone or the session ends.
// It takes both: they are closed when it returns. The error is nil when the peer
// left in order, and otherwise why the connection or the session ended.
func ServeSession(ctx context.Context, conn *control.Conn, core *gpu.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{
		core:    core,
		facet:   core.Describe().Facet,
		loading: make(chan struct{}, 1),
		ctx:     ctx,
	}
	// A peer that does not ask for the end (AwaitEnd) sees only the socket close.
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-core.Done():
			if !s.endIsAwaited() {
				cancel()
			}
		case <-stop:
		}
	}()
	err := control.Serve(ctx, conn, s.handle)
	close(stop)
	<-ended
	cancel()
	closeErr := core.Close()
	s.children.Wait()
	if err == nil {
		err = closeErr
	}
	return err
}
