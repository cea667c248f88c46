package gpu

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpu/handles"
	"capgpu/gpu/heap"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

// gatedFree makes the pool's Free wait while the gate is locked.
func gatedFree(gate *sync.RWMutex) rigOption {
	return func(_ *Config, o *fake.Options) {
		o.Hooks.Free = func(ddf.IOVA, uint64) error {
			gate.RLock()
			defer gate.RUnlock()
			return nil
		}
	}
}

// A close is answered while memory is still to be freed: it stays charged until then,
// nothing of the session is accepted, and no other close waits for it.
func TestCloseDoesNotWaitForTheReclaim(t *testing.T) {
	var gate sync.RWMutex
	r := newMemRig(t, gatedFree(&gate))
	s, other := r.open("alice"), r.open("bob")
	h := buf(t, s, 2*heap.CarveBytes)
	buf(t, s, 4096)
	child, err := s.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	buf(t, child, 4096)
	q := r.queue(child, 16, 0)
	gate.Lock()
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.NoError(t, child.Close())
	require.ErrorIs(t, child.Err(), gpuerr.Closed)
	require.Equal(t, gpuerr.Closed, q.mem.code, "the queue of the session below has ended")
	require.ErrorIs(t, s.DestroyBuffer(h), gpuerr.Closed)
	_, err = s.BufferFD(h)
	require.ErrorIs(t, err, gpuerr.Closed)
	require.NoError(t, other.Close())
	require.EqualValues(t, 2, s.Budget()[ledger.Buffers].Used+s.Budget()[ledger.Buffers].Reserved-1, "theirs and the child's, less one")
	require.NotZero(t, r.descriptors())
	st := r.dev.Status("alice").Tenants[0]
	require.True(t, st.Sessions[0].Closing)
	ctx, stop := context.WithCancel(context.Background())
	stop()
	require.ErrorIs(t, r.dev.Reclaimed(ctx), context.Canceled)
	require.NoError(t, r.dev.Check())
	gate.Unlock()
	r.idle(s)
	r.idle(child)
	require.Zero(t, r.fn.Pool().Usage().UsedBytes)
	require.Zero(t, r.descriptors())
	require.NoError(t, r.dev.Reclaimed(ctx), "there is nothing to wait for")
}

// How many objects a session has does not matter to its close: none of them is touched
// before the answer.
func TestCloseTouchesNoObject(t *testing.T) {
	var gate sync.RWMutex
	r := newMemRig(t, gatedFree(&gate), func(_ *Config, o *fake.Options) { o.LimitBytes = 1 << 32 })
	// Something that keeps the reclaimer busy until the gate opens.
	first := r.open("alice")
	buf(t, first, 2*heap.CarveBytes)
	s := r.open("alice")
	const count = 20_000
	for range count {
		buf(t, s, 4096)
		newFence(t, s, 0)
	}
	p := prog(t, s, "spin")
	r.queue(s, 16, 0)
	gate.Lock()
	require.NoError(t, first.Close())
	require.NoError(t, s.Close())
	live := 0
	handles.Each(s.handles, func(b *buffer) {
		if !b.pins.closed() && b.host != nil {
			live++
		}
	})
	handles.Each(s.handles, func(f *fence) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.dead.Kind == 0 {
			live++
		}
	})
	require.Equal(t, 2*count, live, "a close has gone to each of its objects")
	program, err := handles.Lookup[program](s.handles, p)
	require.NoError(t, err)
	require.False(t, program.pins.closed())
	gate.Unlock()
	r.idle(s)
}

