package gpu

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
)

// The bytes that one tenant wrote are never seen by another, nor by itself in a new buffer.
func TestResidue(t *testing.T) {
	r := newRig(t, func(_ *Config, fo *fake.Options) { fo.LimitBytes = 4 << 20 })
	for round := range 6 {
		s := r.open([]string{"alice", "bob"}[round%2])
		for _, bytes := range []uint64{4096, 12288, 64 << 10, 1 << 20, 4096, 8192} {
			h := buf(t, s, bytes)
			mem := host(t, s, h)
			require.Equal(t, -1, firstNonZero(mem), "round %d, %d bytes", round, bytes)
			for i := range mem {
				mem[i] = 0xA5
			}
			if bytes%3 == 0 {
				require.NoError(t, s.DestroyBuffer(h))
			}
		}
		again := buf(t, s, 12288)
		require.Equal(t, -1, firstNonZero(host(t, s, again)))
		require.NoError(t, s.Close())
	}
}

func firstNonZero(b []byte) int {
	for i, v := range b {
		if v != 0 {
			return i
		}
	}
	return -1
}

// Random carving against the obvious: no two live extents overlap.
func TestCarving(t *testing.T) {
	r := newRig(t)
	s := r.open("alice")
	type span struct{ from, to uint64 }
	live := map[Handle]span{}
	at := func(h Handle) span {
		b, err := handles.Lookup[buffer](s.handles, h)
		require.NoError(t, err)
		return span{b.iova, b.iova + b.bytes}
	}
	seed := uint64(1)
	for range 600 {
		seed = seed*6364136223846793005 + 1442695040888963407
		if seed>>63 == 0 || len(live) == 0 {
			h := buf(t, s, 1+(seed>>40)%(160<<10))
			x := at(h)
			for _, y := range live {
				require.False(t, x.from < y.to && y.from < x.to, "%v overlaps %v", x, y)
			}
			live[h] = x
			continue
		}
		for h := range live {
			require.NoError(t, s.DestroyBuffer(h))
			delete(live, h)
			break
		}
	}
	for h := range live {
		require.NoError(t, s.DestroyBuffer(h))
	}
	r.idle(s)
	require.LessOrEqual(t, r.fn.Pool().Usage().UsedBytes, uint64(heap.KeptBytes), "at most one small chunk is kept")
}

func TestPoolRefusalRollsBack(t *testing.T) {
	r := newRig(t, func(_ *Config, fo *fake.Options) { fo.LimitBytes = 1 << 20 })
	s := r.open("alice")
	_, err := s.CreateBuffer(context.Background(), 2<<20, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	r.idle(s)
	// The pool has less than a chunk: what fits is still given.
	for range 3 {
		buf(t, s, 256<<10)
	}
	require.NoError(t, r.dev.Check())
	small := buf(t, s, 200<<10)
	require.NoError(t, s.DestroyBuffer(small))
	_, err = s.CreateBuffer(context.Background(), 300<<10, 0)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.NoError(t, r.dev.Check())
}

func TestPoolErrorsAreTyped(t *testing.T) {
	fail := false
	r := newRig(t, func(_ *Config, fo *fake.Options) {
		fo.Hooks.Alloc = func(uint64) error {
			if fail {
				return context.DeadlineExceeded
			}
			return nil
		}
	})
	s := r.open("alice")
	fail = true
	_, err := s.CreateBuffer(context.Background(), 1, 0)
	require.ErrorIs(t, err, gpuerr.Busy)
	r.idle(s)
}

func TestUnmapFailureLosesTheDevice(t *testing.T) {
	fail := false
	r := &rig{t: t}
	fn, err := fake.New(fake.Options{Hooks: fake.Hooks{Free: func(ddf.IOVA, uint64) error {
		if fail {
			return gpuerr.New(gpuerr.IO, "the domain does not answer")
		}
		return nil
	}}})
	require.NoError(t, err)
	hand := newHandBackend()
	r.dev, err = New(Config{Backend: hand, DMA: fn.Grants().DMA})
	require.NoError(t, err)
	s := r.open("alice")
	big := buf(t, s, 2<<20)
	fail = true
	_ = s.DestroyBuffer(big)
	<-r.dev.Lost()
	require.ErrorIs(t, r.dev.Err(), gpuerr.DeviceLost)
	require.Error(t, s.account.Zero(), "memory that the device may still reach stays charged")
	_, err = s.CreateFence(0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	fail = false
	require.Error(t, r.dev.Close(context.Background()), "the books say what was not returned")
	fn.Close()
}
