package faultlog_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/ddf"
	"capgpu/ddf/vfio"
	"capgpu/internal/pci"
	"capgpu/iommu/faultlog"
)

// Registers of QEMU's edu device (docs/specs/edu), and its buffer as its DMA engine
// sees it.
const (
	eduSource      = 0x80
	eduDestination = 0x88
	eduCount       = 0x90
	eduCommand     = 0x98
	eduStart       = 1 << 0
	eduToRAM       = 1 << 1
	eduBuffer      = 0x40000
)

// TestHardwareFault has edu functions stray, to write and to read: the log names the
// function, the page and the access.
func TestHardwareFault(t *testing.T) {
	names := os.Getenv("CAPGPU_HW")
	if names == "" {
		t.Skip("SKIPPED: needs edu functions behind an IOMMU; name their PCI addresses in CAPGPU_HW, or run it in the guest (go run ./qemu/cmd/guest-run)")
	}
	var mu sync.Mutex
	var faults []faultlog.Fault
	r, err := faultlog.Open(func(f faultlog.Fault) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, f)
	}, faultlog.Options{})
	require.NoError(t, err)
	defer r.Close()
	ended := make(chan error)
	go func() { ended <- r.Run(t.Context()) }()

	claimer, err := pci.NewClaimer(&pci.Bus{}, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, claimer.Close()) })
	for name := range strings.SplitSeq(names, ",") {
		address, err := pci.ParseAddress(name)
		require.NoError(t, err)
		_, err = claimer.Claim(address)
		require.NoError(t, err)
		f, err := vfio.Open(vfio.Options{Address: address, Windows: []ddf.WindowSpec{{Bytes: 4096, Writable: true}}, Vectors: 1})
		require.NoError(t, err)
		_, err = f.Begin()
		require.NoError(t, err)
		const stray = 0x900000
		dma := func(source, destination, command uint32) {
			for _, w := range []struct {
				off   uint64
				value uint32
			}{{eduSource, source}, {eduDestination, destination}, {eduCount, 64}, {eduCommand, command}} {
				require.NoError(t, f.Store32(0, w.off, w.value))
			}
		}
		done := func() {
			for command := uint32(eduStart); command&eduStart != 0; {
				var err error
				command, err = f.Load32(0, eduCommand)
				require.NoError(t, err)
			}
		}
		seen := func(write bool) (n int) {
			mu.Lock()
			defer mu.Unlock()
			for _, f := range faults {
				if f.Matches(name) && f.IOVA == stray && f.Write == write {
					n++
				}
			}
			return n
		}
		// Again and again: earlier faults may have used up the kernel's limit of three in 5
		// s. Every fault that it prints has been reported when Sync has returned.
		for _, write := range []bool{true, false} {
			late := false
			require.Eventually(t, func() bool {
				before := seen(write)
				if write {
					dma(eduBuffer, stray, eduStart|eduToRAM)
				} else {
					dma(stray, eduBuffer, eduStart)
				}
				done()
				require.NoError(t, r.Sync())
				soon := seen(write)
				time.Sleep(50 * time.Millisecond)
				require.NoError(t, r.Sync())
				late = seen(write) > soon
				return late || soon > before
			}, time.Minute, time.Millisecond, "write=%v: %+v", write, faults)
			require.False(t, late, "Sync has returned after the device was done, and before a fault was told")
			mu.Lock()
			enough := len(faults) > 2 // one access of the second function will do
			mu.Unlock()
			if enough {
				break
			}
		}
		require.NoError(t, f.Close())
		_, err = claimer.Release(address)
		require.NoError(t, err)
	}
	require.NoError(t, r.Close())
	require.Error(t, <-ended)
	for _, f := range faults {
		require.True(t, f.Address == "" || strings.Contains(f.Reason, "access is not set"), "%+v", f)
	}
}
