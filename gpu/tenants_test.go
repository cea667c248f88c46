package gpu

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/ledger"
	"capgpu/ring"
)

var errPolicy = gpuerr.New(gpuerr.Revoked, "reason=policy: it says so")

func attached(id uint64) func(*Attach) { return func(a *Attach) { a.ID = id } }

// Those of a tenant's sessions that are named end, with what was restricted from them and
// what they have in the device; all others go on.
func TestEndSessions(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t, withScript(mock.Fault{Kind: mock.FaultSlow, Op: "copy", Probability: 1, Duration: mock.Duration(time.Hour)}))
	bad, good, bob := r.open("alice", attached(7)), r.open("alice", attached(8)), r.open("bob", attached(9))
	weak, err := bad.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	b := buf(t, bad, 4096)
	buf(t, weak, 4096)
	r.queue(bad, 16, 0).push(ring.CopyEntry(0, uint64(b), 0, uint64(b), 64, 64, 0), nil, nil)
	require.Eventually(t, func() bool { return atWork(r) == bad.tenant }, 5*time.Second, time.Millisecond)

	require.Zero(t, r.dev.EndSessions("bob", []uint64{0, 7, 8}, errPolicy), "they are another tenant's, and 0 is nobody")
	require.Equal(t, 1, r.dev.EndSessions("alice", []uint64{3, 7, 9}, errPolicy))
	require.Zero(t, r.dev.EndSessions("alice", []uint64{7}, errPolicy), "it has ended")
	for _, s := range []*Session{bad, weak} {
		require.ErrorIs(t, s.Err(), gpuerr.Revoked)
		require.ErrorContains(t, s.Err(), "reason=policy: it says so")
		r.idle(s)
	}
	for _, s := range []*Session{good, bob} {
		q := r.queue(s, 16, 0)
		q.fill(buf(t, s, 4096), 0, 64, 2)
		requireOK(t, q.one())
	}
}

// A tenant that the policy has no more is forgotten with all that it spent, once nothing
// of it is left. Until then it opens nothing; and if the policy has it again, it stays.
func TestEndTenant(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t)
	known := func() bool { return len(r.dev.Status("alice").Tenants) > 0 }
	require.Zero(t, r.dev.EndTenant("alice", errPolicy))

	require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: limited(ledger.Buffers, 2)}))
	require.Zero(t, r.dev.EndTenant("alice", errPolicy))
	require.False(t, known(), "it had nothing")

	first, second, bob := r.open("alice"), r.open("alice"), r.open("bob")
	old := first.tenant
	buf(t, first, 4096)
	weak, err := second.Restrict(Policy{Facet: FacetMemory, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	require.NoError(t, old.account.Spend(ledger.DeviceTime, 5))
	require.Equal(t, 2, r.dev.EndTenant("alice", errPolicy))
	for _, s := range []*Session{first, second, weak} {
		require.ErrorContains(t, s.Err(), "reason=policy")
	}
	r.reclaimed()
	require.Eventually(t, func() bool { return !known() }, 5*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := old.account.Reserve(ledger.Buffers, 0)
		return errors.Is(err, gpuerr.Closed)
	}, 5*time.Second, time.Millisecond, "its books are closed")
	require.NoError(t, r.dev.Check())
	require.NoError(t, bob.Err())

	again := r.open("alice")
	require.NotSame(t, old, again.tenant)
	for _, e := range again.tenant.account.Snapshot() {
		require.False(t, e.Class == ledger.DeviceTime && e.Used > 0, "it begins anew")
	}
}

// A leaving tenant is there for as long as it has anything.
func TestTenantLeavesWithItsLastSession(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t)
	s := r.open("alice")
	buf(t, s, 4096)
	tenant := s.tenant

	// A session is being opened: it keeps the tenant, and finds it leaving.
	other, opening, err := r.dev.openerOf(&Attach{Tenant: "alice", TenantLimits: ledger.NoLimits()})
	require.NoError(t, err)
	require.Same(t, tenant, other)
	require.EqualValues(t, 1, opening)
	require.Equal(t, 1, r.dev.EndTenant("alice", errPolicy))
	r.reclaimed()
	_, err = r.dev.OpenSession(Attach{Tenant: "alice", TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits()})
	require.ErrorIs(t, err, gpuerr.Revoked)
	require.Len(t, r.dev.Status("alice").Tenants, 1)

	// The policy has it again before it was gone: it stays.
	require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: ledger.NoLimits()}))
	r.dev.openEnded(tenant)
	require.Same(t, tenant, r.open("alice").tenant)

	_, _, err = r.dev.openerOf(&Attach{Tenant: "alice", TenantLimits: ledger.NoLimits()})
	require.NoError(t, err)
	require.Equal(t, 1, r.dev.EndTenant("alice", errPolicy))
	r.reclaimed()
	require.Len(t, r.dev.Status("alice").Tenants, 1)
	r.dev.openEnded(tenant)
	require.Empty(t, r.dev.Status("alice").Tenants, "the last that was in the way forgets it")
}

