package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
)

func TestLease(t *testing.T) {
	l := New("device", only(InFlight, 4))
	a := child(t, l.Root(), "a", NoLimits())
	lease := a.Lease(InFlight)
	defer lease.Close()
	require.NoError(t, lease.Take(3))
	require.Equal(t, uint64(3), held(l.Root(), InFlight))
	require.ErrorIs(t, lease.Take(2), gpuerr.Quota)
	lease.Give(3)
	require.Zero(t, held(l.Root(), InFlight))
	require.NoError(t, l.Root().Zero())
	require.NoError(t, l.Check())
}

func TestMeter(t *testing.T) {
	l := New("device", only(DeviceTime, 4))
	a := child(t, l.Root(), "a", NoLimits())
	meter := a.Meter(DeviceTime)
	defer meter.Close()
	require.NoError(t, meter.Spend(4))
	require.Equal(t, uint64(4), held(l.Root(), DeviceTime))
	require.ErrorIs(t, meter.Spend(1), gpuerr.Quota)
	require.Equal(t, uint64(5), held(l.Root(), DeviceTime))
	require.NoError(t, l.Check())
}

// TestReserveThatWaitedForRecall: an account may close while a request waits for
// idle units to be given back.
func TestReserveThatWaitedForRecall(t *testing.T) {
	l := New("device", NoLimits())
	a := child(t, l.Root(), "a", NoLimits())
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.reserveRecalling(InFlight, 1, a), gpuerr.Closed)
}

// TestPrepayIsAllOrNone: a root with room does not keep units that a lower account has no
// room for.
func TestPrepayIsAllOrNone(t *testing.T) {
	l := New("device", NoLimits())
	a := child(t, l.Root(), "a", only(DeviceTime, 10))
	require.False(t, a.prepay(DeviceTime, 11))
	require.False(t, l.Root().prepay(DeviceTime, Unlimited) && l.Root().prepay(DeviceTime, 1), "past the root's limit")
	l.Root().unspend(DeviceTime, Unlimited)
	require.True(t, a.prepay(DeviceTime, 10))
	require.NoError(t, l.Check())
	a.unspend(DeviceTime, 10)
	require.Zero(t, held(l.Root(), DeviceTime))
	require.NoError(t, l.Check())
}

// TestWarmingShows: an observer that looked before a lease was warm and looks again when it
// is cold can tell that it was warm.
func TestWarmingShows(t *testing.T) {
	l := New("device", NoLimits())
	a := child(t, l.Root(), "a", NoLimits())
	before := l.Root().counts[InFlight].warm.Load()
	lease := warmLease(t, a)
	require.True(t, l.Root().counts[InFlight].anyWarm())
	l.Root().recall(InFlight)
	require.False(t, l.Root().counts[InFlight].anyWarm())
	require.NotEqual(t, before, l.Root().counts[InFlight].warm.Load())
	require.Zero(t, lease.word.Load())
}

// TestLeaseAllocatesNothing, warm or not.
func TestLeaseAllocatesNothing(t *testing.T) {
	l := New("device", NoLimits())
	a := child(t, child(t, l.Root(), "tenant", NoLimits()), "session", NoLimits())
	lease, meter := a.Lease(InFlight), a.Meter(DeviceTime)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if lease.Take(3) != nil || meter.Spend(1000) != nil {
			t.Fatal("refused")
		}
		lease.Give(3)
		if a.CanSpend(DeviceTime) != nil {
			t.Fatal("refused")
		}
	}))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if lease.Take(3) != nil || meter.Spend(1000) != nil {
			t.Fatal("refused")
		}
		lease.Give(3)
		a.recall(InFlight)
		a.recall(DeviceTime)
		lease.cool.Store(0)
		meter.cool.Store(0)
	}))
}

// TestRecallIsRare: a lease that was recalled goes to the tree for a while, so that an
// account that is refused again and again does not recall each time.
func TestRecallIsRare(t *testing.T) {
	l := New("device", only(InFlight, 64))
	a := child(t, l.Root(), "a", NoLimits())
	lease := a.Lease(InFlight)
	recalls := 0
	for range 10 * coolOff {
		require.NoError(t, lease.Take(1))
		lease.Give(1)
		if l.Root().counts[InFlight].anyWarm() {
			recalls++
		}
		_, err := l.Root().Reserve(InFlight, 65)
		require.ErrorIs(t, err, gpuerr.Quota)
	}
	require.LessOrEqual(t, recalls, 10)
	require.NotZero(t, recalls)
}
