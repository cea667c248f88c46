package vfio_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf/vfio"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	uapi "capgpu/internal/uapi/vfio"
)

func TestEpochs(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t)
	f := r.open(t)
	require.EqualValues(t, 2, r.kernel.command(), "registers on, bus mastering off")
	require.Equal(t, 2, f.Vectors())
	r.kernel.did()
	_, err := f.EventFD(0)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorIs(t, f.SetMask(0, true), gpuerr.Busy)

	for range 2 {
		reset, err := f.Begin()
		require.NoError(t, err)
		require.Equal(t, "flr", reset)
		require.Equal(t, []string{"reset", "arm", "master on"}, r.kernel.did())
		require.EqualValues(t, 6, r.kernel.command())
		_, err = f.Begin()
		require.ErrorIs(t, err, gpuerr.Internal)
		how, err := f.Quiesce()
		require.NoError(t, err)
		require.Equal(t, "bus mastering off, reset: flr", how)
		require.Equal(t, []string{"master off", "disarm", "reset"}, r.kernel.did())
		how, err = f.Quiesce()
		require.NoError(t, err)
		require.Equal(t, "bus mastering off, reset: flr", how)
		require.Empty(t, r.kernel.did(), "what is stopped stays so")
	}
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	_, err = f.Begin()
	require.ErrorIs(t, err, gpuerr.Closed)
	_, err = f.Quiesce()
	require.ErrorIs(t, err, gpuerr.Closed)
	_, err = f.EventFD(0)
	require.ErrorIs(t, err, gpuerr.Closed)
	_, err = f.Load32(0, 0)
	require.ErrorIs(t, err, gpuerr.Closed)
}

// TestCloseOfALiveFunction stops it first.
func TestCloseOfALiveFunction(t *testing.T) {
	r := newRig(t)
	f := r.open(t)
	_, err := f.Begin()
	require.NoError(t, err)
	r.kernel.did()
	require.NoError(t, f.Close())
	require.Equal(t, []string{"master off", "disarm", "reset", "disarm", "disarm"}, r.kernel.did())
	require.EqualValues(t, 2, r.kernel.command())
}

// TestWithoutReset: the name of a reset says if the kernel cannot reset the function.
func TestWithoutReset(t *testing.T) {
	r := newRig(t)
	r.kernel.flags = uapi.DevicePCI
	f := r.open(t)
	reset, err := f.Begin()
	require.NoError(t, err)
	require.Equal(t, "none: bus mastering off", reset)
	how, err := f.Quiesce()
	require.NoError(t, err)
	require.Equal(t, "none: bus mastering off", how)
	require.Zero(t, r.kernel.resets)
}

// TestResetTurnsTheBusOn: the register is looked at after the reset.
func TestResetTurnsTheBusOn(t *testing.T) {
	r := newRig(t)
	f := r.open(t)
	_, err := f.Begin()
	require.NoError(t, err)
	r.kernel.onReset = func(k *fakeKernel) { k.config[0x04] |= 4 }
	_, err = f.Quiesce()
	require.NoError(t, err)
	require.EqualValues(t, 2, r.kernel.command())
}

// TestCannotBeStopped: a function that stays on the bus is not called quiet.
func TestCannotBeStopped(t *testing.T) {
	r := newRig(t)
	f, err := vfio.Open(r.options)
	require.NoError(t, err)
	_, err = f.Begin()
	require.NoError(t, err)
	r.kernel.stuckMaster = true
	_, err = f.Quiesce()
	require.ErrorIs(t, err, gpuerr.IO)
	require.ErrorContains(t, err, "command register")
	require.Error(t, f.Close())
	require.Error(t, f.Close(), "it is told again")
	require.Equal(t, 1, r.container.closes, "everything goes all the same")
	require.Zero(t, r.kernel.maps)
}

func TestResetThatIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.kernel.noNotices() // their waits stop a bubble's time
		f := r.open(t)
		r.kernel.resetFails = []error{unix.EAGAIN, unix.EAGAIN}
		_, err := f.Begin()
		require.NoError(t, err)
		require.Equal(t, 3, r.kernel.resets)
		_, err = f.Quiesce()
		require.NoError(t, err)

		// A reset that fails leaves the function off the bus.
		r.kernel.resetFails = []error{unix.EIO}
		_, err = f.Begin()
		require.ErrorIs(t, err, gpuerr.IO)
		require.EqualValues(t, 2, r.kernel.command())
		_, err = f.Begin()
		require.NoError(t, err)
		require.NoError(t, f.Close())
	})
}

// TestSettle: a device with DMA that outlives a reset is kept from the bus for a while.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.kernel.noNotices()
		require.NoError(t, os.WriteFile(filepath.Join(r.options.Bus.Sys, "bus/pci/devices", fakeAddress, "vendor"), []byte("0x1234\n"), 0o644))
		f := r.open(t)
		_, err := f.Begin()
		require.NoError(t, err)
		_, err = f.Quiesce()
		require.NoError(t, err)
		start := time.Now()
		_, err = f.Begin()
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(start), 100*time.Millisecond)
		_, err = f.Quiesce()
		require.NoError(t, err)
		time.Sleep(time.Second)
		start = time.Now()
		_, err = f.Begin()
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		require.NoError(t, f.Close())
	})
}

// TestCannotBeDisarmed: the eventfds of an epoch that could not be ended are closed before
// others are made, and the error says that the function was not stopped.
func TestCannotBeDisarmed(t *testing.T) {
	leakcheck.Check(t)
	r := newRig(t)
	f := r.open(t)
	failing := func(err error) {
		r.kernel.mu.Lock()
		defer r.kernel.mu.Unlock()
		r.kernel.fail["SetIRQs"] = err
	}
	_, err := f.Begin()
	require.NoError(t, err)
	armed := eventFDs(t)
	failing(unix.EIO)
	_, err = f.Quiesce()
	require.ErrorIs(t, err, gpuerr.IO)
	for range 3 {
		_, err = f.Begin()
		require.ErrorIs(t, err, vfio.ErrNotStopped)
		require.ErrorIs(t, err, gpuerr.IO)
		require.EqualValues(t, 2, r.kernel.command(), "not on the bus at least")
	}
	require.Equal(t, armed, eventFDs(t))
	failing(nil)
	_, err = f.Begin()
	require.NoError(t, err)
	require.Equal(t, armed, eventFDs(t))
	_, err = f.Quiesce()
	require.NoError(t, err)

	// One that fails and is stopped is not called so.
	r.kernel.resetFails = []error{unix.EIO}
	_, err = f.Begin()
	require.ErrorIs(t, err, gpuerr.IO)
	require.NotErrorIs(t, err, vfio.ErrNotStopped)
}

// eventFDs counts the eventfds of this process.
func eventFDs(t testing.TB) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && target == "anon_inode:[eventfd]" {
			n++
		}
	}
	require.Positive(t, n)
	return n
}
