package gate

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

const (
	// maxLifecycleWaits leaves room on the tenant socket for other requests.
	maxLifecycleWaits = 16
	// maxSessions bounds the open sessions of one connection; the ledger has limits
	// of its own.
	maxSessions = 256
)

// Options of a gate.
type Options struct {
	Limits rpcguard.Limits // zero fields: the defaults for clients
	Log    *slog.Logger    // nil: slog.Default
}

// gate is the state of one connection.
type gate struct {
	service *client.Conn
	log     *slog.Logger
	root    *rpcguard.Gate
	lastID  atomic.Uint32
	waits   chan struct{}  // places for Lifecycle.next
	workers sync.WaitGroup // goroutines of sessions

	mu sync.Mutex
	// +checklocks:mu
	sessions map[*session]struct{}
}

// Serve serves GpuDeviceManager on conn for the tenant of service, until the
// client is gone, service is, or ctx ends. It takes ownership of both. The error is that of
// rpcguard.Serve: nil when the client closed the connection.
func Serve(ctx context.Context, conn *net.UnixConn, service *client.Conn, o Options) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}

	g := &gate{
		service: service, log: o.Log, root: rpcguard.NewGate(),
		waits:    make(chan struct{}, maxLifecycleWaits),
		sessions: make(map[*session]struct{}),
	}

	defer service.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.workers.Go(func() {
		select {
		case <-service.Done():
			cancel(errNoService)
		case <-ctx.Done():
		}
	})

	bootstrap := rpcguard.Export(rpcguard.Spec{
		Name: "GpuDeviceManager", Gate: g.root, Impl: g, Log: g.log,
		Methods: schema.GpuDeviceManager_Methods(nil, &manager{g}),
		// This runs after the last call has returned. rpcguard.Serve waits for the
		// objects below, which may be waiting for a driver that does not answer.
		Shutdown: func() {
			g.root.Revoke(gpuerr.New(gpuerr.Disconnected, "the connection is closed"))
			g.abandonAll()
		},
	})

	err := rpcguard.Serve(ctx, conn, bootstrap, o.Limits)
	cancel(nil)
	g.workers.Wait()
	return err
}

// errNoService is the client's error when the service has ended the connection.
var errNoService = gpuerr.New(gpuerr.Disconnected, "the service has ended this connection: it was idle (idleTimeout of the policy), or the service stops; connect again")

// newID is never 0 and never repeats. A client that uses up all ids has to connect
// again.
func (g *gate) newID() (uint32, error) {
	id := g.lastID.Add(1)
	if id == 0 {
		g.lastID.Store(^uint32(0))
		return 0, gpuerr.New(gpuerr.Busy, "this connection has used up its ids; connect again")
	}
	return id, nil
}

// add registers a session, or refuses one too many.
func (g *gate) add(s *session) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sessions) >= maxSessions {
		return gpuerr.New(gpuerr.Busy, "%d sessions are open on this connection; close one", maxSessions)
	}
	g.sessions[s] = struct{}{}
	g.workers.Add(1)
	return nil
}

func (g *gate) remove(s *session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.sessions, s)
}

func (g *gate) abandonAll() {
	g.mu.Lock()
	all := make([]*session, 0, len(g.sessions))
	for s := range g.sessions {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		s.abandon()
	}
}
