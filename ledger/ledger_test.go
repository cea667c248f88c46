package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

func only(c Class, n uint64) Limits {
	l := NoLimits()
	l[c] = n
	return l
}

func child(t testing.TB, a *Account, name string, l Limits) *Account {
	t.Helper()
	b, err := a.Child(name, l)
	require.NoError(t, err)
	return b
}

func held(a *Account, c Class) uint64 {
	e := a.Snapshot()[c]
	return e.Reserved + e.Used
}

func TestClassNames(t *testing.T) {
	for c := range NumClasses {
		parsed, ok := ParseClass(c.String())
		require.True(t, ok)
		require.Equal(t, c, parsed)
	}
	_, ok := ParseClass("cores")
	require.False(t, ok)
	require.Equal(t, "unknown", NumClasses.String())
	require.Equal(t, 16, int(NumClasses), "the wires and docs/wire.md number these classes")
}

func TestRefusalNamesTheTightestAccount(t *testing.T) {
	l := New("the device", only(Buffers, 10))
	tenant := child(t, l.Root(), "tenant a", only(Buffers, 8))
	session := child(t, tenant, "session 1", only(Buffers, 5))
	sibling := child(t, tenant, "session 2", NoLimits())

	_, err := sibling.Reserve(Buffers, 7)
	require.NoError(t, err)
	// The session has room for 5, the tenant for 1, the device for 3.
	_, err = session.Reserve(Buffers, 6)
	require.EqualError(t, err, "E_QUOTA buffers asked=6 available=1: tenant a is at its limit; release something or ask for a higher limit")
	_, err = l.Root().Reserve(Buffers, 4)
	require.EqualError(t, err, "E_QUOTA buffers asked=4 available=3: the device is at its limit for all its users; try again later")
	require.Zero(t, held(session, Buffers), "a refused request left a charge")
	require.Equal(t, uint64(7), held(tenant, Buffers))
	require.Equal(t, uint64(1), session.Available(Buffers))
	require.NoError(t, l.Check())
}

func TestRefusedRequestLeavesNoPeak(t *testing.T) {
	l := New("device", only(Buffers, 4))
	a := child(t, l.Root(), "a", NoLimits())
	_, err := a.Reserve(Buffers, 5)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Zero(t, a.Snapshot()[Buffers].Peak)
}

func TestArithmeticDoesNotWrap(t *testing.T) {
	l := New("device", NoLimits())
	a, b := child(t, l.Root(), "a", NoLimits()), child(t, l.Root(), "b", NoLimits())
	all, err := a.Reserve(DeviceMemory, Unlimited)
	require.NoError(t, err)
	_, err = b.Reserve(DeviceMemory, 1)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Zero(t, held(b, DeviceMemory))
	all.Release()
	require.NoError(t, l.Root().Zero())

	require.NoError(t, a.Spend(DeviceTime, Unlimited-1))
	require.ErrorIs(t, b.Spend(DeviceTime, 2), gpuerr.Invalid)
	require.Zero(t, held(b, DeviceTime))
	require.NoError(t, l.Check())
}

func TestReceipt(t *testing.T) {
	l := New("device", NoLimits())
	a := child(t, l.Root(), "a", NoLimits())

	var zero Receipt
	zero.Commit()
	zero.Release()
	require.Zero(t, zero.Amount())

	other, err := a.Reserve(Buffers, 3)
	require.NoError(t, err)
	r, err := a.Reserve(Buffers, 2)
	require.NoError(t, err)
	require.Equal(t, uint64(2), r.Amount())
	r.Commit()
	r.Commit()
	require.Equal(t, Entry{Class: Buffers, Reserved: 3, Used: 2, Limit: Unlimited, Peak: 5}, l.Root().Snapshot()[Buffers])
	r.Release()
	r.Release()
	r.Commit()
	require.Equal(t, Entry{Class: Buffers, Reserved: 3, Limit: Unlimited, Peak: 5}, a.Snapshot()[Buffers])
	require.EqualError(t, a.Zero(), "E_INTERNAL: a still holds buffers 3 (3 of it reserved)")
	other.Release()
	require.NoError(t, l.Root().Zero())
	require.NoError(t, l.Check())
}

func TestReceiptCopyNeverGoesBelowZero(t *testing.T) {
	l := New("device", NoLimits())
	r, err := l.Root().Reserve(Fences, 2)
	require.NoError(t, err)
	r.Commit()
	stray := r
	r.Release()
	require.NoError(t, l.Check())
	stray.Release()
	require.Zero(t, held(l.Root(), Fences))
	require.ErrorContains(t, l.Check(), "a receipt was copied")
}

