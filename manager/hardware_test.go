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
	"capgpu/iommu/faultlog"
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

// requireNothingHeld: nothing of any driver is charged.
func (w *world) requireNothingHeld() {
	w.t.Helper()
	for _, c := range []ledger.Class{ledger.DeviceMemory, ledger.IOVAEntries, ledger.IRQVectors, ledger.MMIOBytes} {
		require.Zero(w.t, w.held(c), c.String())
	}
	require.NoError(w.t, w.Check())
}

// dirty makes a session with a buffer on a device, and returns the client's mapping
// of the buffer, which begins with 0x5a.
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

// A driver's time begins with a reset and ends in the one order in which memory is
// safe: the function stops, then memory is unmapped.
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

// A function that cannot be reset has no driver; it is tried again as one whose
// driver does not become ready.
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

// A function that could neither be reset nor stopped gets no other try.
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

// Memory of a function that could not be stopped is nobody else's until the function
// is closed.
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

	w.stop() // closes the function: then everything comes back, or this fails
	require.Zero(t, mem[0])
}

// An unmap that fails ends the function's time.
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

// The host takes the function away: sessions learn so, the driver ends, the function
// is closed at once and nothing follows.
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

// Whatever the driver is doing, Attach ends with the function.
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

// Also a function that is wedged is given to a host that wants it away, and one whose
// driver is being waited for.
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

// Two functions have two drivers, and the end of one is nothing to the other.
func TestTwoFunctions(t *testing.T) {
	b := newBus(t, addressA, addressB)
	w := startOn(t, b, nil)
	_, first := w.driverOf("edu0", 1)
	_, second := w.driverOf("edu1", 1)
	require.NotEqual(t, first, second)
	c := w.dial("default")
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 2)
	for i, d := range devices {
		require.EqualValues(t, i, d.Index)
		require.Equal(t, []string{"edu0", "edu1"}[i], d.Name)
		require.Equal(t, []string{addressA, addressB}[i], d.PCIAddress)
	}
	a, _, _ := w.dirty(c, 0)
	s, _, mem := w.dirty(c, 1)
	for epoch := uint64(2); epoch < 5; epoch++ {
		kill(t, first)
		_, first = w.driverOf("edu0", epoch)
	}
	<-a.Done()
	require.NoError(t, addVectors(within(t), s))
	require.EqualValues(t, 0x5a, mem[0])
	epoch, pid := w.driverOf("edu1", 1)
	require.EqualValues(t, 1, epoch)
	require.Equal(t, second, pid)
	require.NoError(t, w.Check())
	require.NoError(t, s.Close(within(t)))
	a.Close(within(t))
	require.Eventually(t, func() bool { return w.held(ledger.DeviceMemory) == 0 }, patience, time.Millisecond)
}

// A tenant's devices are those that the policy gives it; the others are as if they
// were not there, under the index that everybody knows them by.
func TestTenantDevices(t *testing.T) {
	b := newBus(t, addressA, addressB)
	w := startOn(t, b, func(c *manager.Config) {
		c.Policy.Tenant("limited").Devices = []string{"edu1"}
	})
	w.driverOf("edu0", 1)
	w.driverOf("edu1", 1)
	c := w.dial("limited")
	devices, err := c.Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 1)
	require.Equal(t, "edu1", devices[0].Name)
	require.EqualValues(t, 1, devices[0].Index)
	s, err := c.Open(within(t), 1)
	require.NoError(t, err)
	defer s.Close(within(t))
	_, err = c.Status(within(t), 1)
	require.NoError(t, err)
	for call, ask := range map[string]func(index uint32) error{
		"Open":      func(i uint32) error { _, err := c.Open(within(t), i); return err },
		"NextState": func(i uint32) error { _, err := c.NextState(within(t), i, 0); return err },
		"Status":    func(i uint32) error { _, err := c.Status(within(t), i); return err },
	} {
		foreign, none := ask(0), ask(2)
		require.ErrorIs(t, foreign, gpuerr.NoDevice, call)
		require.ErrorIs(t, none, gpuerr.NoDevice, call)
		require.Equal(t, gpuerr.From(none).Msg, gpuerr.From(ask(2)).Msg)
		require.NotContains(t, foreign.Error(), "edu0")
		require.Equal(t, len(none.Error()), len(foreign.Error()), "%s: the same words, but for the number", call)
	}
	records := w.log.texts()
	for _, r := range records {
		require.NotContains(t, r, "tenant=limited mock0")
	}
	// A change of its limits reaches the drivers of its devices.
	l := w.policyLimits("limited")
	l[ledger.Buffers] = 1
	w.setLimits("limited", l)
	_, err = s.CreateBuffer(within(t), 4096, client.Storage)
	require.NoError(t, err)
	_, err = s.CreateBuffer(within(t), 4096, client.Storage)
	require.ErrorIs(t, err, gpuerr.Quota)
}

