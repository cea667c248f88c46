package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
	"capgpu/outcome"
	"capgpu/ring"
)

// failing is the pattern of fills that the script has something for.
const failing = 0xBAD0BAD0

func failFills(kind mock.FaultKind) rigOption {
	return withScript(mock.Fault{Kind: kind, Match: func(j *backend.Job) bool { return j.Op == backend.OpFill && j.Pattern == failing }})
}

func (c *client) copies(dst, src Handle) {
	c.push(ring.CopyEntry(0, uint64(dst), 0, uint64(src), 0, 64, 0), nil, nil)
}

func kinds(cs []ring.Completion) (all []outcome.Outcome) {
	for _, c := range cs {
		all = append(all, c.Outcome)
	}
	return all
}

// Work that fails takes along what its session had published before it was told, and
// nothing else: whatever it is that goes wrong.
func TestFailureTakesAlong(t *testing.T) {
	for kind, guilty := range map[mock.FaultKind]outcome.Outcome{
		mock.FaultErrorCompletion: errorOutcome, mock.FaultHang: hangOutcome, mock.FaultHangFunction: hangOutcome, mock.FaultLostCompletion: hangOutcome,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemRig(t, failFills(kind), manyStrikes)
				s, bob := r.open("alice"), r.open("bob")
				x, y, theirs := buf(t, s, 4096), buf(t, s, 4096), buf(t, bob, 4096)
				f := newFence(t, s, 0)
				q, late, other := r.queue(s, 16, 0), r.queue(s, 16, 0), r.queue(bob, 16, 0)
				late.wait(f, 1) // it holds what was published before the failure was told
				late.fill(y, 0, 64, 5)
				q.mem.hide()
				q.fill(x, 0, 64, failing)
				q.copies(y, x)
				q.fill(y, 0, 64, 7) // it reads nothing
				q.push(ring.NopEntry(0), nil, nil)
				q.mem.show()
				other.fill(theirs, 0, 64, 1)
				require.Equal(t, []outcome.Outcome{guilty, dependentOutcome, dependentOutcome, outcome.Success}, kinds(q.take(4)))
				if got := other.one().Outcome; kind != mock.FaultHangFunction || got != resetOutcome { // it was in the device by then
					require.Equal(t, outcome.Success, got)
				}
				require.NoError(t, s.SignalFence(f, 1))
				require.Equal(t, []outcome.Outcome{outcome.Success, dependentOutcome}, kinds(late.take(2)))
				if kind != mock.FaultLostCompletion { // of which the device went on
					require.Zero(t, host(t, s, y)[0], "nothing of it ran")
				}
				q.fill(y, 0, 64, 9)
				late.copies(x, y)
				requireOK(t, q.one(), late.one())
				require.EqualValues(t, 9, host(t, s, y)[0])
				synctest.Wait()
				require.Zero(t, s.failures.untold)
				r.idleButBuffers(s)
				r.close()
			})
		})
	}
}

// A refusal is a failure; it takes along what comes after it in its queue, and not what
// comes before.
func TestRefusalTakesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		x := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		q.mem.hide()
		q.fill(x, 0, 64, 1)
		q.fill(x, 4096, 64, 2) // beyond the end
		q.fill(x, 0, 64, 3)
		q.mem.show()
		id := hand.nth(t, 0)
		synctest.Wait()
		require.Len(t, hand.jobs, 1)
		q.fill(x, 0, 64, 4) // the refusal is not told yet
		synctest.Wait()
		require.Len(t, hand.jobs, 1)
		hand.finish(id, outcome.Success, time.Millisecond)
		require.Equal(t, []outcome.Outcome{outcome.Success, {Kind: outcome.Failed}, dependentOutcome, dependentOutcome}, kinds(q.take(4)))
		q.fill(x, 0, 64, 5)
		hand.finish(hand.nth(t, 1), outcome.Success, time.Millisecond)
		requireOK(t, q.one())
		r.close()
	})
}

