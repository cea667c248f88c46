package manager_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/ddf/vfio"
	"capgpu/gpuerr"
	"capgpu/iommu"
	"capgpu/ledger"
	"capgpu/manager"
)

// await waits until the device of an index is in a state.
func (w *world) await(c *client.Conn, index uint32, want client.DeviceState) client.State {
	w.t.Helper()
	var st client.State
	for epoch := uint64(0); ; epoch = st.Epoch {
		var err error
		st, err = c.NextState(within(w.t), index, epoch)
		require.NoError(w.t, err)
		if st.State == want {
			return st
		}
	}
}

// requireNothingHeld checks that nothing of any driver is charged.
func (w *world) requireNothingHeld() {
	w.t.Helper()
	for _, c := range []ledger.Class{ledger.DeviceMemory, ledger.IOVAEntries, ledger.IRQVectors, ledger.MMIOBytes} {
		require.Zero(w.t, w.held(c), c.String())
	}
	require.NoError(w.t, w.Check())
}

// dirty opens a session with a buffer on a device, and returns the client's mapping of the
// buffer, which begins with 0x5a.
func (w *world) dirty(c *client.Conn, index uint32) (*client.Session, *client.Buffer, []byte) {
	w.t.Helper()
	s, err := c.Open(within(w.t), index)
	require.NoError(w.t, err)
	b, err := s.CreateBuffer(within(w.t), 1<<20, client.Storage)
	require.NoError(w.t, err)
	mem, err := b.Map()
	require.NoError(w.t, err)
	mem[0] = 0x5a
	w.t.Cleanup(func() { b.Unmap() })
	return s, b, mem
}

// A driver's time begins with a reset and ends in the only safe order for memory: the
// function stops, then memory is unmapped.
func TestEpochOrder(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	require.Equal(t, []string{addressA}, b.wanted)
	_, pid := w.driverOf("edu0", 1)
	s, _, mem := w.dirty(w.dial("default"), 0)
	kill(t, pid)
	w.driverOf("edu0", 2)
	require.Equal(t, []string{"Begin", "Quiesce", "unmap", "Begin"}, f.did())
	require.Zero(t, mem[0], "scrubbed")
	s.Close(within(t))
	w.stop()
	acts := f.did()
	require.Equal(t, "Close", acts[len(acts)-1])
	require.Equal(t, "edu0 epoch=2 how=\"flr\"", w.log.detail("device.reset"))
	require.Equal(t, "edu0 epoch=2 how=\"bus mastering off, reset: flr\"", w.log.detail("device.quiesce"))
}

// A function that cannot be reset gets no driver. It is tried again, as if its driver had not
// become ready.
func TestResetFails(t *testing.T) {
	b := newBus(t, addressA)
	b.functions[addressA].begin = func(n int) error {
		if n <= 2 {
			return gpuerr.New(gpuerr.IO, "the reset timed out")
		}
		return nil
	}
	w := startOn(t, b, nil)
	epoch, _ := w.driverOf("edu0", 1)
	require.EqualValues(t, 3, epoch)
	require.Equal(t, 1, w.log.kinds()["driver.start"])
	require.Equal(t, 2, w.log.kinds()["driver.end"])
}

func TestResetFailsForGood(t *testing.T) {
	b := newBus(t, addressA)
	b.functions[addressA].begin = func(int) error { return gpuerr.New(gpuerr.IO, "the reset timed out") }
	w := startOn(t, b, func(c *manager.Config) { c.Policy.Functions[0].Respawn.Budget = 2 })
	st := w.await(w.dial("default"), 0, client.Wedged)
	require.Contains(t, st.Cause, "reset the function")
	require.Contains(t, st.Cause, "more than 2 deaths")
	w.requireNothingHeld()
	noDrivers(t)
}

// A function that could be neither reset nor stopped is not tried again.
func TestResetFailsAndNothingStops(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	f.begin = func(int) error { return fmt.Errorf("%w: bus mastering stays on", vfio.ErrNotStopped) }
	w := startOn(t, b, nil)
	st := w.await(w.dial("default"), 0, client.Wedged)
	require.Contains(t, st.Cause, "bus mastering stays on")
	require.Equal(t, []string{"Begin"}, f.did())
	w.requireNothingHeld()
	w.stop()
}

