package vfio_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/ddf/vfio"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/pci"
	"capgpu/internal/shm"
)

// The tests of this file run on edu functions of QEMU. Registers: docs/specs/edu.
const (
	eduID        = 0x00
	eduLiveness  = 0x04
	eduFactorial = 0x08
	eduStatus    = 0x20
	eduRaise     = 0x60
	eduAck       = 0x64
	eduDMASrc    = 0x80
	eduDMADst    = 0x88
	eduDMACount  = 0x90
	eduDMACmd    = 0x98

	eduBuffer   = 0x40000 // of the device, as the DMA engine sees it
	eduIRQOnDMA = 1 << 2
	eduToRAM    = 1 << 1
	eduStart    = 1 << 0

	eduWindowBytes = 4096
)

var eduWindow = ddf.WindowSpec{Bar: 0, Bytes: eduWindowBytes, Writable: true}

// hardware claims the functions that CAPGPU_HW names, or skips.
func hardware(t testing.TB) []pci.Address {
	t.Helper()
	names := os.Getenv("CAPGPU_HW")
	if names == "" {
		t.Skip("SKIPPED: needs edu functions behind an IOMMU; name their PCI addresses in CAPGPU_HW, or run it in the guest (go run ./qemu/cmd/guest-run)")
	}
	c, err := pci.NewClaimer(&pci.Bus{}, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	var all []pci.Address
	for _, name := range strings.Split(names, ",") {
		a, err := pci.ParseAddress(name)
		require.NoError(t, err)
		claim, err := c.Claim(a)
		require.NoError(t, err)
		all = append(all, a)
		t.Cleanup(func() {
			driver, err := c.Release(a)
			require.NoError(t, err)
			require.Equal(t, claim.Former, driver, "%s has its former driver again", a)
		})
	}
	return all
}

// open opens a function for the time of a test.
func open(t testing.TB, o vfio.Options) *vfio.Function {
	t.Helper()
	f, err := vfio.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// edu is a live function.
func edu(t testing.TB, a pci.Address) *vfio.Function {
	t.Helper()
	f := open(t, vfio.Options{Address: a, Windows: []ddf.WindowSpec{eduWindow}, Vectors: 1})
	_, err := f.Begin()
	require.NoError(t, err)
	return f
}

func load(t testing.TB, f *vfio.Function, off uint64) uint32 {
	t.Helper()
	v, err := f.Load32(0, off)
	require.NoError(t, err)
	return v
}

func store(t testing.TB, f *vfio.Function, off uint64, v uint32) {
	t.Helper()
	require.NoError(t, f.Store32(0, off, v))
}

// event is the driver's end of vector 0.
func event(t testing.TB, f *vfio.Function) *shm.Interrupt {
	t.Helper()
	fd, err := f.EventFD(0)
	require.NoError(t, err)
	e, err := shm.InterruptFromManager(fd)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// comes waits for an interrupt.
func comes(t testing.TB, e *shm.Interrupt) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	n, err := e.Wait(ctx)
	require.NoError(t, err, "no interrupt came")
	return n
}

// silent looks whether none comes. A slow device makes it pass wrongly, never fail.
func silent(t testing.TB, e *shm.Interrupt) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	n, err := e.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "%d interrupts came", n)
}

// drain counts further interrupts.
func drain(t testing.TB, e *shm.Interrupt) (total uint64) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		n, err := e.Wait(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return total
		}
		total += n
	}
}

func raise(t testing.TB, f *vfio.Function) {
	t.Helper()
	store(t, f, eduRaise, 1)
	store(t, f, eduAck, 1)
}

