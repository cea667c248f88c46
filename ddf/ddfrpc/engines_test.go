package ddfrpc

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/schema"
)

// engineHost is a manager with engines: groups above 100 are refused, and 99 has a link of another kind.
type engineHost struct {
	mu sync.Mutex
	// +checklocks:mu
	kills int
	// +checklocks:mu
	killErr error
	// +checklocks:mu
	pipe *os.File
}

// refuse sets what a kill comes to.
func (e *engineHost) refuse(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.killErr = err
}

func (e *engineHost) die() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.pipe.Close()
}

// Engine implements schema.DriverGrants_Server.
func (h *hardware) Engine(_ context.Context, call schema.DriverGrants_engine) error {
	if h.engines == nil {
		return gpuerr.New(gpuerr.Denied, "no engines")
	}
	group := call.Args().Group()
	if group > 100 {
		return gpuerr.New(gpuerr.Busy, "as many as the policy allows are open")
	}
	kind := unix.SOCK_SEQPACKET
	if group == 99 {
		kind = unix.SOCK_STREAM
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	go func() { // the engine's end: an echo
		defer unix.Close(fds[1])
		b := make([]byte, 64)
		for {
			n, err := unix.Read(fds[1], b)
			if err != nil || n == 0 {
				return
			}
			_, _ = unix.Write(fds[1], b[:n])
		}
	}()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	h.engines.mu.Lock()
	h.engines.pipe = w
	h.engines.mu.Unlock()
	ended, err := unix.FcntlInt(r.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	r.Close()
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	give := func(fd int) func() (int, error) { return func() (int, error) { return fd, nil } }
	engine := h.export("Engine", schema.Engine_Methods(nil, h.engines), nil)
	return errors.Join(res.SetEngine(schema.Engine(engine)), res.SetLink(h.memory(give(fds[0]))), res.SetEnded(h.memory(give(ended))))
}

// Kill implements schema.Engine_Server.
func (e *engineHost) Kill(context.Context, schema.Engine_kill) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kills++
	if e.killErr != nil {
		return e.killErr
	}
	return e.pipe.Close()
}

func TestEngines(t *testing.T) {
	for _, older := range []bool{false, true} {
		h, theirs := serve(t)
		h.older, h.engines = older, &engineHost{}
		l := dial(t, theirs)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NotNil(t, l.GrantSet().Engines)

		_, err := l.GrantSet().Engines.Open(ctx, 101)
		require.ErrorIs(t, err, gpuerr.Busy)
		_, err = l.GrantSet().Engines.Open(ctx, 99)
		require.ErrorIs(t, err, gpuerr.Protocol, "no SEQPACKET socket")
		h.engines.die()

		e, err := l.GrantSet().Engines.Open(ctx, 1)
		require.NoError(t, err)
		_, err = unix.Write(e.Link(), []byte("order"))
		require.NoError(t, err)
		b := make([]byte, 64)
		n, err := unix.Read(e.Link(), b)
		require.NoError(t, err)
		require.Equal(t, "order", string(b[:n]))

		// A kill that failed may be asked for again.
		h.engines.refuse(gpuerr.New(gpuerr.IO, "the device does not answer"))
		require.ErrorIs(t, e.Kill(ctx), gpuerr.IO)
		select {
		case <-e.Done():
			t.Fatal("it lives")
		default:
		}
		h.engines.refuse(nil)
		require.NoError(t, e.Kill(ctx))
		require.NoError(t, e.Kill(ctx), "idempotent")
		h.engines.mu.Lock()
		require.Equal(t, 2, h.engines.kills)
		h.engines.mu.Unlock()
		select {
		case <-e.Done():
		case <-ctx.Done():
			t.Fatal("its end was not told")
		}

		// The end of the link is the end of every engine.
		e, err = l.GrantSet().Engines.Open(ctx, 1)
		require.NoError(t, err)
		defer h.engines.die()
		h.revoke()
		<-e.Done()
		require.ErrorIs(t, e.Kill(ctx), gpuerr.Revoked)
		_, err = l.GrantSet().Engines.Open(ctx, 2)
		require.ErrorIs(t, err, gpuerr.Revoked)
		require.NoError(t, l.Close())
	}
}

// A set without engines has none.
func TestNoEngines(t *testing.T) {
	h, theirs := serve(t)
	require.Nil(t, dial(t, theirs).GrantSet().Engines)
	require.Nil(t, h.engines)
}
