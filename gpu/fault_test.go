package gpu

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

const wild = 0xdead0000 // no span of any test is near it

// newDMADevice is a device that is not believed alone when it says ok; settle is
// Config.Settle.
func newDMADevice(t *testing.T, settle func(ctx context.Context, d *Device) error) (*rig, *handBackend) {
	hand := newHandBackend()
	hand.dma = true
	var r *rig
	r = newMemRig(t, withBackend(hand), func(c *Config, _ *fake.Options) {
		if settle != nil {
			c.Settle = func(ctx context.Context) (time.Duration, error) { return math.MaxInt64, settle(ctx, r.dev) }
		}
	})
	return r, hand
}

// records are the details of the audit records of a kind.
func (r *rig) records(kind string) []string {
	r.t.Helper()
	synctest.Wait() // for runAudit
	all, err := r.fn.Grants().Audit.Snapshot(0, 1000)
	require.NoError(r.t, err)
	var found []string
	for _, rec := range all {
		if rec.Kind == kind {
			found = append(found, rec.Detail)
		}
	}
	return found
}

func spanOf(hand *handBackend, n int) backend.Span {
	hand.mu.Lock()
	defer hand.mu.Unlock()
	return hand.jobs[n].Spans[0]
}

// A fault ends the work that runs, and that is all that it costs anybody else.
func TestFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hand := newDMADevice(t, func(context.Context, *Device) error { return nil })
		alice, bob := r.open("alice"), r.open("bob")
		ab, bb := buf(t, alice, 4096), buf(t, bob, 4096)
		af, bf := newFence(t, alice, 0), newFence(t, bob, 0)
		qa, qb := r.queue(alice, 16, 0), r.queue(bob, 16, 0)
		qa.fill(ab, 0, 4, 1)
		qa.fill(ab, 0, 4, 2)
		qa.signal(af, 1)
		guilty := hand.nth(t, 0)
		qb.fill(bb, 0, 4, 1)
		qb.signal(bf, 1)
		hand.nth(t, 2)
		sent := len(hand.jobs)

		r.dev.Fault(Fault{IOVA: wild, Write: true, Count: 3, Reason: "PTE Write access is not set"})
		hand.finish(guilty, outcome.Success, time.Millisecond) // it knows no better
		c := qa.take(3)
		require.Equal(t, faultOutcome, c[0].Outcome)
		require.Equal(t, poisonedOutcome, c[1].Outcome)
		require.Equal(t, faultOutcome, c[2].Outcome)
		require.Equal(t, resetOutcome, qb.take(2)[0].Outcome)
		synctest.Wait()
		require.Equal(t, 1, hand.resets)
		require.Len(t, hand.jobs, sent, "nothing was sent before the reset")
		require.Equal(t, faultOutcome, alice.Poisoned())
		_, err := alice.CreateFence(0)
		require.ErrorIs(t, err, gpuerr.Poisoned)
		require.ErrorContains(t, err, "iommuFault")
		require.EqualValues(t, 1, alice.strikes.Load())
		require.Zero(t, bob.strikes.Load())
		st := r.dev.Status("")
		require.EqualValues(t, 3, st.Faults)
		require.Equal(t, "iommuFault", alice.status().Trap)
		require.NoError(t, r.dev.Check())

		// Work of others goes on.
		qb.fill(bb, 0, 4, 1)
		hand.finish(hand.nth(t, sent), outcome.Success, 0)
		requireOK(t, qb.one())
		rec := r.records("fault")
		require.Len(t, rec, 1)
		for _, word := range []string{"tenant=alice ", "session=1 ", "cause=\"iommuFault\" ", "when=running ", "iova=0xdead0000 access=write faults=3 ", `reason="PTE Write access is not set"`} {
			require.Contains(t, rec[0], word)
		}
		require.Len(t, r.records("reset"), 1)
		r.close()
	})
}