func TestHardwareRegisters(t *testing.T) {
	a := hardware(t)[0]
	leakcheck.Check(t)
	f := edu(t, a)
	require.Equal(t, ddf.DeviceInfo{PCIAddress: a.String(), VendorID: 0x1234, DeviceID: 0x11e8}, f.Identity())
	require.Equal(t, uint32(0x010000ed), load(t, f, eduID))
	for _, v := range []uint32{0, 1, 0xdeadbeef} {
		store(t, f, eduLiveness, v)
		require.Equal(t, ^v, load(t, f, eduLiveness))
	}
	// All ones is a value, too, as long as the device exists.
	store(t, f, eduLiveness, 0)
	require.Equal(t, ^uint32(0), load(t, f, eduLiveness))
	store(t, f, eduFactorial, 5)
	require.Eventually(t, func() bool { return load(t, f, eduStatus)&1 == 0 }, 5*time.Second, time.Millisecond)
	require.Equal(t, uint32(120), load(t, f, eduFactorial))

	for _, off := range []uint64{2, eduWindowBytes, 1 << 63} {
		_, err := f.Load32(0, off)
		require.ErrorIs(t, err, gpuerr.Invalid)
	}
	_, err := f.Load32(1, 0)
	require.ErrorIs(t, err, gpuerr.Invalid)

	// The driver's own mapping is of the same registers.
	fd, off, err := f.WindowFD(0)
	require.NoError(t, err)
	m, err := unix.Mmap(fd, int64(off), eduWindowBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(m)) }()
	require.NoError(t, unix.Close(fd))
	require.Equal(t, uint32(0x010000ed), vfio.LoadRegister(m, eduID))
}

func TestHardwareWindowsAreBounded(t *testing.T) {
	a := hardware(t)[0]
	leakcheck.Check(t)
	for _, w := range []ddf.WindowSpec{
		{Bar: 6, Bytes: 4096}, {Bar: 1, Bytes: 4096}, {Bar: 0}, {Bar: 0, Bytes: 100}, {Bar: 0, Offset: 4, Bytes: 4096},
		{Bar: 0, Bytes: 2 << 20}, {Bar: 0, Offset: 1 << 20, Bytes: 4096}, {Bar: 0, Offset: 1<<63 - 4096, Bytes: 8192},
	} {
		_, err := vfio.Open(vfio.Options{Address: a, Windows: []ddf.WindowSpec{w}})
		require.ErrorIs(t, err, gpuerr.Invalid, "%+v", w)
	}
	_, err := vfio.Open(vfio.Options{Address: a, Vectors: 2})
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "has 1 message-signalled")
	f := open(t, vfio.Options{Address: a, Windows: []ddf.WindowSpec{{Bar: 0, Bytes: 4096}}})
	_, _, err = f.WindowFD(0)
	require.ErrorIs(t, err, gpuerr.Denied)
}

func TestHardwareInterrupts(t *testing.T) {
	f := edu(t, hardware(t)[0])
	e := event(t, f)
	raise(t, f)
	require.EqualValues(t, 1, comes(t, e))
	silent(t, e)
	for range 5 { // interrupts before the processor has taken the last one merge with it
		raise(t, f)
	}
	got := comes(t, e) + drain(t, e)
	require.LessOrEqual(t, got, uint64(5))
	for range 5 {
		raise(t, f)
		require.EqualValues(t, 1, comes(t, e))
	}
	require.NoError(t, f.SetMask(0, true))
	require.NoError(t, f.SetMask(0, true))
	raise(t, f)
	silent(t, e)
	require.NoError(t, f.SetMask(0, false))
	require.NotZero(t, comes(t, e), "what came under the mask is delivered after it")
	silent(t, e)
	raise(t, f)
	require.EqualValues(t, 1, comes(t, e))
	before := f.Interrupts()
	require.Equal(t, []uint64{1 + got + 5 + 2}, before)

	// Another epoch has another eventfd, and the counts continue.
	_, err := f.Quiesce()
	require.NoError(t, err)
	_, err = f.EventFD(0)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.Equal(t, before, f.Interrupts())
	_, err = f.Begin()
	require.NoError(t, err)
	second := event(t, f)
	raise(t, f)
	require.EqualValues(t, 1, comes(t, second))
	silent(t, e)
	require.Equal(t, []uint64{before[0] + 1}, f.Interrupts())
}

func TestHardwareOpensAndCloses(t *testing.T) {
	addresses := hardware(t)
	leakcheck.Check(t)
	for i := range 200 {
		f, err := vfio.Open(vfio.Options{Address: addresses[i%len(addresses)], Windows: []ddf.WindowSpec{eduWindow}, Vectors: 1})
		require.NoError(t, err, "cycle %d", i)
		if i%10 == 0 {
			_, err := f.Begin()
			require.NoError(t, err)
			_, err = f.EventFD(5)
			require.ErrorIs(t, err, gpuerr.Invalid)
		}
		require.NoError(t, f.Close())
		require.NoError(t, f.Close())
		_, err = f.Load32(0, 0)
		require.ErrorIs(t, err, gpuerr.Closed)
		_, _, err = f.WindowFD(0)
		require.ErrorIs(t, err, gpuerr.Closed)
		_, err = f.Begin()
		require.ErrorIs(t, err, gpuerr.Closed)
	}
}

