package vfio_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestOpenThatFails(t *testing.T) {
	boom := errors.New("boom")
	for _, call := range []string{"DeviceInfo", "RegionInfo", "IRQInfo", "Mmap", "Pread", "SetIRQs"} {
		t.Run(call, func(t *testing.T) {
			leakcheck.Check(t)
			r := newRig(t)
			r.kernel.fail[call] = boom
			require.ErrorIs(t, r.refused(t), boom)
			require.Equal(t, 1, r.container.closes)
		})
	}
	t.Run("Device", func(t *testing.T) {
		r := newRig(t)
		r.container.err = boom
		require.ErrorIs(t, r.refused(t), boom)
		require.Equal(t, 1, r.container.closes)
	})
	t.Run("vectors", func(t *testing.T) {
		for _, n := range []int{-1, 5, 1 << 40} {
			r := newRig(t)
			r.options.Vectors = n
			require.ErrorIs(t, r.refused(t), gpuerr.Invalid)
		}
	})
	t.Run("capabilities in a circle", func(t *testing.T) {
		r := newRig(t)
		r.kernel.addMSIX(2, 0)
		copy(r.kernel.config[0x50:], []byte{0x01, 0x50})
		require.ErrorIs(t, r.refused(t), gpuerr.IO)
	})
	t.Run("not PCI", func(t *testing.T) {
		r := newRig(t)
		r.kernel.flags = 0
		require.ErrorIs(t, r.refused(t), gpuerr.IO)
	})
	t.Run("gone", func(t *testing.T) {
		r := newRig(t)
		r.kernel.leave()
		require.ErrorIs(t, r.refused(t), gpuerr.DeviceLost)
	})
}
