package ddfrpc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/dmabuf"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/rpcguard"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// fakeBuffer answers Free with what refusals hold, then with nothing.
type fakeBuffer struct {
	refusals []error
	frees    atomic.Int32
}

func (b *fakeBuffer) Map(context.Context, schema.DMABuffer_map) error { return nil }
func (b *fakeBuffer) Free(context.Context, schema.DMABuffer_free) error {
	n := int(b.frees.Add(1))
	if n <= len(b.refusals) {
		return rpcguard.Exception(b.refusals[n-1])
	}
	return nil
}

// fakePool lets Allocate wait until open is closed, and counts those that do.
type fakePool struct {
	waiting chan struct{}
	open    chan struct{}
}

func (p *fakePool) Allocate(ctx context.Context, call schema.DMAPool_allocate) error {
	call.Go()
	p.waiting <- struct{}{}
	<-p.open
	return rpcguard.Exception(gpuerr.New(gpuerr.Quota, "no"))
}
func (*fakePool) Adopt(context.Context, schema.DMAPool_adopt) error {
	return gpuerr.New(gpuerr.Unimplemented, "there is no earlier driver")
}

func (p *fakePool) Usage(context.Context, schema.DMAPool_usage) error { return nil }

func newLink(t *testing.T) *Link {
	l := &Link{asking: make(chan struct{}, maxAsking), saying: make(chan struct{}, maxSaying)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	t.Cleanup(func() { l.cancel(errRevoked) })
	return l
}

func newBuffer(t *testing.T, l *Link, remote *fakeBuffer) *dmabuf.Buffer {
	memory, err := shm.Create("test", 4096)
	require.NoError(t, err)
	b, err := l.newBuffer(schema.DMABuffer_ServerToClient(remote), dmabuf.Spec{Bytes: 4096, Memory: memory})
	require.NoError(t, err)
	return b
}

// A Free that the manager has no room for is repeated until it has; any other refusal is
// returned, and the memory kept.
func TestFreeInsists(t *testing.T) {
	leakcheck.Check(t)
	l := newLink(t)
	busy := gpuerr.New(gpuerr.Busy, "32 calls of this connection have not returned yet")
	remote := &fakeBuffer{refusals: []error{busy, busy, busy, gpuerr.New(gpuerr.IO, "it cannot be unmapped")}}
	b := newBuffer(t, l, remote)
	require.ErrorIs(t, b.Free(), gpuerr.IO)
	require.Equal(t, int32(4), remote.frees.Load())
	require.NotNil(t, b.Bytes())
	require.NoError(t, b.Free())
	require.Nil(t, b.Bytes())
}

// A manager that never has room keeps a Free until the link is down, which frees.
func TestFreeEndsWithTheLink(t *testing.T) {
	leakcheck.Check(t)
	l := newLink(t)
	remote := &fakeBuffer{}
	for range 10_000 {
		remote.refusals = append(remote.refusals, gpuerr.New(gpuerr.Busy, "later"))
	}
	b := newBuffer(t, l, remote)
	freed := make(chan error, 1)
	go func() { freed <- b.Free() }()
	require.Eventually(t, func() bool { return remote.frees.Load() > 2 }, 10*time.Second, time.Millisecond)
	l.cancel(errRevoked)
	require.NoError(t, <-freed)
	require.Nil(t, b.Bytes())
}

// However many Allocs are asked for, few are at the manager, and none of them
// holds up a Free.
func TestAllocsLeaveRoom(t *testing.T) {
	leakcheck.Check(t)
	l := newLink(t)
	const clients = 48
	remote := &fakePool{waiting: make(chan struct{}, clients), open: make(chan struct{})}
	srv := schema.DMAPool_NewServer(remote)
	// Local calls of one object make this on first use, unguarded (go-capnp).
	srv.NewArena = func() capnp.Arena { return capnp.SingleSegment(nil) }
	p := &Pool{link: l, remote: schema.DMAPool(capnp.NewClient(srv))}
	defer p.remote.Release()
	var asking sync.WaitGroup
	for range clients {
		asking.Go(func() {
			if _, err := p.Alloc(context.Background(), 4096); !errors.Is(err, gpuerr.Quota) {
				t.Errorf("Alloc: %v", err)
			}
		})
	}
	for range maxAsking {
		<-remote.waiting
	}
	require.NoError(t, newBuffer(t, l, &fakeBuffer{}).Free(), "with every place for Alloc taken")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := p.Alloc(ctx, 4096)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, remote.waiting, "more Allocs than there are places")
	close(remote.open)
	asking.Wait()
	require.Len(t, remote.waiting, clients-maxAsking)
}

// TestCallsAsTheLinkGoesDown: what could not even be sent any more is revoked, not
// broken, and memory of a manager that is gone is free.
func TestCallsAsTheLinkGoesDown(t *testing.T) {
	for range 30 {
		h, theirs := serve(t)
		l := dial(t, theirs)
		b, err := l.GrantSet().DMA.Alloc(t.Context(), ddf.PageBytes)
		require.NoError(t, err)
		h.gate.Revoke(errRevoked)
		errs := []error{l.GrantSet().Interrupts[0].Mask(), l.GrantSet().Audit.Append("late", "")}
		_, err = l.GrantSet().DMA.Alloc(t.Context(), ddf.PageBytes)
		require.NoError(t, b.Free())
		for _, err := range append(errs, err) {
			require.ErrorIs(t, err, gpuerr.Revoked)
		}
	}
}