func TestHardwareNeedsItsClaim(t *testing.T) {
	a := hardware(t)[0]
	require.NoError(t, os.WriteFile("/sys/bus/pci/devices/"+a.String()+"/driver/unbind", []byte(a.String()), 0))
	_, err := vfio.Open(vfio.Options{Address: a})
	require.ErrorIs(t, err, gpuerr.Denied)
	require.ErrorContains(t, err, "claim it first")
	require.NoError(t, os.WriteFile("/sys/bus/pci/drivers_probe", []byte(a.String()), 0))
}

// TestHardwareGivenBack: a process that unbinds the function waits until Close, and Removed
// tells of it.
func TestHardwareGivenBack(t *testing.T) {
	a := hardware(t)[0]
	leakcheck.Check(t)
	f := edu(t, a)
	require.NoError(t, f.Cause())
	unbound := make(chan error, 1)
	// Another process: the kernel holds the writer until the device is closed.
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), "CAPGPU_TEST_UNBIND="+a.String())
	go func() { unbound <- cmd.Run() }()
	select {
	case <-f.Removed():
	case err := <-unbound:
		t.Fatalf("the kernel did not wait: %v", err)
	case <-time.After(10 * time.Second):
		t.Fatal("nobody told of the removal")
	}
	require.ErrorIs(t, f.Cause(), gpuerr.DeviceLost)
	_, err := f.Load32(0, eduID)
	require.ErrorIs(t, err, gpuerr.DeviceLost)
	require.ErrorIs(t, f.SetMask(0, true), gpuerr.DeviceLost)
	require.NoError(t, f.Close())
	require.NoError(t, <-unbound)
	require.NoError(t, os.WriteFile("/sys/bus/pci/drivers_probe", []byte(a.String()), 0))
}

func TestMain(m *testing.M) {
	if a := os.Getenv("CAPGPU_TEST_UNBIND"); a != "" {
		if err := os.WriteFile("/sys/bus/pci/devices/"+a+"/driver/unbind", []byte(a), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leakcheck.Main(m)
}

// TestUnplugged comes last: it costs the last function.
func TestUnplugged(t *testing.T) {
	if os.Getenv("CAPGPU_HW_UNPLUG") == "" {
		t.Skip("SKIPPED: pulls the second edu function; set CAPGPU_HW_UNPLUG where that is meant")
	}
	addresses := strings.Split(os.Getenv("CAPGPU_HW"), ",")
	require.GreaterOrEqual(t, len(addresses), 2)
	leakcheck.Check(t)
	a, err := pci.ParseAddress(addresses[1])
	require.NoError(t, err)
	c, err := pci.NewClaimer(&pci.Bus{}, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	_, err = c.Claim(a)
	require.NoError(t, err)
	f, err := vfio.Open(vfio.Options{Address: a, Windows: []ddf.WindowSpec{eduWindow}, Vectors: 1})
	require.NoError(t, err)
	_, err = f.Begin()
	require.NoError(t, err)
	fmt.Println("capgpu-host: device_del edu1")
	select {
	case <-f.Removed():
	case <-time.After(30 * time.Second):
		t.Fatal("nobody told of the unplug")
	}
	t.Logf("cause: %v", f.Cause())
	how, err := f.Quiesce()
	require.NoError(t, err)
	t.Logf("stopped: %s", how)
	require.NoError(t, f.Close())
	require.Eventually(t, func() bool {
		_, err := (&pci.Bus{}).Function(a)
		return errors.Is(err, gpuerr.NoDevice)
	}, 30*time.Second, 10*time.Millisecond, "the host's unplug goes on")
	r, err := c.Reconcile([]pci.Address{a})
	require.NoError(t, err)
	require.Empty(t, r.Released)
	require.Len(t, r.Dropped, 1)
	require.Contains(t, r.Dropped[0].Why, "left the host")
}
