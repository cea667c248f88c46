package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

func TestCancelQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f, g := buf(t, s, 4096), newFence(t, s, 0), newFence(t, s, 0)
		q := r.queue(s, 16, 0)
		require.NoError(t, s.CancelQueue(q.h), "of an idle queue")
		q.fill(b, 0, 4, 1)
		q.fill(b, 0, 4, 1)
		q.fill(b, 0, 4, 1) // more than a session may have in the device
		q.signal(f, 1)
		q.wait(g, 1)
		q.fill(b, 0, 4, 1) // behind the wait: not taken yet
		q.signal(f, 2)
		synctest.Wait()
		require.NoError(t, s.CancelQueue(q.h))
		for i, c := range q.take(7) {
			require.Equal(t, outcome.Cancelled, c.Outcome.Kind, "entry %d", i+1)
		}
		st, err := s.FenceState(f)
		require.NoError(t, err)
		require.EqualValues(t, 2, st.Reached)
		require.Equal(t, outcome.Cancelled, st.Outcome.Kind)
		r.idleButBuffers(s)
		// It goes on afterwards.
		hand.mu.Lock()
		before := len(hand.jobs)
		hand.mu.Unlock()
		q.fill(b, 0, 4, 1)
		hand.finish(hand.nth(t, before), outcome.Success, 0)
		requireOK(t, q.one())
		r.close()
	})
}

// An entry that has no room for its completion when the queue is cancelled does not
// run afterwards, either.
func TestCancelQueueReachesWhatHasNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.auto = true
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f := buf(t, s, 4096), newFence(t, s, 0)
		q := r.queue(s, 2, 0)
		for range 3 { // of 4 completions, never read
			q.push(ring.NopEntry(0), nil, nil)
		}
		synctest.Wait()
		q.wait(f, 5)
		q.fill(b, 0, 4, 1)
		synctest.Wait()
		require.NoError(t, s.CancelQueue(q.h))
		require.NoError(t, s.CancelQueue(q.h), "again")
		q.fill(b, 0, 4, 2) // after the cancel: runs
		c := q.take(6)
		requireOK(t, c[:3]...)
		require.Equal(t, cancelledOutcome, c[3].Outcome)
		require.Equal(t, cancelledOutcome, c[4].Outcome)
		requireOK(t, c[5])
		require.Len(t, hand.jobs, 1)
		r.close()
	})
}

// A failed wait poisons what follows it only until the cancel.
func TestCancelQueueClearsPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.auto = true
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b := buf(t, s, 4096)
		q := r.queue(s, 2, 0)
		q.wait(99, 1) // no such fence
		for range 4 {
			q.fill(b, 0, 4, 1)
		}
		synctest.Wait()
		require.NoError(t, s.CancelQueue(q.h))
		q.fill(b, 0, 4, 2)
		c := q.take(6)
		require.Equal(t, gpuerr.Stale, c[0].Code)
		for _, c := range c[1:4] {
			require.Equal(t, dependentOutcome, c.Outcome)
		}
		require.Equal(t, cancelledOutcome, c[4].Outcome)
		requireOK(t, c[5])
		r.close()
	})
}

// A cancel finds a queue in every way of waiting: for the client with nothing to do, for
// the client and the device, and not at all; and the queue goes on after it.
func TestCancelWhileQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 64)
		for round := range 5 {
			synctest.Wait()
			require.NoError(t, s.CancelQueue(q.h)) // nothing to do
			require.NoError(t, s.CancelQueue(q.h))
			q.fill(b, 0, 4, 1)
			if round%2 == 0 {
				synctest.Wait()
			}
			require.NoError(t, s.CancelQueue(q.h)) // something in the device, or on its way
			require.Equal(t, outcome.Cancelled, q.one().Outcome.Kind)
			q.fill(b, 0, 4, 1)
			synctest.Wait()
			hand.mu.Lock()
			id := hand.jobs[len(hand.jobs)-1].ID
			hand.mu.Unlock()
			hand.finish(id, outcome.Success, time.Microsecond)
			requireOK(t, q.one())
		}
		synctest.Wait()
		r.close()
	})
}
