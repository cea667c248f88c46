package gpu

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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
