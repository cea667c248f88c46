package manager

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/ddftest"
	"capgpu/gpuerr"
	"capgpu/iommu"
	"capgpu/ledger"
)

// Registers of QEMU's edu (docs/specs/edu.rst of QEMU 7.2).
const (
	eduLiveness    = 0x04 // reads back what was written, inverted
	eduRaise       = 0x60
	eduAcknowledge = 0x64
)

// hardware opens the first function of CAPGPU_HW, an edu, for the test.
func hardware(t testing.TB, windows []ddf.WindowSpec) Function {
	t.Helper()
	address, _, _ := strings.Cut(os.Getenv("CAPGPU_HW"), ",")
	if address == "" {
		t.Skip("CAPGPU_HW names no function: go run ./qemu/cmd/guest-run runs this in a guest that has some")
	}
	h := NewHardware(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	p := DevPolicy().Device.functionOf("edu0", address)
	p.Windows = windows
	_, err := h.Prepare([]FunctionPolicy{p}, false)
	require.NoError(t, err)
	f, err := h.Open(p, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// A driver's grants of a real function keep the promises of package ddf.
func TestHardwareGrantsConform(t *testing.T) {
	const doorbell = eduRaise
	f := hardware(t, []ddf.WindowSpec{{Bytes: ddf.PageBytes, Writable: true, Doorbells: []uint64{doorbell}}})
	space := iommu.NewSpace(iommu.Clip(f.Domain().Ranges(), dmaBits(f.Identity())))
	limits := grantTestLimits()
	limits[ledger.DeviceMemory] = 4 << 20 // all of it is pinned, and zeroed, several times
	ddftest.RunHarness(t, func(t *testing.T) ddftest.Harness {
		_, err := f.Begin()
		require.NoError(t, err)
		g := grantOf(t, limits, f, space)
		link := dialGrants(t, g)
		return ddftest.Harness{
			Grants: link.GrantSet(),
			Raise: func(int) {
				before := f.Interrupts()[0]
				require.NoError(t, f.Store32(0, eduRaise, 1))
				require.NoError(t, f.Store32(0, eduAcknowledge, 1))
				awaitInterrupt(f, before)
			},
			Pinned:    true,
			Doorbells: map[int][]uint64{0: {doorbell}},
			Revoke: func() {
				g.stop(t)
				<-link.Done()
			},
		}
	})
}

// awaitInterrupt waits, for as long as a delivery may take, until the kernel has counted
// another interrupt: interrupts that come before the CPU has taken the last one merge.
func awaitInterrupt(f Function, before uint64) {
	for limit := time.Now().Add(100 * time.Millisecond); f.Interrupts()[0] == before && time.Now().Before(limit); {
		time.Sleep(100 * time.Microsecond)
	}
}

// A driver reaches the device's registers through its mapping. If its window is not writable
// it has no descriptor of the device, and reads and rings by calls.
func TestHardwareRegisters(t *testing.T) {
	for name, writable := range map[string]bool{"Mapped": true, "ByCalls": false} {
		t.Run(name, func(t *testing.T) {
			f := hardware(t, []ddf.WindowSpec{{Bytes: ddf.PageBytes, Writable: writable, Doorbells: []uint64{eduLiveness}}})
			_, err := f.Begin()
			require.NoError(t, err)
			g := grantOf(t, grantTestLimits(), f, iommu.NewSpace(f.Domain().Ranges()))
			set := dialGrants(t, g).GrantSet()
			require.False(t, set.Device.Fake)
			require.Equal(t, strings.Split(os.Getenv("CAPGPU_HW"), ",")[0], set.Device.PCIAddress)
			w := set.Mmio[0]
			require.NoError(t, w.Ring(eduLiveness, 0x12345678))
			v, err := w.Read32(eduLiveness)
			require.NoError(t, err)
			require.Equal(t, ^uint32(0x12345678), v)
			require.ErrorIs(t, w.Ring(eduRaise, 1), gpuerr.Denied)
			if writable {
				require.NoError(t, w.Write32(eduLiveness, 7))
			} else {
				require.ErrorIs(t, w.Write32(eduLiveness, 7), gpuerr.Denied)
				_, _, err = f.WindowFD(0)
				require.ErrorIs(t, err, gpuerr.Denied)
			}
			v, err = w.Read32(eduLiveness)
			require.NoError(t, err)
			require.Equal(t, writable, v == ^uint32(7))
		})
	}
}

// A function that an earlier manager left claimed is taken over, and given back if the policy
// does not want it.
func TestHardwareIsTakenOver(t *testing.T) {
	address, _, _ := strings.Cut(os.Getenv("CAPGPU_HW"), ",")
	if address == "" {
		t.Skip("CAPGPU_HW names no function: go run ./qemu/cmd/guest-run runs this in a guest that has some")
	}
	log, dir := slog.New(slog.NewTextHandler(t.Output(), nil)), t.TempDir()
	p := DevPolicy().Device.functionOf("edu0", address)
	driver := func() string {
		all, err := HostFunctions()
		require.NoError(t, err)
		for _, f := range all {
			if f.Address == address {
				require.Empty(t, f.Refusal)
				return f.Driver
			}
		}
		t.Fatalf("%s is not listed", address)
		return ""
	}
	former := driver()
	first := NewHardware(dir, log)
	_, err := first.Prepare([]FunctionPolicy{p}, false)
	require.NoError(t, err)
	f, err := first.Open(p, nil)
	require.NoError(t, err)
	require.Equal(t, "vfio-pci", driver())
	// The process dies: its descriptors are closed, and nothing else is done.
	require.NoError(t, f.(*claimedFunction).Function.Close())
	require.NoError(t, first.Close())
	require.Equal(t, "vfio-pci", driver())

	second := NewHardware(dir, log)
	_, err = second.Prepare([]FunctionPolicy{p}, false)
	require.NoError(t, err)
	f, err = second.Open(p, nil)
	require.NoError(t, err)
	_, err = f.Begin()
	require.NoError(t, err)
	require.NoError(t, f.(*claimedFunction).Function.Close())
	require.NoError(t, second.Close())

	third := NewHardware(dir, log)
	defer third.Close()
	_, err = third.Prepare(nil, false)
	require.NoError(t, err)
	require.Equal(t, former, driver(), "nobody wants it any more")
}
