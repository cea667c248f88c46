package gpu

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

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
		require.Equal(t, dependentOutcome, c[1].Outcome)
		r.close()
	})
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
		synctest.Wait() // both are taken
		bad.mem.mu.Lock()
		bad.mem.broken = true
		bad.mem.mu.Unlock()
		bad.mem.bell()
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
	require.Equal(t, gpuerr.Unimplemented, q.one().Code)
	q.fill(b, 0, 4, 1)
	requireOK(t, q.one())
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
	for _, method := range []string{"TakeMany", "CompleteMany", "Arm"} {
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
			q, err := handles.Lookup[queue](s.handles, bad.h)
			require.NoError(t, err)
			bad.signal(f, 1)
			bad.launch(p, whole(b))
			bad.signal(f, 2)
			bad.wait(g, 1)
			synctest.Wait()
			if method == "Arm" { // asked again once the wait is over
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
