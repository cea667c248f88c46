package gpu

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
)

// reclaimed waits until what was closed is reclaimed.
func (r *rig) reclaimed() {
	r.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	require.NoError(r.t, r.dev.Reclaimed(ctx))
}

// Closing while the device does not obey: bounded, revoked, and no charge left.
func TestCloseWhileJobsRun(t *testing.T) {
	for _, obedient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			hand := newHandBackend()
			hand.obedient = obedient
			r := newMemRig(t, withBackend(hand))
			s, bob := r.open("alice"), r.open("bob")
			f, b, bb := newFence(t, s, 0), buf(t, s, 4096), buf(t, bob, 4096)
			q, qb := r.queue(s, 16, 0), r.queue(bob, 16, 0)
			for range 5 {
				q.fill(b, 0, 4, 1)
			}
			q.signal(f, 1)
			hand.nth(t, 1)
			qb.fill(bb, 0, 4, 1)
			hand.nth(t, 2)
			begin := time.Now()
			require.NoError(t, s.Close())
			require.LessOrEqual(t, time.Since(begin), r.dev.cfg.HangBound)
			r.reclaimed()
			require.NoError(t, s.account.Zero())
			for _, c := range q.take(6) {
				require.Equal(t, revokedOutcome, c.Outcome, "entry %d", c.UserData)
			}
			require.Equal(t, gpuerr.Closed, q.mem.code)
			if obedient {
				require.Zero(t, hand.resets)
				hand.finish(hand.nth(t, 2), outcome.Success, 0)
				requireOK(t, qb.one())
			} else {
				require.Equal(t, 1, hand.resets)
				require.Equal(t, resetOutcome, qb.one().Outcome)
				require.EqualValues(t, 1, r.dev.Status("alice").Tenants[0].Strikes)
				require.Zero(t, r.dev.Status("bob").Tenants[0].Strikes)
			}
			r.close()
		})
	}
}

func TestCloseWhileSpinning(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	spin := prog(t, s, "spin")
	q := r.queue(s, 16, 4096)
	for range 4 {
		q.launch(spin)
	}
	require.Eventually(t, func() bool { return r.dev.Status("").Tenants[0].Sessions[0].InFlight == 4 }, 5*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	for _, c := range q.take(4) {
		require.Equal(t, revokedOutcome, c.Outcome)
	}
	r.idle(s)
}

func TestCloseCascade(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	for range 50 {
		buf(t, s, 4096)
	}
	buf(t, s, 3<<20)
	f := newFence(t, s, 0)
	r.queue(s, 16, 1024)
	child, err := s.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	buf(t, child, 1)
	theirs := newFence(t, child, 0)
	woken := make(chan FenceState, 2)
	var wg sync.WaitGroup
	for _, x := range []struct {
		s *Session
		f Handle
	}{{s, f}, {child, theirs}} {
		wg.Go(func() {
			st, err := x.s.WaitFence(context.Background(), x.f, 5)
			if err == nil {
				woken <- st
				return
			}
			require.ErrorIs(t, err, gpuerr.Closed)
			woken <- FenceState{Outcome: revokedOutcome}
		})
	}
	require.NoError(t, s.Close())
	wg.Wait()
	for range 2 {
		require.Equal(t, outcome.Revoked, (<-woken).Outcome.Kind)
	}
	r.idle(s)
	require.Zero(t, r.fn.Pool().Usage().UsedBytes)
}

func TestDeviceClose(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	buf(t, s, 1)
	r.queue(s, 16, 0)
	r.close()
	require.ErrorIs(t, s.Err(), gpuerr.Revoked, "closed by another than the caller")
	_, err := r.dev.OpenSession(Attach{Tenant: "alice"})
	require.Error(t, err)
	require.NoError(t, r.dev.Close(context.Background()))
}
