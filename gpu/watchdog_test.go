package gpu

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/ledger"
	"capgpu/outcome"
)

// The typed outcome of a job that obeys comes with its deadline, and counts from
// when the job could have begun.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		alice, bob := r.open("alice"), r.open("bob", func(a *Attach) { a.MaxDeadline = 100 * time.Millisecond })
		b, p := buf(t, alice, 4096), prog(t, alice, "p")
		bb, bp := buf(t, bob, 4096), prog(t, bob, "p")
		qa, qb := r.queue(alice, 16, 4096), r.queue(bob, 16, 4096)
		begin := time.Now()
		qa.launchFor(30*time.Millisecond, p, whole(b))
		hand.nth(t, 0)
		qb.launchFor(time.Hour/10, bp, whole(bb)) // the session's bound is less
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.Equal(t, 30*time.Millisecond, time.Since(begin))
		require.Equal(t, hangOutcome, qb.one().Outcome)
		require.Equal(t, 130*time.Millisecond, time.Since(begin))
		require.Zero(t, hand.resets)
		require.GreaterOrEqual(t, alice.Budget()[ledger.DeviceTime].Used, uint64(30*time.Millisecond), "a hang is paid for")
		qa.launch(p, whole(b)) // the default
		begin = time.Now()
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.Equal(t, DefaultDeadline, time.Since(begin))
		r.close()
	})
}

// A job that finished before it could be cancelled is ok: it said so first.
func TestDeadlineLosesTheRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		q.launchFor(time.Millisecond, p, whole(b))
		id := hand.nth(t, 0)
		time.Sleep(2 * time.Millisecond)
		hand.mu.Lock()
		require.Len(t, hand.cancels, 1)
		hand.mu.Unlock()
		hand.finish(id, outcome.Success, 0)
		requireOK(t, q.one())
		r.close()
	})
}

// A device is given the time that it needs to stop a job: on the mock device, where jobs
// wait for pages that their client punched out, no less than 200 ms.
func TestCancelPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mockDevice, err := mock.New(mock.Options{})
		require.NoError(t, err)
		defer mockDevice.Close()
		hand := newHandBackend()
		hand.obedient, hand.limits.CancelBound = false, mockDevice.Info().Limits.CancelBound
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "p")
		q := r.queue(s, 16, 4096)
		q.launchFor(time.Millisecond, p, whole(b))
		id := hand.nth(t, 0)
		time.Sleep(190 * time.Millisecond)
		hand.finish(id, cancelledOutcome, 0)
		require.Equal(t, hangOutcome, q.one().Outcome)
		require.Zero(t, hand.resets)
		r.dev.cfg.HangBound = 400 * time.Millisecond
		require.Equal(t, 100*time.Millisecond, r.dev.reactor.cancelPatience())
		r.close()
	})
}

// A job that ignores its cancel costs a reset: it is guilty, others are not.
func TestHangResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.obedient = false
		r := newMemRig(t, withBackend(hand))
		alice, bob := r.open("alice"), r.open("bob")
		ab, bb, p := buf(t, alice, 4096), buf(t, bob, 4096), prog(t, alice, "p")
		f := newFence(t, bob, 0)
		qa, qb := r.queue(alice, 16, 4096), r.queue(bob, 16, 4096)
		begin := time.Now()
		qa.launchFor(10*time.Millisecond, p, whole(ab))
		guilty := hand.nth(t, 0)
		qb.fill(bb, 0, 4, 1)
		qb.signal(f, 1)
		innocent := hand.nth(t, 1)
		require.Equal(t, hangOutcome, qa.one().Outcome)
		require.LessOrEqual(t, time.Since(begin), 10*time.Millisecond+r.dev.cfg.HangBound)
		c := qb.take(2)
		require.Equal(t, resetOutcome, c[0].Outcome)
		require.Equal(t, resetOutcome, c[1].Outcome)
		require.Equal(t, 1, hand.resets)
		require.NoError(t, r.dev.Check())
		// Late words of before are no longer heard.
		hand.finish(guilty, outcome.Success, 0)
		hand.finish(innocent, outcome.Success, 0)
		hand.finish(12345, outcome.Success, 0)
		require.EqualValues(t, 3, r.dev.Status("").Strays)
		qb.fill(bb, 0, 4, 1)
		hand.finish(hand.nth(t, 2), outcome.Success, 0)
		requireOK(t, qb.one())
		st := r.dev.Status("alice")
		require.EqualValues(t, 1, st.Resets)
		require.EqualValues(t, 1, st.Tenants[0].Strikes)
		require.EqualValues(t, map[string]uint64{"timedOut": 1}, st.Tenants[0].Sessions[0].Outcomes)
		r.close()
	})
}

// The mock's own faults, each with the outcome that it must have.
func TestMockFaults(t *testing.T) {
	for _, tc := range []struct {
		kind mock.FaultKind
		want outcome.Kind
	}{
		{mock.FaultHang, outcome.TimedOut},
		{mock.FaultErrorCompletion, outcome.Failed},
		{mock.FaultLostCompletion, outcome.TimedOut},
		{mock.FaultDuplicateCompletion, outcome.OK},
		{mock.FaultWrongJobID, outcome.TimedOut},
		{mock.FaultStrayDMA, outcome.Failed},
		{mock.FaultDeviceGone, outcome.DeviceLost},
		{mock.FaultWrongWritePointer, outcome.OK},
		{mock.FaultLateCompletion, outcome.TimedOut},
	} {
		t.Run(tc.kind.String(), func(t *testing.T) {
			r := newMemRig(t, withScript(mock.Fault{Kind: tc.kind, Job: 2}))
			s := r.open("alice")
			b := buf(t, s, 4096)
			q := r.queue(s, 16, 4096)
			copyProg, c := prog(t, s, "copy"), buf(t, s, 4096)
			for range 3 {
				q.launchFor(20*time.Millisecond, copyProg, whole(b), whole(c))
				got := q.one()
				want := outcome.OK
				if got.UserData == 2 || (got.UserData == 3 && tc.kind == mock.FaultDeviceGone) {
					want = tc.want
				}
				require.Equal(t, want, got.Outcome.Kind, "entry %d", got.UserData)
				if tc.kind == mock.FaultDeviceGone && got.UserData == 2 {
					break
				}
			}
			require.NoError(t, r.dev.Check())
		})
	}
}