// What cannot be had is named, unless the policy can do without.
func TestMissingFunctions(t *testing.T) {
	b := newBus(t, addressA, addressB)
	b.refuse[addressA] = gpuerr.New(gpuerr.Denied, "%s shares its IOMMU group with a disk", addressA)
	defer b.functions[addressA].Close()
	policy := manager.DevPolicy()
	policy.Functions = []manager.FunctionPolicy{functionPolicy("edu0", addressA, policy), functionPolicy("edu1", addressB, policy)}
	cfg := manager.Config{
		Policy: policy, RunDir: filepath.Join(shortDir(t), "run"), Audit: &memoryLog{}, Hardware: b,
		DriverPath: program("gpu-mock"), GatePath: program("gpu-gate"),
	}
	_, err := manager.Start(cfg)
	require.ErrorContains(t, err, "open function edu0 (0000:01:00.0): E_DENIED: 0000:01:00.0 shares its IOMMU group with a disk")
	require.NotContains(t, b.functions[addressB].did(), "Begin")

	b.functions[addressB] = newScripted(t, addressB)
	w := startOn(t, b, func(c *manager.Config) { c.Policy.Functions[0].Optional = true })
	w.driverOf("edu1", 1)
	devices, err := w.dial("default").Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 1)
	require.EqualValues(t, 1, devices[0].Index, "each has its place in the policy")
	w.stop()

	b = newBus(t)
	cfg.Policy.Functions[0].Optional, cfg.Policy.Functions[1].Optional = true, true
	cfg.Hardware, cfg.Audit = b, &memoryLog{}
	_, err = manager.Start(cfg)
	require.ErrorIs(t, err, gpuerr.NoDevice)
	cfg.Hardware, cfg.Audit = nil, &memoryLog{}
	_, err = manager.Start(cfg)
	require.ErrorContains(t, err, "no Hardware")
}

// "claim": "all" takes what it finds besides, and leaves out what it cannot have.
func TestClaimAll(t *testing.T) {
	const third = "0000:03:00.0"
	b := newBus(t, addressA, addressB)
	b.found = []string{addressB, third}
	w := start(t, func(c *manager.Config) {
		c.Hardware, c.ServicePath = b, program("gpu-mock")
		c.Policy.ClaimAll = true
		c.Policy.Functions = []manager.FunctionPolicy{functionPolicy("edu0", addressA, c.Policy)}
	})
	w.driverOf("edu0", 1)
	w.driverOf(addressB, 1)
	devices, err := w.dial("default").Devices(within(t))
	require.NoError(t, err)
	require.Len(t, devices, 2)
	require.Equal(t, addressB, devices[1].Name)
}

