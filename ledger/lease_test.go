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
