package gpu

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

func requireOK(t testing.TB, cs ...ring.Completion) {
	t.Helper()
	for _, c := range cs {
		require.Equal(t, outcome.Success, c.Outcome, "entry %d: %v", c.UserData, c.Code)
	}
}

func TestWorkOnTheMockDevice(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	a, b, c := buf(t, s, 4096), buf(t, s, 4096), buf(t, s, 4096)
	copyProg := prog(t, s, "copy")
	q := r.queue(s, 16, 4096)
	q.push(ring.NopEntry(0), nil, nil)
	q.fill(a, 0, 4096, 0xDEADBEEF)
	q.launch(copyProg, whole(a), whole(b))
	q.push(ring.CopyEntry(0, uint64(c), 100, uint64(b), 8, 1000, 0), nil, nil)
	done := q.take(4)
	requireOK(t, done...)
	for i := range done {
		require.EqualValues(t, i+1, done[i].UserData, "in queue order")
	}
	require.Equal(t, host(t, s, a), host(t, s, b))
	require.EqualValues(t, 0xDEADBEEF, binary.LittleEndian.Uint32(host(t, s, c)[100:]))
	require.Zero(t, host(t, s, c)[99])
	require.Zero(t, host(t, s, c)[1100])
	require.NoError(t, s.Close())
	require.EqualValues(t, 1, s.launches.Load())
}

func TestTrapIsTold(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	b := buf(t, s, 4096)
	trap := prog(t, s, "trap")
	q := r.queue(s, 16, 4096)
	q.launch(trap, whole(b))
	q.fill(b, 0, 8, 1)
	c := q.take(2)
	require.Equal(t, outcome.Failed, c[0].Outcome.Kind)
	require.Equal(t, outcome.OutOfBounds, c[0].Outcome.Trap.Kind)
	require.Zero(t, c[0].Code)
	require.Equal(t, poisonedOutcome, c[1].Outcome)
}

func TestInFlightQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice", func(a *Attach) { a.Limits = limited(ledger.InFlight, 2) })
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		for range 3 {
			q.fill(b, 0, 4, 1)
		}
		synctest.Wait()
		require.EqualValues(t, 2, s.Budget()[ledger.InFlight].Reserved)
		for i := range 2 {
			hand.finish(hand.nth(t, i), outcome.Success, 0)
		}
		c := q.take(3)
		requireOK(t, c[:2]...)
		require.Equal(t, gpuerr.Quota, c[2].Code)
		require.Zero(t, c[2].Available)
		r.idleButBuffers(s)
		r.close()
	})
}

func (r *rig) idleButBuffers(s *Session) {
	r.t.Helper()
	require.Zero(r.t, s.Budget()[ledger.InFlight].Reserved+s.Budget()[ledger.InFlight].Used)
	require.NoError(r.t, r.dev.Check())
}

func TestOutOfOrderCompletionIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		q.fill(b, 0, 4, 2)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		synctest.Wait()
		require.Zero(t, q.left())
		hand.finish(hand.nth(t, 0), errorOutcome, 0)
		c := q.take(2)
		require.Equal(t, errorOutcome, c[0].Outcome)
		requireOK(t, c[1])
		r.close()
	})
}

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
		q.fill(b, 0, 4, 1)
		q.signal(f, 2)
		q.signal(f, 3)
		synctest.Wait()
		st, err := s.FenceState(f)
		require.NoError(t, err)
		require.Equal(t, FenceState{Promised: 3, Outcome: outcome.Success}, st)
		for i := range 3 {
			how := outcome.Success
			if i == 0 {
				how = errorOutcome
			}
			hand.finish(hand.nth(t, i), how, 0)
		}
		c := q.take(6)
		require.Equal(t, errorOutcome, c[2].Outcome, "a signal ends as its point does")
		requireOK(t, c[4], c[5])
		for v, want := range map[uint64]outcome.Outcome{1: errorOutcome, 2: outcome.Success, 3: outcome.Success} {
			st, err := s.WaitFence(context.Background(), f, v)
			require.NoError(t, err)
			require.Equal(t, want, st.Outcome)
		}
		// A refused entry is work that did not succeed.
		q.fill(f, 0, 4, 1)
		q.signal(f, 4)
		c = q.take(2)
		require.Equal(t, gpuerr.Stale, c[0].Code)
		require.Equal(t, outcome.Failed, c[1].Outcome.Kind)
		require.Zero(t, c[1].Code)
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
		dependent.fill(b, 0, 4, 1) // only ordered after it: runs
		dependent.signal(g, 2)
		q.fill(b, 0, 4, 1)
		q.signal(f, 1)
		hand.finish(hand.nth(t, 0), errorOutcome, 0)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		require.Equal(t, errorOutcome, q.take(2)[1].Outcome)
		c := dependent.take(7)
		for i, want := range []outcome.Outcome{dependentOutcome, dependentOutcome, dependentOutcome, outcome.Success, dependentOutcome, outcome.Success, outcome.Success} {
			require.Equal(t, want, c[i].Outcome, "entry %d", i+1)
		}
		hand.mu.Lock()
		require.Len(t, hand.jobs, 2, "what depended never ran")
		hand.mu.Unlock()
		st, err := s.WaitFence(context.Background(), g, 1)
		require.NoError(t, err)
		require.Equal(t, dependentOutcome, st.Outcome)
		// A wait that cannot be is not skipped either.
		q.wait(b, 1)
		q.fill(b, 0, 4, 1)
		c = q.take(2)
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
		require.NoError(t, s.DestroyFence(g))
		hand.finish(id, outcome.Success, 0)
		c = q.take(2)
		requireOK(t, c[0])
		require.Equal(t, revokedOutcome, c[1].Outcome)
		r.close()
	})
}

func requireNotOK(t testing.TB, c ring.Completion) {
	t.Helper()
	require.NotEqual(t, outcome.OK, c.Outcome.Kind)
}

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

func TestDestroyWhatIsInUse(t *testing.T) {
	for _, ends := range []outcome.Outcome{cancelledOutcome, outcome.Success} {
		synctest.Test(t, func(t *testing.T) {
			hand := newHandBackend()
			hand.obedient = false
			r := newMemRig(t, withBackend(hand))
			s := r.open("alice")
			b, other, p := buf(t, s, 4096), buf(t, s, 4096), prog(t, s, "p")
			q := r.queue(s, 16, 4096)
			q.fill(b, 0, 4, 1)
			q.fill(other, 0, 4, 1)
			q.fill(b, 0, 4, 1) // waits for its turn
			q.launch(p, whole(other))
			synctest.Wait()
			destroyed := make(chan error, 1)
			go func() { destroyed <- s.DestroyBuffer(b) }()
			synctest.Wait()
			require.Empty(t, destroyed, "the device has it")
			require.ErrorIs(t, s.DestroyBuffer(b), gpuerr.Stale, "refused at once")
			hand.finish(hand.nth(t, 0), ends, 0)
			require.NoError(t, <-destroyed)
			closed := make(chan error, 1)
			go func() { closed <- s.CloseProgram(p) }()
			synctest.Wait()
			hand.finish(hand.nth(t, 1), outcome.Success, 0)
			synctest.Wait()
			if len(closed) == 0 { // the launch had reached the device
				hand.finish(hand.nth(t, 2), cancelledOutcome, 0)
			}
			require.NoError(t, <-closed)
			c := q.take(4)
			if ends.Kind == outcome.OK {
				requireOK(t, c[0])
			} else {
				require.Equal(t, revokedOutcome, c[0].Outcome)
			}
			requireOK(t, c[1])
			require.Equal(t, revokedOutcome, c[2].Outcome)
			require.Equal(t, revokedOutcome, c[3].Outcome)
			r.close()
		})
	}
}

func TestProtocolBreachEndsThatQueueOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f := buf(t, s, 4096), newFence(t, s, 0)
		bad, good := r.queue(s, 16, 0), r.queue(s, 16, 0)
		bad.fill(b, 0, 4, 1)
		bad.signal(f, 1)
		hand.nth(t, 0)
		bad.mem.mu.Lock()
		bad.mem.broken = true
		bad.mem.mu.Unlock()
		nudge(bad.mem.work)
		for _, c := range bad.take(2) {
			require.Equal(t, protocolOutcome, c.Outcome)
		}
		synctest.Wait()
		bad.mem.mu.Lock()
		require.Equal(t, gpuerr.Protocol, bad.mem.code)
		bad.mem.mu.Unlock()
		require.NoError(t, s.CancelQueue(bad.h))
		require.NoError(t, s.CloseQueue(bad.h))
		good.fill(b, 0, 4, 1)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		requireOK(t, good.one())
		r.close()
	})
}

func TestClientThatDoesNotDrainStopsItself(t *testing.T) {
	hand := newHandBackend()
	hand.auto = true
	r := newMemRig(t, withBackend(hand))
	s := r.open("alice")
	b := buf(t, s, 4096)
	q, other := r.queue(s, 2, 0), r.queue(s, 16, 0)
	for range 20 {
		q.fill(b, 0, 4, 1)
	}
	other.fill(b, 0, 4, 1)
	requireOK(t, other.one())
	requireOK(t, q.take(20)...)
}

func TestMemorySessionCannotLaunch(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice", func(a *Attach) { a.Facet = FacetMemory })
	b := buf(t, s, 4096)
	q := r.queue(s, 16, 4096)
	q.launch(b, whole(b))
	q.fill(b, 0, 4, 1)
	c := q.take(2)
	require.Equal(t, gpuerr.Unimplemented, c[0].Code)
	requireOK(t, c[1])
}

func TestDeviceTimeRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice", func(a *Attach) { a.Limits = limited(ledger.DeviceTime, uint64(time.Second)) })
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		id := hand.nth(t, 0)
		time.Sleep(time.Second)
		hand.finish(id, outcome.Success, time.Hour) // a lie: it would have been stopped long before
		requireOK(t, q.one())
		require.EqualValues(t, DefaultDeadline+DefaultHangBound, s.Budget()[ledger.DeviceTime].Used)
		q.fill(b, 0, 4, 1)
		require.Equal(t, gpuerr.Quota, q.one().Code)
		r.close()
	})
}

// A bug that one client can reach ends its queue, with everything it had, and
// nothing of anybody else.
func TestBugEndsThatQueueOnly(t *testing.T) {
	for _, method := range []string{"Args", "Complete", "WaitWork"} {
		synctest.Test(t, func(t *testing.T) {
			hand := newHandBackend()
			hand.auto = true
			r := newMemRig(t, withBackend(hand))
			s := r.open("alice")
			b, f, g, p := buf(t, s, 4096), newFence(t, s, 0), newFence(t, s, 0), prog(t, s, "p")
			bad, good := r.queue(s, 16, 64), r.queue(s, 16, 64)
			bad.mem.mu.Lock()
			bad.mem.bugIn = method
			bad.mem.mu.Unlock()
			q, err := lookup[queue](s.handles, bad.h)
			require.NoError(t, err)
			bad.signal(f, 1)
			bad.launch(p, whole(b))
			bad.signal(f, 2)
			bad.wait(g, 1)
			synctest.Wait()
			if method == "WaitWork" { // asked again once the wait is over
				require.NoError(t, s.SignalFence(g, 1))
				synctest.Wait()
			}
			require.True(t, isClosed(q.done), method)
			st, err := s.FenceState(f)
			require.NoError(t, err)
			require.Equal(t, st.Promised, st.Reached, "nobody waits for ever")
			require.NotNil(t, host(t, s, b))
			r.idleButBuffers(s)
			good.fill(b, 0, 4, 1)
			requireOK(t, good.one())
			require.NoError(t, s.DestroyBuffer(b))
			require.NoError(t, s.CloseQueue(bad.h))
			r.close()
		})
	}
}
