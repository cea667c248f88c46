package gpu

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestBackendWordsAreDoubted(t *testing.T) {
	trap := outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1}}
	for said, want := range map[outcome.Outcome]outcome.Outcome{
		outcome.Success:                         outcome.Success,
		{Kind: outcome.OK, Cause: outcome.Hang}: outcome.Success,
		trap:                                    trap,
		errorOutcome:                            errorOutcome,
		{}:                                      errorOutcome,
		{Kind: outcome.Failed, Cause: outcome.TrapCause}:   errorOutcome,
		{Kind: outcome.Failed, Cause: outcome.LaunchLimit}: {Kind: outcome.Failed, Cause: outcome.LaunchLimit},
		{Kind: outcome.Kind(99)}:                           errorOutcome,
		{Kind: outcome.OK, Cause: outcome.Cause(99)}:       errorOutcome,
		{Kind: outcome.Cancelled}:                          errorOutcome, // nobody cancelled it
		{Kind: outcome.Innocent, Cause: outcome.Reset}:     errorOutcome,
		{Kind: outcome.TimedOut, Cause: outcome.Hang}:      errorOutcome,
		{Kind: outcome.Revoked, Cause: outcome.Closed}:     errorOutcome,
	} {
		got, lost := believe(said, outcome.Outcome{})
		require.Equal(t, want, got, "%v", said)
		require.False(t, lost)
	}
	got, _ := believe(outcome.Outcome{Kind: outcome.Cancelled}, revokedOutcome)
	require.Equal(t, revokedOutcome, got)
	got, lost := believe(outcome.Outcome{Kind: outcome.DeviceLost}, revokedOutcome)
	require.Equal(t, lostOutcome, got)
	require.True(t, lost)
}

func TestDoubleCompletionCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		bob := r.open("bob")
		c, other := buf(t, bob, 4096), r.queue(bob, 16, 0)
		q.fill(b, 0, 4, 1)
		first := hand.nth(t, 0)
		other.fill(c, 0, 4, 1)
		hand.nth(t, 1)
		hand.finish(first, errorOutcome, 0)
		hand.finish(first, outcome.Success, 0) // the second must not profit
		synctest.Wait()
		require.Zero(t, other.left())
		require.Equal(t, errorOutcome, q.one().Outcome)
		hand.finish(hand.nth(t, 1), outcome.Success, 0)
		requireOK(t, other.one())
		r.close()
	})
}

func TestSubmitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.refuse = gpuerr.New(gpuerr.IO, "doorbell stuck")
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		q.fill(b, 0, 4, 1)
		require.Equal(t, errorOutcome, q.one().Outcome)
		require.NoError(t, s.DestroyBuffer(b))
		r.close()
	})
}

func TestCompletionInsideSubmit(t *testing.T) {
	hand := newHandBackend()
	hand.auto = true
	r := newMemRig(t, withBackend(hand))
	s := r.open("alice")
	b := buf(t, s, 4096)
	q := r.queue(s, 64, 0)
	for range 500 {
		q.fill(b, 0, 4, 1)
	}
	requireOK(t, q.take(500)...)
	r.idleButBuffers(s)
}
