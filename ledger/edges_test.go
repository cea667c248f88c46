package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

// TestZeroCountsBoth: reserved and used units do not make up for each other.
func TestZeroCountsBoth(t *testing.T) {
	l := New("device", NoLimits())
	a := child(t, l.Root(), "a", NoLimits())
	used, err := a.Reserve(Buffers, 1)
	require.NoError(t, err)
	used.Commit()
	require.Error(t, a.Zero())
	reserved, err := a.Reserve(Buffers, 1)
	require.NoError(t, err)
	require.Error(t, a.Zero())
	used.Release()
	require.Error(t, a.Zero())
	reserved.Release()
	require.NoError(t, a.Zero())
}

// TestSpendNamesTheLowest of the accounts that are over their limit.
func TestSpendNamesTheLowest(t *testing.T) {
	l := New("device", only(DeviceTime, 1))
	a := child(t, l.Root(), "a", only(DeviceTime, 1))
	b := child(t, a, "b", NoLimits())
	err := b.Spend(DeviceTime, 2)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, a.full, gpuerr.From(err).Msg)
}

// TestPrepayAsksAllAbove: a charge in advance is refused by an account above without room.
func TestPrepayAsksAllAbove(t *testing.T) {
	l := New("device", only(DeviceTime, 10))
	a := child(t, child(t, l.Root(), "a", NoLimits()), "b", NoLimits())
	require.False(t, a.prepay(DeviceTime, 11))
	require.Zero(t, held(l.Root(), DeviceTime))
	require.NoError(t, l.Check())
}

// TestWarmLease: a lease's idle units are within its share, come back once, and show in Check
// when a limit is below them.
func TestWarmLease(t *testing.T) {
	l := New("device", only(InFlight, 800))
	a := child(t, l.Root(), "a", NoLimits())
	lease := a.Lease(InFlight)
	defer lease.Close()
	require.NoError(t, lease.Take(100))
	lease.Give(100)
	require.True(t, lease.warm)
	require.EqualValues(t, 100, lease.word.Load()&idleMask, "an eighth of the limit")
	require.True(t, lease.take(60))
	require.EqualValues(t, 40, lease.word.Load()&idleMask)
	require.True(t, lease.give(60), "it may keep what it had")
	require.EqualValues(t, 100, lease.word.Load()&idleMask)
	require.False(t, lease.give(1), "and no more")
	require.NoError(t, l.Check())
	l.Root().counts[InFlight].limit.Store(99)
	require.ErrorContains(t, l.Check(), "above its limit of 99")
	l.Root().counts[InFlight].limit.Store(800)
	l.Root().recall(InFlight)
	require.NoError(t, l.Root().Zero())

	require.NoError(t, lease.Take(101))
	lease.cool.Store(0)
	lease.Give(101)
	require.False(t, lease.warm, "more than its share")
	require.EqualValues(t, coolOff, lease.cool.Load(), "and not soon again")
}

// TestWarmMeter: a meter charges ahead no more than its share of the room, from the
// smallest spend on, and nothing once it has ended.
func TestWarmMeter(t *testing.T) {
	l := New("device", only(DeviceTime, 1001))
	a := child(t, l.Root(), "a", NoLimits())
	m := a.Meter(DeviceTime)
	require.NoError(t, m.Spend(1))
	require.True(t, m.warm)
	require.EqualValues(t, 125, m.word.Load()&idleMask)
	require.NoError(t, l.Check())
	m.Close()
	require.False(t, m.warm)
	m.cool.Store(0)
	require.NoError(t, m.Spend(1))
	require.False(t, m.warm, "it has ended")
	require.EqualValues(t, 2, held(l.Root(), DeviceTime))
	require.NoError(t, l.Check())
}

// TestCooling: after so many trips to the tree, and no more, a stash may be warm again.
func TestCooling(t *testing.T) {
	var s stash
	require.False(t, s.cooling())
	s.cool.Store(2)
	require.True(t, s.cooling())
	require.True(t, s.cooling())
	require.False(t, s.cooling())
	require.False(t, s.cooling())
}

// TestLeaseOfAWrongClass takes nothing, and gives nothing back.
func TestLeaseOfAWrongClass(t *testing.T) {
	l := New("device", NoLimits())
	for _, c := range []Class{DeviceTime, NumClasses, NumClasses + 1} {
		lease := l.Root().Lease(c)
		require.ErrorIs(t, lease.Take(1), gpuerr.Invalid)
		lease.Give(1)
		lease.Close()
	}
	m := l.Root().Meter(NumClasses)
	require.ErrorIs(t, m.Spend(1), gpuerr.Invalid)
	m.Close()
	require.NoError(t, l.Check())
	require.NoError(t, l.Root().Zero())
}
