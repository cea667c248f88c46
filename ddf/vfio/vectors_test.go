package vfio_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	uapi "capgpu/internal/uapi/vfio"
)

func TestMask(t *testing.T) {
	r := newRig(t)
	f := r.open(t)
	_, err := f.Begin()
	require.NoError(t, err)
	e := event(t, f)
	r.kernel.signal(t, uapi.IRQIndexMSI, 0)
	require.EqualValues(t, 1, comes(t, e))
	require.NoError(t, f.SetMask(0, true))
	r.kernel.signal(t, uapi.IRQIndexMSI, 0)
	r.kernel.signal(t, uapi.IRQIndexMSI, 0)
	r.kernel.signal(t, uapi.IRQIndexMSI, 1)
	silent(t, e)
	require.NoError(t, f.SetMask(0, false))
	require.EqualValues(t, 1, comes(t, e), "what came under the mask merges")
	silent(t, e)
	// One that came just then, unseen by the kernel, would be lost without a wake.
	require.NoError(t, f.SetMask(0, true))
	require.NoError(t, f.SetMask(0, false))
	require.EqualValues(t, 1, comes(t, e))
	require.NoError(t, f.SetMask(0, false))
	silent(t, e)
	for _, bad := range []int{-1, 2} {
		require.ErrorIs(t, f.SetMask(bad, true), gpuerr.Invalid)
		_, err := f.EventFD(bad)
		require.ErrorIs(t, err, gpuerr.Invalid)
	}
}

// TestDriverCannotBlockSetMask: a process that holds the eventfd may make it blocking, for
// all that hold it, and fill it.
func TestDriverCannotBlockSetMask(t *testing.T) {
	r := newRig(t)
	f := r.open(t)
	_, err := f.Begin()
	require.NoError(t, err)
	fd, err := f.EventFD(0)
	require.NoError(t, err)
	defer unix.Close(fd)
	var full [8]byte
	binary.NativeEndian.PutUint64(full[:], ^uint64(0)-1)
	_, err = unix.Write(fd, full[:])
	require.NoError(t, err)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		for range 3 {
			if err := errors.Join(f.SetMask(0, true), f.SetMask(0, false)); err != nil {
				done <- err
				return
			}
		}
		_, err := f.Quiesce()
		done <- err
	}()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		_, _ = unix.Read(fd, full[:]) // lets it go
		<-done
		t.Fatal("a driver that filled its eventfd blocks the manager")
	}
}

func TestInterruptCounts(t *testing.T) {
	r := newRig(t)
	f := r.open(t)
	require.Nil(t, f.Interrupts(), "there is no /proc/interrupts")
	put := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(r.options.Proc, "interrupts"), []byte("  CPU0  CPU1\n"+text), 0o644))
	}
	put("")
	require.Equal(t, []uint64{0, 0}, f.Interrupts())
	_, err := f.Begin()
	require.NoError(t, err)
	put(" 28: 3 1 IR-PCI-MSI-0000:01:00.0 0-edge vfio-msi[0](0000:01:00.0)\n 29: 0 7 IR-PCI-MSI-0000:01:00.0 1-edge vfio-msi[1](0000:01:00.0)\n 30: 0 9 x vfio-msi[0](0000:02:00.0)\n")
	require.Equal(t, []uint64{4, 7}, f.Interrupts())
	_, err = f.Quiesce()
	require.NoError(t, err)
	put("")
	require.Equal(t, []uint64{4, 7}, f.Interrupts())
	_, err = f.Begin()
	require.NoError(t, err)
	put(" 28: 0 5 IR-PCI-MSI-0000:01:00.0 0-edge vfio-msi[0](0000:01:00.0)\n")
	require.Equal(t, []uint64{9, 7}, f.Interrupts())
}