// Work that the device had behind the work that failed ends as dependent, also if the
// device says that it is done: it may have read half a result.
func TestNoOKOnHalfAResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s, bob := r.open("alice"), r.open("bob")
		x, y, theirs := buf(t, s, 4096), buf(t, s, 4096), buf(t, bob, 4096)
		q, other, neighbour := r.queue(s, 16, 0), r.queue(s, 16, 0), r.queue(bob, 16, 0)
		q.fill(x, 0, 64, 1)
		first := hand.nth(t, 0)
		other.copies(y, x)
		second := hand.nth(t, 1)
		neighbour.fill(theirs, 0, 64, 1)
		third := hand.nth(t, 2)
		hand.finish(first, errorOutcome, time.Millisecond)
		hand.finish(second, outcome.Success, time.Millisecond)
		hand.finish(third, outcome.Success, time.Millisecond)
		require.Equal(t, errorOutcome, q.one().Outcome)
		require.Equal(t, dependentOutcome, other.one().Outcome)
		requireOK(t, neighbour.one())
		r.close()
	})
}

// A wait for the order alone goes on however the point ended; the work behind it that was
// published before the failure was told depends on that all the same.
func TestOrderDependency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t, failFills(mock.FaultErrorCompletion))
		s := r.open("alice")
		x, y, other := buf(t, s, 4096), buf(t, s, 4096), buf(t, s, 4096)
		f := newFence(t, s, 0)
		a, strict, order := r.queue(s, 16, 0), r.queue(s, 16, 0), r.queue(s, 16, 0)
		strict.wait(f, 1)
		strict.fill(other, 0, 64, 1)
		order.push(ring.WaitOrderEntry(0, uint64(f), 1), nil, nil)
		order.fill(other, 0, 64, 2)
		synctest.Wait()
		a.mem.hide()
		a.fill(x, 0, 64, failing)
		a.signal(f, 1)
		a.mem.show()
		require.Equal(t, []outcome.Outcome{errorOutcome, errorOutcome}, kinds(a.take(2)))
		require.Equal(t, []outcome.Outcome{dependentOutcome, dependentOutcome}, kinds(strict.take(2)))
		require.Equal(t, []outcome.Outcome{outcome.Success, dependentOutcome}, kinds(order.take(2)))
		order.push(ring.WaitOrderEntry(0, uint64(f), 1), nil, nil)
		order.copies(y, x)
		requireOK(t, order.take(2)...)
		strict.wait(f, 1)
		strict.copies(y, x)
		require.Equal(t, []outcome.Outcome{dependentOutcome, dependentOutcome}, kinds(strict.take(2)))
		r.close()
	})
}

// The device begins nothing more of a round in which work failed. The next round begins
// with the failure, wherever the work stood among what the core thought that the device had.
func TestRoundEndsWhereTheDeviceEndedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand), manyStrikes)
		s, bob := r.open("alice"), r.open("bob")
		m, theirs := buf(t, s, 4096), buf(t, bob, 4096)
		q, other := r.queue(s, 16, 0), r.queue(bob, 16, 0)
		other.fill(theirs, 0, 4, 1) // the core has not heard of its end
		hand.nth(t, 0)
		for n, how := range []outcome.Outcome{errorOutcome, cancelledOutcome} {
			q.fill(m, 0, 4, 1)
			id := hand.nth(t, 2*n+1)
			failed := hand.jobs[2*n+1]
			require.False(t, failed.Context.Over(failed.Round))
			failed.Context.Fail(failed.Round)
			hand.finish(id, how, 0)
			requireNotOK(t, q.one())
			q.fill(m, 0, 4, 2)
			id = hand.nth(t, 2*n+2)
			next := hand.jobs[2*n+2]
			require.False(t, next.Context.Over(next.Round), "the device would not begin it")
			hand.finish(id, outcome.Success, 0)
			requireOK(t, q.one())
		}
		hand.finish(hand.nth(t, 0), outcome.Success, 0)
		requireOK(t, other.one())
		r.close()
	})
}