// A tenant that closes at its limits and opens again gets what it had, whatever the class.
func TestReopenAtTheLimit(t *testing.T) {
	limits := ledger.NoLimits()
	limits[ledger.Sessions], limits[ledger.Buffers], limits[ledger.Fences], limits[ledger.Programs] = 1, 3, 1, 1
	limits[ledger.QueueSlots], limits[ledger.DeviceMemory] = minQueueCharge, 3<<20
	r := newMemRig(t, withDescriptors(sessionDescriptors+queueDescriptors+newQueueDescriptors+2), func(_ *Config, o *fake.Options) { o.LimitBytes = 3 << 20 })
	for round := range 100 {
		s := r.open("alice", func(a *Attach) { a.TenantLimits = limits })
		buf(t, s, 2<<20)
		buf(t, s, 4096)
		newFence(t, s, 0)
		prog(t, s, "copy")
		r.queue(s, 16, 0)
		if round%2 == 0 { // objects below a session that stays
			require.NoError(t, s.Close())
			continue
		}
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
	}
}

// The pool and the descriptors are everybody's: a tenant waits for what another has
// closed, too. But not for that when it is at its own limits.
func TestWaitingForWhatAnotherClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shut atomic.Bool
		opened := make(chan struct{})
		r := newMemRig(t, withBackend(newHandBackend()), func(_ *Config, o *fake.Options) {
			o.LimitBytes = 3 << 20
			o.Hooks.Free = func(ddf.IOVA, uint64) error {
				if shut.Load() {
					<-opened
				}
				return nil
			}
		})
		alice := r.open("alice")
		bob := r.open("bob", func(a *Attach) { a.TenantLimits = limited(ledger.Fences, 1) })
		buf(t, alice, 2<<20)
		newFence(t, bob, 0)
		shut.Store(true)
		require.NoError(t, alice.Close())

		begin := time.Now()
		_, err := bob.CreateFence(0)
		require.ErrorIs(t, err, gpuerr.Quota)
		require.Zero(t, time.Since(begin), "its own limit")
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		_, err = bob.CreateBuffer(ctx, 2<<20, 0)
		stop()
		require.ErrorIs(t, err, gpuerr.Quota)
		require.Equal(t, time.Second, time.Since(begin), "as long as the caller has time")
		_, err = bob.CreateBuffer(context.Background(), 2<<20, 0)
		require.ErrorIs(t, err, gpuerr.Quota)
		require.Equal(t, time.Second+reclaimPatience, time.Since(begin), "and no longer than that")

		got := make(chan error, 1)
		go func() {
			_, err := bob.CreateBuffer(context.Background(), 2<<20, 0)
			got <- err
		}()
		synctest.Wait()
		require.Empty(t, got)
		shut.Store(false)
		close(opened)
		require.NoError(t, <-got)
		r.close()
	})
}

// The limits of the device are everybody's, too.
func TestWaitingAtTheLimitOfTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan struct{})
		r := newMemRig(t, withBackend(newHandBackend()), func(c *Config, o *fake.Options) {
			c.Limits = limited(ledger.Fences, 1)
			o.Hooks.Free = func(ddf.IOVA, uint64) error { <-opened; return nil }
		})
		alice, bob := r.open("alice"), r.open("bob")
		buf(t, alice, 4096)
		newFence(t, alice, 0)
		require.NoError(t, alice.Close())
		got := make(chan error, 1)
		go func() {
			_, err := bob.CreateFence(0)
			got <- err
		}()
		synctest.Wait()
		require.Empty(t, got)
		close(opened)
		require.NoError(t, <-got)
		r.close()
	})
}

// A session that is closed while it waits for another's memory does not wait on.
func TestCloseEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan struct{})
		r := newMemRig(t, withBackend(newHandBackend()), func(_ *Config, o *fake.Options) {
			o.LimitBytes = 3 << 20
			o.Hooks.Free = func(ddf.IOVA, uint64) error { <-opened; return nil }
		})
		alice, bob := r.open("alice"), r.open("bob")
		buf(t, alice, 2<<20)
		require.NoError(t, alice.Close())
		got := make(chan error, 1)
		go func() {
			_, err := bob.CreateBuffer(context.Background(), 2<<20, 0)
			got <- err
		}()
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, bob.Close())
		require.Error(t, <-got)
		require.Zero(t, time.Since(begin))
		// The device waits for all that is being reclaimed.
		closed := make(chan error, 1)
		go func() { closed <- r.dev.Close(context.Background()) }()
		synctest.Wait()
		require.Empty(t, closed)
		close(opened)
		require.NoError(t, <-closed)
		r.close()
	})
}

