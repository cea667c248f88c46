package gpu

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

func TestSignalSumsUpItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f := buf(t, s, 4096), newFence(t, s, 0)
		q := r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		q.fill(b, 0, 4, 1)
		q.signal(f, 1)
		synctest.Wait()
		st, err := s.FenceState(f)
		require.NoError(t, err)
		require.Equal(t, FenceState{Promised: 1, Outcome: outcome.Success}, st)
		hand.finish(hand.nth(t, 0), outcome.Success, 0)
		hand.finish(hand.nth(t, 1), errorOutcome, 0)
		require.Equal(t, []outcome.Outcome{outcome.Success, errorOutcome, errorOutcome}, kinds(q.take(3)), "a signal ends as its point does")
		q.fill(b, 0, 4, 1)
		q.signal(f, 2)
		q.signal(f, 3)
		hand.finish(hand.nth(t, 2), outcome.Success, 0)
		requireOK(t, q.take(3)...)
		for v, want := range map[uint64]outcome.Outcome{1: errorOutcome, 2: outcome.Success, 3: outcome.Success} {
			st, err := s.WaitFence(context.Background(), f, v)
			require.NoError(t, err)
			require.Equal(t, want, st.Outcome)
		}
		// A refused entry is work that did not succeed.
		q.fill(f, 0, 4, 1)
		q.signal(f, 4)
		c := q.take(2)
		require.Equal(t, gpuerr.Stale, c[0].Code)
		require.Equal(t, outcome.Failed, c[1].Outcome.Kind)
		require.Zero(t, c[1].Code)
		r.close()
	})
}

// The completion of a signal says when its point ended, on the clock of the device: what it
// covers had ended then, and nothing of it is device time that was charged.
func TestSignalSaysWhenItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f, g := buf(t, s, 4096), newFence(t, s, 0), newFence(t, s, 0)
		first, second := r.queue(s, 16, 0), r.queue(s, 16, 0)
		began := r.dev.age()
		first.fill(b, 0, 4, 1)
		first.signal(f, 1)
		second.wait(f, 1)
		second.signal(g, 1)
		time.Sleep(time.Second)
		hand.finish(hand.nth(t, 0), outcome.Success, time.Millisecond)
		one := first.take(2)
		requireOK(t, one...)
		require.EqualValues(t, time.Millisecond, one[0].DeviceNanos)
		require.EqualValues(t, began+time.Second, one[1].DeviceNanos)
		requireOK(t, second.take(2)...)
		time.Sleep(time.Minute)
		second.wait(f, 1)
		second.signal(g, 2)
		two := second.take(2)
		requireOK(t, two...)
		require.Zero(t, two[0].DeviceNanos, "a wait says nothing")
		require.EqualValues(t, began+time.Second+time.Minute, two[1].DeviceNanos)
		require.EqualValues(t, time.Millisecond, s.Budget()[ledger.DeviceTime].Used)

		// One that does not end ok says nothing.
		first.fill(b, 0, 4, 1)
		first.signal(f, 2)
		hand.finish(hand.nth(t, 1), errorOutcome, 0)
		three := first.take(2)
		require.Equal(t, errorOutcome, three[1].Outcome)
		require.Zero(t, three[1].DeviceNanos)
		r.close()
	})
}

func TestWaitHoldsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.auto = true
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f, g := buf(t, s, 4096), newFence(t, s, 0), newFence(t, s, 0)
		first, second := r.queue(s, 16, 0), r.queue(s, 16, 0)
		first.wait(f, 1)
		first.fill(b, 0, 4, 1)
		first.signal(g, 1)
		synctest.Wait()
		require.Zero(t, first.left())
		second.fill(b, 0, 4, 1)
		second.signal(f, 1) // across queues
		requireOK(t, second.take(2)...)
		requireOK(t, first.take(3)...)
		// A wait for what is reached holds nothing.
		first.wait(g, 1)
		first.wait(g, 0)
		requireOK(t, first.take(2)...)
		r.close()
	})
}

func TestFailedPointCancelsDependents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f, g := buf(t, s, 4096), newFence(t, s, 0), newFence(t, s, 0)
		q, dependent := r.queue(s, 16, 0), r.queue(s, 16, 0)
		dependent.wait(f, 1)
		dependent.fill(b, 0, 4, 1)
		dependent.wait(g, 99) // would hold for ever
		dependent.push(ring.NopEntry(0), nil, nil)
		dependent.signal(g, 1)
		q.fill(b, 0, 4, 1)
		q.signal(f, 1)
		hand.finish(hand.nth(t, 0), errorOutcome, 0)
		require.Equal(t, errorOutcome, q.take(2)[1].Outcome)
		require.Equal(t, []outcome.Outcome{dependentOutcome, dependentOutcome, dependentOutcome, outcome.Success, dependentOutcome}, kinds(dependent.take(5)))
		dependent.fill(b, 0, 4, 1) // what it covers is over
		dependent.signal(g, 2)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		requireOK(t, dependent.take(2)...)
		hand.mu.Lock()
		require.Len(t, hand.jobs, 2, "what depended never ran")
		hand.mu.Unlock()
		st, err := s.WaitFence(context.Background(), g, 1)
		require.NoError(t, err)
		require.Equal(t, dependentOutcome, st.Outcome)
		// A wait that cannot be is not skipped either.
		q.wait(b, 1)
		q.fill(b, 0, 4, 1)
		c := q.take(2)
		require.Equal(t, gpuerr.Stale, c[0].Code)
		require.Equal(t, dependentOutcome, c[1].Outcome)
		r.close()
	})
}

func TestDestroyedFenceEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f := buf(t, s, 4096), newFence(t, s, 0)
		q := r.queue(s, 16, 0)
		q.wait(f, 1)
		q.fill(b, 0, 4, 1)
		synctest.Wait()
		require.NoError(t, s.DestroyFence(f))
		c := q.take(2)
		require.Equal(t, dependentOutcome, c[0].Outcome)
		require.Equal(t, dependentOutcome, c[1].Outcome)
		// The signal's fence goes while its work runs.
		g := newFence(t, s, 0)
		q.signal(g, 1) // ends the group
		requireNotOK(t, q.one())
		q.fill(b, 0, 4, 1)
		q.signal(g, 2)
		id := hand.nth(t, 0)
		synctest.Wait() // the signal is taken, too
		require.NoError(t, s.DestroyFence(g))
		hand.finish(id, outcome.Success, 0)
		c = q.take(2)
		requireOK(t, c[0])
		require.Equal(t, revokedOutcome, c[1].Outcome)
		r.close()
	})
}
