package gpu

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// bundles makes a buffer of a session, of bundles that are one byte each.
func bundles(t testing.TB, s *Session, all ...byte) Handle {
	h := buf(t, s, 4096)
	copy(host(t, s, h), all)
	return h
}

// However much one tenant, or one session of a tenant, wants to load, the others
// have their turns, and the time of each load is its own.
func TestLoadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		var order []byte
		hand.load = func(_ context.Context, bundle []byte) (backend.Program, error) {
			order = append(order, bundle[0]) // one at a time
			time.Sleep(time.Second)
			return newLoaded(bundle), nil
		}
		r := newMemRig(t, withBackend(hand))
		greedy, sibling, bob := r.open("alice"), r.open("alice"), r.open("bob")
		var wg sync.WaitGroup
		at := func(s *Session, all ...byte) {
			h := bundles(t, s, all...)
			for i := range all {
				wg.Go(func() {
					_, _, err := s.LoadProgram(t.Context(), h, uint64(i), 1)
					require.NoError(t, err)
				})
				synctest.Wait()
			}
		}
		at(greedy, 1, 2, 3, 4)
		at(sibling, 5, 6)
		at(bob, 7, 8)
		wg.Wait()
		require.Equal(t, []byte{1, 7, 5, 8, 2, 6, 3, 4}, order)
		for s, n := range map[*Session]int{greedy: 4, sibling: 2, bob: 2} {
			require.EqualValues(t, n, s.Budget()[ledger.DeviceTime].Used/uint64(time.Second))
		}
		r.close()
	})
}

// A session that has no device time left loads nothing.
func TestLoadingTakesDeviceTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.load = func(context.Context, []byte) (backend.Program, error) {
			time.Sleep(time.Second)
			return nil, gpuerr.New(gpuerr.Program, "no")
		}
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice", func(a *Attach) { a.Limits = limited(ledger.DeviceTime, uint64(2*time.Second)) })
		h := bundles(t, s, 1)
		for _, want := range []gpuerr.Code{gpuerr.Program, gpuerr.Program, gpuerr.Quota} {
			_, _, err := s.LoadProgram(t.Context(), h, 0, 1)
			require.Equal(t, want, gpuerr.CodeOf(err))
		}
		r.close()
	})
}

// Closing the session, or giving up, ends a load that is under way or in line.
func TestLoadsEndWithTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.load = func(ctx context.Context, _ []byte) (backend.Program, error) {
			<-ctx.Done()
			return nil, gpuerr.New(gpuerr.Busy, "given up")
		}
		r := newMemRig(t, withBackend(hand))
		first, second, other := r.open("alice"), r.open("bob"), r.open("eve")
		got := make(chan gpuerr.Code, 2)
		for _, s := range []*Session{first, second} {
			h := bundles(t, s, 1)
			go func() {
				_, _, err := s.LoadProgram(context.Background(), h, 0, 1)
				got <- gpuerr.CodeOf(err)
			}()
			synctest.Wait()
		}
		require.NoError(t, second.Close())
		require.Equal(t, gpuerr.Closed, <-got)
		require.NoError(t, first.Close())
		require.Equal(t, gpuerr.Closed, <-got)
		h := bundles(t, other, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := other.LoadProgram(ctx, h, 0, 1)
		require.ErrorIs(t, err, gpuerr.Busy)
		r.idle(first)
		r.close()
	})
}

// Time beside the device counts in the fair share against competitors, and does not count
// for a tenant that had the device alone.
func TestSpentTimeIsShared(t *testing.T) {
	var top level
	alice, bob := newFlow(newFlow(nil, 2), 1), newFlow(newFlow(nil, 1), 1)
	for range 10 {
		top.spend(alice, 1000)
	}
	require.EqualValues(t, 5000, alice.parent.virtual)
	require.EqualValues(t, 10_000, alice.virtual)
	bob.ready = &queue{}
	top.update(bob)
	require.EqualValues(t, 4500, bob.parent.virtual, "alice owes the last of it")
	for range 10 {
		top.spend(alice, 1000)
	}
	require.EqualValues(t, 10_000, alice.parent.virtual)
	top.spend(bob, 6000)
	require.EqualValues(t, 10_500, bob.parent.virtual)
	alice.ready = &queue{}
	top.update(alice)
	require.Same(t, alice.parent, top.flows[0])
	top.spend(alice, 2000)
	require.Same(t, bob.parent, top.flows[0])
}

// A loaded program is released once, when nothing of it runs; a program opened from it is
// not another.
func TestLoadedProgramsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		var loaded *loadedProgram
		hand.load = func(_ context.Context, bundle []byte) (backend.Program, error) {
			loaded = newLoaded(bundle)
			return loaded, nil
		}
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		h, info, err := load(s, 8, 1)
		require.NoError(t, err)
		name := fmt.Sprintf("sha256:%x", info.Digest)
		opened, _, err := s.OpenProgram(name)
		require.NoError(t, err)
		require.NoError(t, s.CloseProgram(opened))
		require.Zero(t, loaded.released.Load())
		_, _, err = s.OpenProgram(name)
		require.NoError(t, err)
		hand.obedient = false
		q := r.queue(s, 16, 4096)
		q.launch(h, whole(buf(t, s, 4096)))
		running := hand.nth(t, 0)
		closed := make(chan error, 1)
		go func() { closed <- s.CloseProgram(h) }()
		synctest.Wait()
		require.Zero(t, loaded.released.Load(), "it runs")
		hand.finish(running, cancelledOutcome, 0)
		require.NoError(t, <-closed)
		require.EqualValues(t, 1, loaded.released.Load())

		_, _, err = load(s, 8, 1)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		r.reclaimed()
		require.EqualValues(t, 1, loaded.released.Load())
		r.close()
	})
}
