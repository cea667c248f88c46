package gpu

import (
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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
		require.Equal(t, error(errStale), bob.DestroyBuffer(h), "every bad handle has the same answer")
	}
	require.Equal(t, error(errStale), alice.DestroyFence(live), "of another kind")
	require.NoError(t, alice.DestroyBuffer(live))
}

func TestHandlesRace(t *testing.T) {
	table := newTable()
	type thing struct{ h Handle }
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				x := &thing{}
				require.NoError(t, table.add(x, func(h Handle) { x.h = h }))
				got, err := lookup[thing](table, x.h)
				require.NoError(t, err)
				require.Same(t, x, got)
				var wins sync.WaitGroup
				won := make(chan struct{}, 2)
				for range 2 {
					wins.Go(func() {
						if _, err := take[thing](table, x.h); err == nil {
							won <- struct{}{}
						}
					})
				}
				wins.Wait()
				require.Len(t, won, 1)
				_, err = lookup[thing](table, x.h)
				require.Equal(t, error(errStale), err)
			}
		})
	}
	wg.Wait()
	table.mu.Lock()
	defer table.mu.Unlock()
	require.Zero(t, table.live)
}

func TestLookupAllocatesNothing(t *testing.T) {
	s := newRig(t).open("alice")
	h := newFence(t, s, 0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := lookup[fence](s.handles, h); err != nil {
			t.Fatal(err)
		}
		if _, err := lookup[buffer](s.handles, h); err == nil {
			t.Fatal("a fence is no buffer")
		}
	}))
}