// Memory of a function that could not be stopped is not reused until the function is closed.
func TestQuiesceFails(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	_, pid := w.driverOf("edu0", 1)
	c := w.dial("default")
	s, _, mem := w.dirty(c, 0)
	f.script(func() { f.quiesce = func() error { return gpuerr.New(gpuerr.IO, "bus mastering stays on") } })
	held := w.held(ledger.DeviceMemory)
	kill(t, pid)

	st := w.await(c, 0, client.Wedged)
	require.Contains(t, st.Cause, "could not be stopped")
	require.Equal(t, held, w.held(ledger.DeviceMemory), "charged still")
	require.NotZero(t, w.held(ledger.IOVAEntries))
	require.NoError(t, w.Check())
	require.EqualValues(t, 0x5a, mem[0], "its pages are not given back")
	require.Empty(t, f.domain.Mappings(), "the device does not reach it, all the same")
	require.Contains(t, w.log.detail("dma.kept"), "bus mastering stays on")
	require.Contains(t, w.log.detail("driver.end"), " freed=1 kept=1 ")
	require.Eventually(t, func() bool { return w.log.kinds()["device.wedged"] == 1 }, patience, time.Millisecond)
	require.NotContains(t, f.did(), "Close")
	_, err := c.Open(within(t), 0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	s.Close(within(t))

	w.stop() // closes the function: then everything is freed, or this fails
	require.Zero(t, mem[0])
}

// An unmap that fails ends the use of the function.
func TestUnmapFails(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	_, pid := w.driverOf("edu0", 1)
	c := w.dial("default")
	s, _, mem := w.dirty(c, 0)
	held := w.held(ledger.DeviceMemory)
	f.domain.Fail(func(op iommu.Op) error {
		if op.Kind == iommu.OpUnmap {
			return gpuerr.New(gpuerr.IO, "the kernel unmapped less than was asked")
		}
		return nil
	})
	kill(t, pid)

	st := w.await(c, 0, client.Wedged)
	require.Contains(t, st.Cause, "the IOMMU domain is lost")
	require.Equal(t, held, w.held(ledger.DeviceMemory))
	require.NoError(t, w.Check())
	require.EqualValues(t, 0x5a, mem[0])
	require.NotZero(t, w.log.kinds()["dma.kept"])
	require.Zero(t, w.log.kinds()["dma.unmap"])
	s.Close(within(t))
	w.stop()
	require.Zero(t, mem[0])
}

// The host takes the function away: sessions learn of it, the driver ends, the function is
// closed at once and no driver follows.
func TestRemoval(t *testing.T) {
	b := newBus(t, addressA, addressB)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	_, pid := w.driverOf("edu0", 1)
	w.driverOf("edu1", 1)
	c := w.dial("default")
	s, _, _ := w.dirty(c, 0)
	other, _, mem := w.dirty(c, 1)
	close(f.removed)
	<-s.Done()
	require.ErrorIs(t, s.Err(), gpuerr.DeviceLost)
	st := w.await(c, 0, client.Wedged)
	require.Contains(t, st.Cause, "removed: E_DEVICE_LOST: the host takes "+addressA+" away")
	require.Eventually(t, func() bool { a := f.did(); return a[len(a)-1] == "Close" }, patience, time.Millisecond)
	require.Equal(t, []string{"Begin", "Quiesce", "unmap", "Quiesce", "Close"}, slices.Compact(f.did()), "it may be at work until it is stopped")
	require.True(t, isDead(pid))
	_, err := c.Open(within(t), 0)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.Eventually(t, func() bool { return w.log.kinds()["device.removed"] == 1 }, patience, time.Millisecond)
	require.EqualValues(t, 0x5a, mem[0], "the other function goes on")
	require.NoError(t, addVectors(within(t), other))
	s.Close(within(t))
	other.Close(within(t))
}

// freeze stops a process, and returns when no thread of it runs.
func freeze(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	require.Eventually(t, func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		for _, path := range tasks {
			stat, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue
			}
			require.NoError(t, err)
			if state := stat[bytes.LastIndexByte(stat, ')')+2]; state != 'T' {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
}

// Attach ends with the function, in any state of the driver.
func TestRemovalDuringAttach(t *testing.T) {
	b := newBus(t, addressA)
	w := startOn(t, b, func(c *manager.Config) { c.PingTimeout = patience })
	_, pid := w.driverOf("edu0", 1)
	c := w.dial("default")
	freeze(t, pid)
	opened := make(chan error, 1)
	go func() {
		_, err := c.Open(within(t), 0)
		opened <- err
	}()
	require.Eventually(t, func() bool { return w.Attaching() == 1 }, patience, time.Millisecond)
	began := time.Now()
	close(b.functions[addressA].removed)
	require.Contains(t, w.await(c, 0, client.Wedged).Cause, "removed")
	require.Less(t, time.Since(began), patience/2, "everybody sees it at once, and not when the driver has not answered")
	require.ErrorIs(t, <-opened, gpuerr.DeviceLost)
	require.Eventually(t, func() bool { return w.log.kinds()["device.removed"] == 1 }, patience, time.Millisecond)
	w.requireNothingHeld()
}

// A host that takes a function away also gets it if it is wedged, or if its driver is being
// waited for.
func TestRemovalWithoutDriver(t *testing.T) {
	for name, budget := range map[string]int{"wedged": 0, "waiting": 1000} {
		t.Run(name, func(t *testing.T) {
			b := newBus(t, addressA)
			f := b.functions[addressA]
			f.begin = func(int) error { return errors.New("no") }
			w := startOn(t, b, func(c *manager.Config) {
				r := &c.Policy.Functions[0].Respawn
				r.Budget, r.FirstDelay, r.MaxDelay = budget, time.Hour, time.Hour
			})
			require.Eventually(t, func() bool { return w.log.kinds()["driver.end"] == 1 }, patience, time.Millisecond)
			close(f.removed)
			require.Eventually(t, func() bool { return w.log.kinds()["device.removed"] == 1 }, patience, time.Millisecond)
			require.Eventually(t, func() bool { a := f.did(); return a[len(a)-1] == "Close" }, patience, time.Millisecond)
		})
	}
}