// A manager that could not start gives back what it had opened.
func TestFailedStartClosesFunctions(t *testing.T) {
	b := newBus(t, addressA)
	policy := manager.DevPolicy()
	policy.Functions = []manager.FunctionPolicy{functionPolicy("edu0", addressA, policy), functionPolicy("edu1", addressB, policy)}
	_, err := manager.Start(manager.Config{
		Policy: policy, RunDir: filepath.Join(shortDir(t), "run"), Audit: &memoryLog{}, Hardware: b,
		DriverPath: program("gpu-mock"), GatePath: program("gpu-gate"),
	})
	require.ErrorIs(t, err, gpuerr.NoDevice)
	require.Equal(t, []string{"Close"}, b.functions[addressA].did())
}

// A vector that storms is masked, and its driver replaced.
func TestInterruptStorm(t *testing.T) {
	b := newBus(t, addressA)
	f := b.functions[addressA]
	w := startOn(t, b, nil)
	w.driverOf("edu0", 1)
	f.script(func() { f.perCount = 10_000_000 })
	require.Eventually(t, func() bool { return w.log.kinds()["interrupt.storm"] == 1 }, patience, time.Millisecond)
	f.script(func() { f.perCount = 0 })
	w.driverOf("edu0", 2)
	require.Equal(t, []int{0}, f.masked)
	require.Regexp(t, `^edu0 epoch=1 vector=0 perSecond=\d+ limit=200000 masked=true$`, w.log.detail("interrupt.storm"))
	require.Contains(t, w.log.detail("driver.end"), "interrupt storm")
}

// A fault is recorded, told to the driver of its function, and to nobody else.
func TestFaults(t *testing.T) {
	b := newBus(t, addressA, addressB)
	w := startOn(t, b, nil)
	w.driverOf("edu0", 1)
	w.driverOf("edu1", 1)
	b.fault(addressA, 0x900000)
	b.fault("0000:03:00.0", 0x900000) // nobody's
	require.Equal(t, 1, w.log.kinds()["iommu.fault"])
	require.Equal(t, `edu0 epoch=1 iova=0x900000 access=write reason="PTE Write access is not set"`, w.log.detail("iommu.fault"))
	for range 4 {
		b.fault(addressA, 0x901000)
	}
	w.driverOf("edu0", 2)
	require.Contains(t, w.log.detail("driver.end"), "edu0 epoch=1")
	require.Contains(t, w.log.detail("driver.end"), "more than 4 IOMMU faults of the device in 10s; the last was at 0x901000")
	epoch, _ := w.driverOf("edu1", 1)
	require.EqualValues(t, 1, epoch)
}

// What the kernel tells only when it is asked belongs to the driver that has just
// ended, not to its successor.
func TestLateFaults(t *testing.T) {
	b := newBus(t, addressA)
	w := startOn(t, b, nil)
	_, pid := w.driverOf("edu0", 1)
	b.mu.Lock()
	for range 40 {
		b.queued = append(b.queued, faultlog.Fault{Address: addressA, IOVA: 0x900000, Reason: "PTE Read access is not set", Lost: 2})
	}
	b.mu.Unlock()
	kill(t, pid)
	w.driverOf("edu0", 2)
	require.Contains(t, w.log.detail("driver.end"), "killed")
	require.Equal(t, `edu0 epoch=1 iova=0x900000 access=read reason="PTE Read access is not set"`, w.log.detail("iommu.fault"))
	require.Equal(t, 32, w.log.kinds()["iommu.fault"])
	require.Equal(t, "edu0 epoch=1 faults=8", w.log.detail("iommu.faults"), "what has no record is counted")
	require.Equal(t, "reports=2", w.log.detail("iommu.faults.lost"))
	epoch, _ := w.driverOf("edu0", 2)
	require.EqualValues(t, 2, epoch)
}

// A host that tells nobody of faults is served, and the log says what is missing.
func TestNoFaultLog(t *testing.T) {
	b := newBus(t, addressA)
	b.blind = gpuerr.New(gpuerr.IO, "open the kernel's log: permission denied")
	w := startOn(t, b, nil)
	w.driverOf("edu0", 1)
	require.Contains(t, w.log.detail("iommu.blind"), "permission denied")
}
