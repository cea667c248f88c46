package vfio_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	uapi "capgpu/internal/uapi/vfio"
)

// TestRemoved: a function that the host wants back refuses everything, is stopped without a
// reset (its lock is the remover's), and can be closed.
func TestRemoved(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t)
	f := r.open(t)
	_, err := f.Begin()
	require.NoError(t, err)
	require.NoError(t, f.Cause())
	r.kernel.did()
	r.kernel.signal(t, uapi.IRQIndexReq, 0)
	<-f.Removed()
	require.ErrorIs(t, f.Cause(), gpuerr.DeviceLost)
	_, err = f.Load32(0, 0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	_, _, err = f.WindowFD(0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.ErrorIs(t, f.SetMask(0, true), gpuerr.DeviceLost)
	how, err := f.Quiesce()
	require.NoError(t, err)
	require.Equal(t, "none: bus mastering off", how)
	require.Equal(t, []string{"master off", "disarm"}, r.kernel.did())
	_, err = f.Begin()
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.NoError(t, f.Close())
}

// TestReportedError: an error that the device reports is trouble of the epoch, and its
// end only if it has left the bus.
func TestReportedError(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t)
	f := r.open(t)
	for range 2 {
		_, err := f.Begin()
		require.NoError(t, err)
		r.kernel.signal(t, uapi.IRQIndexErr, 0)
		err = <-f.Trouble()
		require.ErrorIs(t, err, gpuerr.IO)
		require.ErrorContains(t, err, "AER")
		require.NoError(t, f.Cause(), "it is not given up")
		_, err = f.Load32(0, 0)
		require.NoError(t, err)
		how, err := f.Quiesce()
		require.NoError(t, err)
		require.Equal(t, "bus mastering off, reset: flr", how)
	}
	r.kernel.signal(t, uapi.IRQIndexErr, 0)
	require.Eventually(t, func() bool { return len(f.Trouble()) == 1 }, 10*time.Second, time.Millisecond)
	_, err := f.Begin()
	require.NoError(t, err)
	require.Empty(t, f.Trouble(), "the reset has ended it")

	r.kernel.leave()
	r.kernel.signal(t, uapi.IRQIndexErr, 0)
	<-f.Removed()
	require.ErrorIs(t, f.Cause(), gpuerr.DeviceLost)
	require.Empty(t, f.Trouble())
}

// TestGone: a device that has left the bus is quiet, and is found out by its reads.
func TestGone(t *testing.T) {
	t.Run("read", func(t *testing.T) {
		r := newRig(t)
		f := r.open(t)
		_, err := f.Begin()
		require.NoError(t, err)
		require.NoError(t, f.Store32(0, 4, ^uint32(0)))
		v, err := f.Load32(0, 4)
		require.NoError(t, err, "all ones is a value while the device is there")
		require.Equal(t, ^uint32(0), v)
		r.kernel.leave()
		_, err = f.Load32(0, 4)
		require.ErrorIs(t, err, gpuerr.DeviceLost)
		<-f.Removed()
		require.ErrorIs(t, f.Cause(), gpuerr.DeviceLost)
	})
	t.Run("stopped", func(t *testing.T) {
		r := newRig(t)
		f := r.open(t)
		_, err := f.Begin()
		require.NoError(t, err)
		r.kernel.leave()
		how, err := f.Quiesce()
		require.NoError(t, err)
		require.Equal(t, "gone: it has left the bus", how)
		<-f.Removed()
	})
	t.Run("lost in its reset", func(t *testing.T) {
		r := newRig(t)
		f := r.open(t)
		_, err := f.Begin()
		require.NoError(t, err)
		r.kernel.resetFails = []error{unix.ENODEV}
		how, err := f.Quiesce()
		require.NoError(t, err)
		require.Equal(t, "gone: it has left the bus", how)
	})
	t.Run("with its interrupts", func(t *testing.T) {
		leakcheck.Check(t)
		r := newRig(t)
		f := r.open(t)
		_, err := f.Begin()
		require.NoError(t, err)
		r.kernel.mu.Lock()
		r.kernel.fail["SetIRQs"] = unix.ENODEV
		r.kernel.mu.Unlock()
		_, err = f.Quiesce()
		require.NoError(t, err)
		require.NoError(t, f.Close())
	})
}
