package gpu

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/ledger"
	"capgpu/outcome"
)

// preemptBackend is a device that says for how long jobs were preempted.
type preemptBackend struct {
	*handBackend
	preempted atomic.Int64
}

func (b *preemptBackend) Preempted() time.Duration { return time.Duration(b.preempted.Load()) }

// Time in which a job was preempted counts for no deadline of it, and nothing else is put off.
func TestPreemptedTimeIsNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &preemptBackend{handBackend: newHandBackend()}
		r := newMemRig(t, withBackend(b))
		s := r.open("alice")
		m, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		b.preempted.Store(int64(time.Hour)) // before there was a job
		for n, during := range []time.Duration{0, 20 * time.Millisecond, 0} {
			begin := time.Now()
			q.launchFor(30*time.Millisecond, p, whole(m))
			b.nth(t, n)
			time.Sleep(25 * time.Millisecond)
			b.preempted.Add(int64(during))
			require.Equal(t, hangOutcome, q.one().Outcome)
			require.Equal(t, 30*time.Millisecond+during, time.Since(begin))
		}
		r.close()
	})
}

// Short work does not wait for another tenant's that never ends, and that has all of its own
// time before it is stopped.
func TestEndlessNeighbour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev, err := mock.New(mock.Options{Workers: 1})
		require.NoError(t, err)
		r := newMemRig(t, withBackend(dev))
		alice, bob := r.open("alice"), r.open("bob")
		spin, m := prog(t, alice, "spin"), buf(t, bob, 4096)
		qa, qb := r.queue(alice, 16, 0), r.queue(bob, 16, 0)
		began := time.Now()
		qa.launchFor(time.Second, spin)
		synctest.Wait()
		for n := range 300 {
			start := time.Now()
			qb.fill(m, 0, 64, uint32(n))
			requireOK(t, qb.one())
			require.LessOrEqual(t, time.Since(start), time.Millisecond, "%d", n)
			require.Zero(t, qa.left())
		}
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.InDelta(t, time.Second+dev.Preempted(), time.Since(began), float64(time.Millisecond))
		r.close()
	})
}

// A neighbour that always has short work takes nothing of the time that endless work has
// until its deadline, and pays for its own.
func TestDeadlineOfPreemptedWork(t *testing.T) {
	const deadline = 300 * time.Millisecond
	dev, err := mock.New(mock.Options{Workers: 1})
	require.NoError(t, err)
	r := newRig(t, withBackend(dev))
	alice, bob := r.open("alice"), r.open("bob")
	spin, m := prog(t, alice, "spin"), buf(t, bob, 64<<10)
	qa, qb := r.queue(alice, 16, 0), r.queue(bob, 64, 0)
	began, preempted := time.Now(), dev.Preempted()
	qa.launchFor(deadline, spin)
	ended := make(chan outcome.Outcome, 1)
	go func() { ended <- qa.one().Outcome }()
	done := 0
	for len(ended) == 0 {
		for range 16 {
			qb.fill(m, 0, 64<<10, 1)
		}
		requireOK(t, qb.take(16)...)
		done += 16
	}
	took := time.Since(began)
	preempted = dev.Preempted() - preempted
	require.Equal(t, hangOutcome, <-ended)
	require.Positive(t, done)
	require.Positive(t, preempted)
	require.GreaterOrEqual(t, took, deadline+preempted-time.Millisecond)
	require.GreaterOrEqual(t, alice.Budget()[ledger.DeviceTime].Used, uint64(deadline))
	require.Zero(t, r.dev.reactor.resets.Load())
	r.close()
}

// Work that failed while it preempted another tenant's takes along what its session has behind
// it in the device, as any other does, and what comes later runs.
func TestFailureOfPreemptingWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		alice, bob := r.open("alice"), r.open("bob")
		x, y, theirs := buf(t, alice, 4096), buf(t, alice, 4096), buf(t, bob, 4096)
		q, other, neighbour := r.queue(alice, 16, 0), r.queue(alice, 16, 0), r.queue(bob, 16, 0)
		neighbour.fill(theirs, 0, 64, 1)
		long := hand.nth(t, 0)
		q.fill(x, 0, 64, 1)
		first := hand.nth(t, 1)
		other.copies(y, x)
		second := hand.nth(t, 2)
		hand.jobs[1].Context.Fail(hand.jobs[1].Round)
		hand.finish(first, errorOutcome, time.Millisecond)
		hand.finish(second, outcome.Success, time.Millisecond)
		require.Equal(t, errorOutcome, q.one().Outcome)
		require.Equal(t, dependentOutcome, other.one().Outcome)
		q.fill(x, 0, 64, 2)
		later := hand.nth(t, 3)
		require.False(t, hand.jobs[3].Context.Over(hand.jobs[3].Round))
		hand.finish(later, outcome.Success, time.Millisecond)
		hand.finish(long, outcome.Success, time.Millisecond)
		requireOK(t, q.one(), neighbour.one())
		r.close()
	})
}
