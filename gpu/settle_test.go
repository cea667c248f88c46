package gpu

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// An ok is told only once it is known that there was no fault.
func TestOKIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{})
		faulted := atomic.Bool{}
		r, hand := newDMADevice(t, func(_ context.Context, d *Device) error {
			<-asked
			if faulted.Load() {
				d.Fault(Fault{IOVA: wild, Count: 1})
			}
			return nil
		})
		s, other := r.open("alice"), r.open("bob")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		q.fill(b, 0, 4, 1)
		hand.finish(hand.nth(t, 0), outcome.Success, time.Microsecond)
		hand.finish(hand.nth(t, 0), outcome.Success, time.Microsecond) // it says so twice
		synctest.Wait()
		require.Zero(t, q.left())
		require.EqualValues(t, 1, r.dev.reactor.strays.Load())
		time.Sleep(3 * DefaultDeadline) // its deadline is met
		asked <- struct{}{}
		requireOK(t, q.one())

		hand.finish(hand.nth(t, 1), errorOutcome, time.Microsecond)
		asked <- struct{}{}
		require.Equal(t, errorOutcome, q.one().Outcome)

		faulted.Store(true)
		q.fill(b, 0, 4, 1)
		third := hand.nth(t, 2)
		synctest.Wait()                                    // Submit has returned: what is stopped before that is cancelled
		hand.finish(third, errorOutcome, time.Microsecond) // it has an idea of it
		asked <- struct{}{}
		close(asked) // the reset settles, too
		require.Equal(t, faultOutcome, q.one().Outcome)
		require.Zero(t, other.Poisoned())
		require.Zero(t, hand.cancels)
		r.close()
	})
}

// Work that was done before another's hang stays done; before another's fault, nobody can
// say which job was at fault.
func TestDoneBeforeAReset(t *testing.T) {
	for name, c := range map[string]struct {
		fault            bool
		done, guiltyEnds outcome.Outcome
	}{
		"hang":  {false, outcome.Success, hangOutcome},
		"fault": {true, resetOutcome, faultOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hold := make(chan struct{})
				r, hand := newDMADevice(t, func(context.Context, *Device) error { <-hold; return nil })
				hand.obedient = false
				alice, bob := r.open("alice"), r.open("bob")
				ab, bb := buf(t, alice, 4096), buf(t, bob, 4096)
				qa, qb := r.queue(alice, 16, 4096), r.queue(bob, 16, 4096)
				if c.fault {
					qa.fill(ab, 0, 4, 1)
					done := hand.nth(t, 0)
					qb.fill(bb, 0, 4, 1)
					hand.nth(t, 1)
					hand.finish(done, outcome.Success, time.Microsecond)
					synctest.Wait()
					r.dev.Fault(Fault{IOVA: spanOf(hand, 1).IOVA, Count: 1})
				} else {
					qb.launchFor(time.Millisecond, prog(t, bob, "p"), whole(bb))
					hand.nth(t, 0)
					qa.fill(ab, 0, 4, 1)
					hand.finish(hand.nth(t, 1), outcome.Success, time.Microsecond)
					time.Sleep(time.Second) // it is reset, and waits to be settled
				}
				synctest.Wait()
				close(hold)
				require.Equal(t, c.done, qa.one().Outcome)
				require.Equal(t, c.guiltyEnds, qb.one().Outcome)
				r.close()
			})
		})
	}
}

// Where nobody can say whether work faulted, it is not ok.
func TestUnsettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := errors.New("no answer")
		r, hand := newDMADevice(t, func(ctx context.Context, _ *Device) error {
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			return answer
		})
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		hand.finish(hand.nth(t, 0), outcome.Success, time.Microsecond)
		require.Equal(t, errorOutcome, q.one().Outcome)
		require.Zero(t, s.strikes.Load(), "it is nobody's fault")
		require.Zero(t, s.Poisoned())
		answer = nil // that was for once
		q.fill(b, 0, 4, 1)
		hand.finish(hand.nth(t, 1), outcome.Success, time.Microsecond)
		requireOK(t, q.one())
		answer = gpuerr.New(gpuerr.Unimplemented, "no record of faults")
		for i := range 2 {
			q.fill(b, 0, 4, 1)
			hand.finish(hand.nth(t, 2+i), outcome.Success, time.Microsecond)
			requireOK(t, q.one())
		}
		require.True(t, r.dev.reactor.settling.unknown.Load())
		r.close()
	})
}

// Work of a time in which reports of faults may have been left out is a device error,
// that of before and after is not; a backend that has seen for itself is believed.
func TestIncompleteRecord(t *testing.T) {
	for name, verifies := range map[string]bool{"its word": false, "has seen it": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hand := newHandBackend()
				hand.dma, hand.verifies = true, verifies
				var gap time.Time // until then
				r := newMemRig(t, withBackend(hand), func(c *Config, _ *fake.Options) {
					c.Settle = func(context.Context) (time.Duration, error) { return max(0, time.Since(gap)), nil }
				})
				within := errorOutcome
				if verifies {
					within = outcome.Success
				}
				s := r.open("alice")
				b, q := buf(t, s, 4096), r.queue(s, 16, 0)
				run := func(n int, takes time.Duration) outcome.Outcome {
					q.fill(b, 0, 4, 1)
					id := hand.nth(t, n)
					time.Sleep(takes)
					hand.finish(id, outcome.Success, takes)
					return q.one().Outcome
				}
				require.Equal(t, outcome.Success, run(0, time.Second))
				gap = time.Now().Add(time.Second)
				require.Equal(t, within, run(1, time.Second/2), "within the gap")
				require.Equal(t, within, run(2, time.Second), "begun in it")
				require.Equal(t, outcome.Success, run(3, time.Second/4))

				// A reset goes by the same.
				other := r.open("bob")
				q2 := r.queue(other, 16, 4096)
				gap = time.Now().Add(time.Second / 4)
				hand.obedient = false
				q2.launchFor(time.Millisecond, prog(t, other, "p"), whole(buf(t, other, 4096)))
				hand.nth(t, 4)
				q.fill(b, 0, 4, 1)
				hold := hand.nth(t, 5)
				hand.finish(hold, outcome.Success, time.Microsecond)
				require.Equal(t, within, q.one().Outcome)
				require.Equal(t, hangOutcome, q2.one().Outcome)
				require.Zero(t, s.strikes.Load())
				r.close()
			})
		})
	}
}