// A device that an operator has suspended ends sessions all the same, and then goes on
// with all others.
func TestEndSessionsOfAFrozenDevice(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t)
	bad, good, alsoBad := r.open("mallory", attached(1)), r.open("alice", attached(2)), r.open("mallory", attached(3))
	qb, qg := r.queue(bad, 16, 0), r.queue(good, 16, 0)
	b, g := buf(t, bad, 4096), buf(t, good, 4096)
	require.NoError(t, r.dev.Freeze(t.Context()))
	qb.fill(b, 0, 64, 1)
	qg.fill(g, 0, 64, 2)
	require.Equal(t, 1, r.dev.EndSessions("mallory", []uint64{1}, errPolicy))
	require.Equal(t, 1, r.dev.EndTenant("mallory", errPolicy))
	r.reclaimed()
	require.ErrorIs(t, bad.Err(), gpuerr.Revoked)
	require.ErrorIs(t, alsoBad.Err(), gpuerr.Revoked)
	require.Eventually(t, func() bool { return len(r.dev.Status("mallory").Tenants) == 0 }, 5*time.Second, time.Millisecond)
	require.Zero(t, host(t, good, g)[0], "nothing has begun")
	r.dev.Thaw()
	requireOK(t, qg.one())
}

// A deadline and a weight that the policy changes hold for sessions that are open, and for
// those of a successor.
func TestPolicyOfOpenSessions(t *testing.T) {
	leakcheck.Check(t)
	r, pool := newMovableRig(t)
	s := r.open("alice", func(a *Attach) { a.MaxDeadline = 5 * time.Second })
	weak, err := s.Restrict(Policy{Facet: FacetFull, MaxDeadline: time.Second, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	bob := r.open("bob")
	longest := func(s *Session) time.Duration {
		all, _ := s.budget(60_000_000)
		require.Equal(t, all, s.Describe().MaxDeadline)
		return all
	}
	require.Equal(t, 5*time.Second, longest(s))

	set := func(d time.Duration, weight uint32) {
		t.Helper()
		require.NoError(t, r.dev.SetTenant("alice", TenantPolicy{Limits: ledger.NoLimits(), Weight: weight, MaxDeadline: d}))
	}
	set(300*time.Millisecond, 9)
	require.EqualValues(t, 9, s.tenant.flow.weight)
	require.Equal(t, 300*time.Millisecond, longest(s))
	require.Equal(t, 300*time.Millisecond, longest(weak))
	require.Equal(t, DefaultMaxDeadline, longest(bob))
	all, stall := s.budget(0)
	require.Equal(t, [2]time.Duration{300 * time.Millisecond, 300 * time.Millisecond}, [2]time.Duration{all, stall}, "also of what names none")
	_, err = s.Restrict(Policy{Facet: FacetFull, MaxDeadline: time.Second, Limits: ledger.NoLimits()})
	require.ErrorIs(t, err, gpuerr.Denied)

	set(2*time.Second, 1)
	require.Equal(t, 2*time.Second, longest(s))
	require.Equal(t, time.Second, longest(weak), "no more than it was restricted to")
	set(time.Hour, 1)
	require.Equal(t, 5*time.Second, longest(s), "no more than it was opened with")
	set(0, 1)
	require.Equal(t, 5*time.Second, longest(s))
	require.Equal(t, DefaultMaxDeadline, time.Duration(s.tenant.longest.Load()), "the device's own")

	set(300*time.Millisecond, 9)
	require.NoError(t, bob.Close())
	require.NoError(t, r.dev.Reclaimed(context.Background()))
	d, _ := r.handOver(t, pool)
	for _, moved := range d.sessionList() {
		require.Equal(t, 300*time.Millisecond, longest(moved))
		require.EqualValues(t, 9, moved.tenant.flow.weight)
	}
}