// An address tells the job that it belongs to, whatever runs.
func TestFaultNextToASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hand := newDMADevice(t, nil)
		alice, bob := r.open("alice"), r.open("bob")
		ab, bb := buf(t, alice, 4096), buf(t, bob, 4096)
		qa, qb := r.queue(alice, 16, 0), r.queue(bob, 16, 0)
		qa.fill(ab, 0, 4, 1)
		hand.nth(t, 0)
		qb.fill(bb, 0, 4096, 1)
		hand.nth(t, 1)
		r.dev.Fault(Fault{IOVA: spanOf(hand, 1).IOVA + 4096 + 16, Count: 1})
		require.Equal(t, resetOutcome, qa.one().Outcome)
		require.Equal(t, faultOutcome, qb.one().Outcome)
		require.Zero(t, alice.Poisoned())
		r.close()
	})
}

// A fault that comes too late finds the work that it was: its session learns.
func TestLateFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hand := newDMADevice(t, nil)
		alice, bob := r.open("alice"), r.open("bob")
		ab, bb := buf(t, alice, 4096), buf(t, bob, 4096)
		qa, qb := r.queue(alice, 16, 0), r.queue(bob, 16, 0)
		qa.fill(ab, 0, 4, 1)
		first := hand.nth(t, 0)
		span := spanOf(hand, 0)
		hand.finish(first, outcome.Success, 0)
		requireOK(t, qa.one())
		qb.fill(bb, 0, 4, 1)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		requireOK(t, qb.one())

		r.dev.Fault(Fault{IOVA: span.IOVA, Count: 1})
		require.Equal(t, faultOutcome, alice.Poisoned())
		require.Zero(t, bob.Poisoned())
		synctest.Wait()
		require.Equal(t, 1, hand.resets)
		qa.fill(ab, 0, 4, 1)
		require.Equal(t, poisonedOutcome, qa.one().Outcome)

		r.dev.Fault(Fault{IOVA: wild, Count: 1}) // nobody's address: the last one's
		require.Equal(t, faultOutcome, bob.Poisoned())
		require.Contains(t, strings.Join(r.records("fault"), "\n"), "when=ended")
		r.close()
	})
}

// A fault of nobody's work is the device's: it is reset, and nobody pays.
func TestFaultOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hand := newDMADevice(t, nil)
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		hand.finish(hand.nth(t, 0), outcome.Success, 0)
		requireOK(t, q.one())
		time.Sleep(2 * recentWindow)
		r.dev.Fault(Fault{IOVA: wild, Count: 1})
		synctest.Wait()
		require.Equal(t, 1, hand.resets)
		require.Zero(t, s.Poisoned())
		rec := r.records("fault")
		require.Len(t, rec, 1)
		require.NotContains(t, rec[0], "session=")
		q.fill(b, 0, 4, 1)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		requireOK(t, q.one())
		r.close()
	})
}

// Many faults of one job are one strike; and those of many jobs are as many.
func TestFaultStrikes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hand := newDMADevice(t, nil)
		for i := range DefaultStrikeLimit {
			s := r.open("alice")
			b, q := buf(t, s, 4096), r.queue(s, 16, 0)
			q.fill(b, 0, 4, 1)
			hand.nth(t, i)
			for range 5 {
				r.dev.Fault(Fault{IOVA: wild, Count: 1})
			}
			require.Equal(t, faultOutcome, q.one().Outcome)
			require.EqualValues(t, 1, s.strikes.Load())
			require.NoError(t, s.Close())
		}
		_, err := r.dev.OpenSession(Attach{Tenant: "alice"})
		require.ErrorIs(t, err, gpuerr.Banned)
		r.close()
	})
}

// A device that cannot be reset after a fault is lost.
func TestFaultWithoutReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hand := newDMADevice(t, nil)
		s := r.open("alice")
		b, q := buf(t, s, 4096), r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		hand.nth(t, 0)
		hand.mu.Lock()
		hand.resetErr = errors.New("it does not stop")
		hand.mu.Unlock()
		r.dev.Fault(Fault{IOVA: wild, Count: 1})
		// It may say that the work is stopped before it is known not to be reset.
		require.Contains(t, []outcome.Outcome{lostOutcome, faultOutcome}, q.one().Outcome)
		synctest.Wait()
		require.ErrorIs(t, s.Err(), gpuerr.DeviceLost)
		r.dev.Fault(Fault{IOVA: wild, Count: 1}) // is still recorded
		require.Len(t, r.records("fault"), 2)
		r.close()
	})
}