// Tenants are reclaimed in turn: a big session of one is not before a small one of
// another that was closed after it.
func TestReclaimTakesTurns(t *testing.T) {
	r := newMemRig(t, func(_ *Config, o *fake.Options) { o.LimitBytes = 1 << 32 })
	big, small := r.open("alice"), r.open("bob")
	for range 30_000 {
		newFence(t, big, 0)
	}
	newFence(t, small, 0)
	require.NoError(t, big.Close())
	require.NoError(t, small.Close())
	<-small.node.Finished()
	require.False(t, isClosed(big.node.Finished()), "it has thousands of slices")
	r.idle(big)
}

// Objects are destroyed while their session is cut and reclaimed: each once, and its
// charge comes back once.
func TestDestroyWhileTheSessionIsReclaimed(t *testing.T) {
	r := newMemRig(t)
	for range 50 {
		s := r.open("alice")
		var handles []Handle
		for range 40 {
			handles = append(handles, buf(t, s, 4096))
		}
		handles = append(handles, buf(t, s, 2*heap.CarveBytes))
		var all sync.WaitGroup
		for _, part := range [][]Handle{handles[:20], handles[20:]} {
			all.Go(func() {
				for _, h := range part {
					if err := s.DestroyBuffer(h); err != nil {
						assert.ErrorIs(t, err, gpuerr.Closed)
					}
				}
			})
		}
		all.Go(func() { assert.NoError(t, s.Close()) })
		all.Wait()
		r.idle(s)
		require.Zero(t, r.fn.Pool().Usage().UsedBytes)
	}
}

// A buffer that is being destroyed when its session is closed is scrubbed by then, and
// does not wait for the session's memory to be freed.
func TestDestroyBegunBeforeTheClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := make(chan struct{})
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(hand), func(_ *Config, o *fake.Options) {
			o.Hooks.Free = func(ddf.IOVA, uint64) error { <-opened; return nil }
		})
		s := r.open("alice")
		h := buf(t, s, 4096)
		memory := host(t, s, h)
		memory[17] = 1
		q := r.queue(s, 16, 0)
		q.fill(h, 0, 4, 1)
		id := hand.nth(t, 0)
		destroyed, closed := make(chan error, 1), make(chan error, 1)
		go func() { destroyed <- s.DestroyBuffer(h) }()
		synctest.Wait()
		go func() { closed <- s.Close() }()
		synctest.Wait()
		require.Empty(t, destroyed)
		require.Empty(t, closed, "the device has a job of it")
		hand.finish(id, cancelledOutcome, 0)
		require.NoError(t, <-destroyed)
		require.Equal(t, -1, firstNonZero(memory))
		require.NoError(t, <-closed)
		close(opened)
		r.close()
	})
}

func BenchmarkClose(b *testing.B) {
	for _, count := range []int{100, 100_000} {
		b.Run(map[int]string{100: "buffers=100", 100_000: "buffers=100000"}[count], func(b *testing.B) {
			r := newMemRig(b, func(_ *Config, o *fake.Options) { o.LimitBytes = 1 << 32 })
			var closing, reclaiming time.Duration
			for b.Loop() {
				s := r.open("alice")
				for range count {
					buf(b, s, 4096)
				}
				begin := time.Now()
				require.NoError(b, s.Close())
				cut := time.Since(begin)
				require.NoError(b, r.dev.Reclaimed(context.Background()))
				closing += cut
				reclaiming += time.Since(begin) - cut
			}
			b.ReportMetric(float64(closing.Nanoseconds())/float64(b.N), "ns/close")
			b.ReportMetric(float64(reclaiming.Nanoseconds())/float64(b.N*count), "ns/buffer")
		})
	}
}