func TestWrongClasses(t *testing.T) {
	a := New("device", NoLimits()).Root()
	for _, c := range []Class{AuditBytes, DeviceTime, NumClasses, 255} {
		_, err := a.Reserve(c, 1)
		require.ErrorIs(t, err, gpuerr.Invalid)
	}
	for _, c := range []Class{Buffers, NumClasses} {
		require.ErrorIs(t, a.Spend(c, 1), gpuerr.Invalid)
		require.ErrorIs(t, a.CanSpend(c), gpuerr.Invalid)
	}
	a.SetLimit(NumClasses, 1)
	require.Zero(t, a.Available(NumClasses))
}

func TestSpend(t *testing.T) {
	l := New("device", NoLimits())
	tenant := child(t, l.Root(), "tenant a", only(DeviceTime, 100))
	session := child(t, tenant, "session 1", NoLimits())
	require.NoError(t, session.Spend(DeviceTime, 99))
	require.NoError(t, session.CanSpend(DeviceTime))
	require.NoError(t, session.Spend(DeviceTime, 1))
	require.ErrorIs(t, session.CanSpend(DeviceTime), gpuerr.Quota)
	require.ErrorIs(t, session.Spend(DeviceTime, 50), gpuerr.Quota)
	require.Equal(t, uint64(150), held(l.Root(), DeviceTime), "work that was done counts, over the limit too")

	require.NoError(t, session.Zero())
	require.NoError(t, session.Close())
	require.NoError(t, l.Check())
	require.Equal(t, uint64(150), held(tenant, DeviceTime), "what was spent outlives the session")
	require.ErrorIs(t, session.Spend(DeviceTime, 5), gpuerr.Quota)
	require.Equal(t, uint64(155), held(tenant, DeviceTime), "what a closed session still spends is its tenant's")
	require.NoError(t, tenant.Close())
	require.Equal(t, uint64(155), held(l.Root(), DeviceTime))
	require.NoError(t, l.Check())
}

func TestLimitBelowUseBlocksOnlyNewCharges(t *testing.T) {
	l := New("device", NoLimits())
	a := child(t, l.Root(), "a", only(Buffers, 10))
	r, err := a.Reserve(Buffers, 8)
	require.NoError(t, err)
	a.SetLimit(Buffers, 4)
	require.Equal(t, Entry{Class: Buffers, Reserved: 8, Limit: 4, Peak: 8}, a.Snapshot()[Buffers])
	_, err = a.Reserve(Buffers, 1)
	require.EqualError(t, err, "E_QUOTA buffers asked=1 available=0: a is at its limit; release something or ask for a higher limit")
	r.Commit()
	r.Release()
	_, err = a.Reserve(Buffers, 4)
	require.NoError(t, err)
	require.NoError(t, l.Check())
}

func TestClose(t *testing.T) {
	l := New("device", NoLimits())
	tenant := child(t, l.Root(), "tenant", NoLimits())
	session := child(t, tenant, "session", NoLimits())
	r, err := session.Reserve(Buffers, 1)
	require.NoError(t, err)

	require.ErrorContains(t, tenant.Close(), "tenant still holds buffers 1")
	_, err = session.Reserve(Buffers, 1)
	require.ErrorIs(t, err, gpuerr.Closed, "below a closed account")
	_, err = session.Child("restricted", NoLimits())
	require.ErrorIs(t, err, gpuerr.Closed)
	require.Zero(t, session.Available(Buffers))

	r.Release()
	require.ErrorContains(t, tenant.Close(), "still has open accounts below it")
	require.NoError(t, session.Close())
	require.NoError(t, session.Close())
	require.NoError(t, tenant.Close())
	require.NoError(t, l.Root().Close())
	_, err = l.Root().Reserve(Buffers, 1)
	require.ErrorIs(t, err, gpuerr.Closed)
	require.NoError(t, l.Check())
}

// TestCheckFindsDamage breaks the books in every way Check is to notice.
func TestCheckFindsDamage(t *testing.T) {
	for name, damage := range map[string]func(root, a *Account){
		"holds 6, but its own charges and its children's are 5": func(_, a *Account) { a.counts[Buffers].held.Add(1) },
		"uses 1, but its own charges":                           func(root, _ *Account) { root.counts[Buffers].used.Add(1) },
		"above its peak":                                        func(_, a *Account) { a.counts[Buffers].peak.Store(4) },
		"6 idle or committed of 5 charged to itself":            func(_, a *Account) { a.counts[Buffers].ownUsed.Store(6) },
		"is linked wrongly":                                     func(root, a *Account) { a.prev = root },
		"it is closed, but":                                     func(root, _ *Account) { root.state.Or(closed) },
		"in the tree with state":                                func(_, a *Account) { a.state.Or(detached) },
		"wrap":                                                  func(root, _ *Account) { root.counts[Buffers].own.Store(Unlimited) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New("device", NoLimits())
			a := child(t, l.Root(), "a", NoLimits())
			_, err := a.Reserve(Buffers, 5)
			require.NoError(t, err)
			require.NoError(t, l.Check())
			damage(l.Root(), a)
			require.ErrorContains(t, l.Check(), name)
		})
	}
}
