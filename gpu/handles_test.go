package gpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/handles"
	"capgpu/gpuerr"
)

func TestStaleHandleIsNotReused(t *testing.T) {
	s := newRig(t).open("alice")
	first := newFence(t, s, 0)
	require.NoError(t, s.DestroyFence(first))
	second := newFence(t, s, 0)
	require.Equal(t, uint32(first), uint32(second), "the slot is used again")
	require.NotEqual(t, first, second)
	require.ErrorIs(t, s.SignalFence(first, 1), gpuerr.Stale)
	require.NoError(t, s.SignalFence(second, 1))
}

func TestForeignHandleSaysNothing(t *testing.T) {
	r := newRig(t)
	alice, bob := r.open("alice"), r.open("bob")
	live := buf(t, alice, 1)
	gone := buf(t, alice, 1)
	require.NoError(t, alice.DestroyBuffer(gone))
	never := Handle(math.MaxUint64)
	for _, h := range []Handle{live, gone, never, 0, live ^ 1<<40} {
		require.Equal(t, error(handles.ErrStale), bob.DestroyBuffer(h), "every bad handle has the same answer")
	}
	require.Equal(t, error(handles.ErrStale), alice.DestroyFence(live), "of another kind")
	require.NoError(t, alice.DestroyBuffer(live))
}

func TestLookupAllocatesNothing(t *testing.T) {
	s := newRig(t).open("alice")
	h := newFence(t, s, 0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := handles.Lookup[fence](s.handles, h); err != nil {
			t.Fatal(err)
		}
		if _, err := handles.Lookup[buffer](s.handles, h); err == nil {
			t.Fatal("a fence is no buffer")
		}
	}))
}
