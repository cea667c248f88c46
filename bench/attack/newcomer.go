package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/bench/dataplane/paired"
	"capgpu/client"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// newcomer belongs to the victim's tenant, and connects again and again: a session
// on the tenant's socket, and less often a connection for Cap'n Proto.
type newcomer struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	direct []float64 // nanoseconds to a session; guarded by mu
	capnp  []float64 // nanoseconds to the first answer; guarded by mu
	errors []error   // guarded by mu
}

// Pauses between two attempts, because a gate is a process.
const (
	directPause = 20 * time.Millisecond
	capnpPause  = 150 * time.Millisecond
)

func startNewcomer(socket, capnp string) *newcomer {
	ctx, cancel := context.WithCancel(context.Background())
	n := &newcomer{cancel: cancel}
	n.done.Go(func() {
		n.run(ctx, directPause, &n.direct, func(ctx context.Context) error { return openDirect(ctx, socket) })
	})
	n.done.Go(func() {
		n.run(ctx, capnpPause, &n.capnp, func(ctx context.Context) error { return openCapnp(ctx, capnp) })
	})
	return n
}

func (n *newcomer) run(ctx context.Context, pause time.Duration, took *[]float64, open func(context.Context) error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}

		limit, cancel := context.WithTimeout(ctx, 2*longest)
		start := time.Now()
		err := open(limit)
		cancel()
		if ctx.Err() != nil {
			return
		}

		n.mu.Lock()
		*took = append(*took, float64(time.Since(start)))
		if err != nil {
			n.errors = append(n.errors, err)
		}

		n.mu.Unlock()
	}
}

func openDirect(ctx context.Context, socket string) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return fmt.Errorf("a newcomer connects: %w", err)
	}
	defer conn.Close()
	s, err := conn.Open(ctx, 0)
	if err != nil {
		return fmt.Errorf("a newcomer opens a session: %w", err)
	}
	return s.Close(ctx)
}

func openCapnp(ctx context.Context, path string) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("a newcomer connects for Cap'n Proto: %w", err)
	}
	conn := rpc.NewConn(rpcguard.NewClientTransport(c), nil)
	defer conn.Close()
	m := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	defer m.Release()
	listed, release := m.ListDevices(ctx, nil)
	defer release()
	if _, err := listed.Struct(); err != nil {
		return fmt.Errorf("a newcomer asks for the devices over Cap'n Proto: %w", rpcguard.FromException(err))
	}
	return nil
}

// waits is a newcomer's wait: milliseconds in the middle and at 99 %.
type waits struct{ Direct, Capnp [2]float64 }

func (w waits) String() string {
	return fmt.Sprintf("%.1f/%.1f ms, Cap'n Proto %.0f/%.0f", w.Direct[0], w.Direct[1], w.Capnp[0], w.Capnp[1])
}

// since returns the waits since the last call.
func (n *newcomer) since() (w waits, errs []error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range []struct {
		took *[]float64
		out  *[2]float64
	}{{&n.direct, &w.Direct}, {&n.capnp, &w.Capnp}} {
		if len(*x.took) > 0 {
			q := paired.Quantiles(*x.took, 0.5, 0.99)
			*x.out = [2]float64{q[0] / 1e6, q[1] / 1e6}
		}
		*x.took = nil
	}
	errs, n.errors = n.errors, nil
	return w, errs
}

func (n *newcomer) close() error {
	n.cancel()
	n.done.Wait()
	_, errs := n.since()
	return errors.Join(errs...)
}

// during returns a newcomer's waits while f runs.
func (n *newcomer) during(f func() error) (waits, error) {
	n.since()
	err := f()
	w, errs := n.since()
	return w, errors.Join(append(errs, err)...)
}

// slower lists the waits with a median more than twice that without an attack.
func (w waits) slower(when string, quiet waits) (all []string) {
	for _, x := range []struct {
		name       string
		now, quiet float64
	}{{"a session", w.Direct[0], quiet.Direct[0]}, {"a Cap'n Proto connection", w.Capnp[0], quiet.Capnp[0]}} {
		if x.quiet > 0 && x.now > 2*x.quiet {
			all = append(all, fmt.Sprintf("a newcomer waits %.1f ms for %s %s, and %.1f when nobody attacks", x.now, x.name, when, x.quiet))
		}
	}
	return all
}
