package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// A queue has the turn only when nothing else is in the device: until then it waits, can
// be cancelled and closed, and what was ahead of it is not disturbed.
func TestTurnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		gate := make(chan struct{})
		b.slow = true
		b.unfit = func(j *backend.Job) bool { return j.Pattern == 1 }
		b.ends = func(j *backend.Job) backend.End {
			if j.Pattern == 1 {
				<-gate
			}
			return backend.End{Outcome: outcome.Success, DeviceTime: time.Microsecond}
		}
		r := newMemRig(t, withBursts(b))
		alice, bob := r.open("alice"), r.open("bob")
		m, busy := buf(t, alice, 4096), r.queue(alice, 16, 64)
		o := buf(t, bob, 4096)
		one, two, three := r.queue(bob, 16, 64), r.queue(bob, 16, 64), r.queue(bob, 16, 64)
		busy.fill(m, 0, 4, 1)
		synctest.Wait()
		for _, q := range []*client{one, two, three} {
			q.fill(o, 0, 4, 2)
		}
		synctest.Wait()
		require.Zero(t, b.bursts.Load(), "the device is not free")
		require.Zero(t, one.left()+two.left()+three.left())

		require.NoError(t, bob.CancelQueue(two.h))
		require.Equal(t, cancelledOutcome, two.one().Outcome)
		require.NoError(t, bob.CloseQueue(three.h))
		require.Equal(t, revokedOutcome, three.one().Outcome)
		require.Zero(t, b.bursts.Load())

		gate <- struct{}{}
		requireOK(t, busy.one(), one.one())
		two.fill(o, 0, 4, 2)
		requireOK(t, two.one())
		require.EqualValues(t, 2, b.bursts.Load())
		require.NoError(t, r.dev.Check())
		r.idleButBuffers(bob)
		close(gate)
		r.close()
	})
}

// What is to wait for a turn waits for the one there is, and not for those that follow.
func TestAwaitTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurstBackend()
		gate := make(chan struct{})
		b.within = func() { <-gate }
		r := newMemRig(t, withBursts(b))
		s := r.open("alice")
		m := buf(t, s, 4096)
		one, two := r.queue(s, 16, 64), r.queue(s, 16, 64)
		one.fill(m, 0, 4, 1)
		synctest.Wait()
		two.fill(m, 0, 4, 1)
		awaited := make(chan struct{})
		go func() {
			r.dev.engine.awaitTurn()
			close(awaited)
		}()
		synctest.Wait()
		require.False(t, isClosed(awaited))
		gate <- struct{}{}
		synctest.Wait()
		require.True(t, isClosed(awaited))
		close(gate)
		requireOK(t, one.one(), two.one())
		r.dev.engine.awaitTurn()
		r.close()
	})
}

// Two queues whose work is now taken in bursts and now declined both get on.
func TestTurnsAndDeclines(t *testing.T) {
	b := newBurstBackend()
	n := 0
	b.alone = func(*backend.Job) bool { n++; return n%3 == 0 } // one burst at a time
	b.slow = true
	r := newMemRig(t, withBursts(b))
	var all [3]*client
	for i := range all {
		s := r.open([]string{"alice", "bob"}[i%2])
		m := buf(t, s, 4096)
		all[i] = r.queue(s, 64, 64)
		go func() {
			for k := range uint32(1000) {
				all[i].fill(m, 0, 4, k)
			}
		}()
	}
	for _, q := range all {
		requireOK(t, q.take(1000)...)
	}
	require.Positive(t, b.inBursts.Load())
	require.NoError(t, r.dev.Check())
}
