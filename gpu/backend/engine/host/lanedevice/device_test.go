package lanedevice

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// TestSelfTest: a healthy device passes, and is as it was; one that lies does not.
func TestSelfTest(t *testing.T) {
	for _, local := range []uint64{0, 1 << 20} {
		d := New(Options{LocalBytes: local})
		require.NoError(t, host.SelfTest(d))
		require.NoError(t, host.SelfTest(d), "again")
		require.NoError(t, d.Close())
		_, err := d.Wait()
		require.ErrorIs(t, err, host.ErrClosed)
	}

	for at := range 2 {
		d := New(Options{Fault: BadSlot, FaultAt: at + 1})
		require.Error(t, host.SelfTest(d), "run %d lies", at+1)
		require.NoError(t, d.Close())
	}
}

var _ host.Device = (*Device)(nil)

func TestDescription(t *testing.T) {
	d := New(Options{})
	describe := d.Describe()
	require.NoError(t, describe.Check())
	require.Equal(t, uint32(wire.MaxPush), describe.MaxPushBytes)
	require.NoError(t, d.Close())
}
