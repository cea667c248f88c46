// Package ddftest is the suite that every set of grants must pass.
//
// Run needs only a driver's grants. RunHarness also plays the device and the device-manager
// if a Harness can: it raises interrupts, changes registers, revokes. A hook that is nil
// skips the tests that need it, and the skip names the hook.
//
// The suite knows the contract of package ddf and nothing of an implementation.
package ddftest

import (
	"context"
	"testing"
	"time"

	"capgpu/ddf"
)

// Harness is a grant set and, as far as the implementation has them, the means to
// act as the device and the manager. All of it is fresh for each test, and ends
// with the test's cleanups.
type Harness struct {
	Grants ddf.GrantSet

	// Raise makes the device send an interrupt on a vector.
	Raise func(vector int)
	// RaiseMany makes the device send n interrupts on a vector at once.
	RaiseMany func(vector int, n uint64)
	// Poke makes the device change one of its registers.
	Poke func(bar int, off uint64, v uint32)
	// Gone makes the device leave the bus.
	Gone func()
	// Revoke takes all grants back.
	Revoke func()
	// Mapped asks the IOMMU whether the device reaches a range.
	Mapped func(iova ddf.IOVA, bytes uint64) bool
	// DeviceReads reads as the device, at an address that Mapped is true of.
	DeviceReads func(t *testing.T, iova ddf.IOVA, bytes uint64) []byte
	// Pinned says that DMA memory keeps its pages while it is mapped.
	Pinned bool
	// Doorbells are the offsets that Ring allows, by BAR.
	Doorbells map[int][]uint64
	// ReadOnly are the BARs with read-only windows.
	ReadOnly []int
	// Peek returns the device's value of a register that the driver has written.
	Peek func(bar int, off uint64) uint32
}

// Run runs the suite on grants alone.
func Run(t *testing.T, open func(t *testing.T) ddf.GrantSet) {
	RunHarness(t, func(t *testing.T) Harness { return Harness{Grants: open(t)} })
}

// RunHarness runs the whole suite.
func RunHarness(t *testing.T, open func(t *testing.T) Harness) {
	for _, group := range [...]struct {
		name  string
		tests []test
	}{
		{"DMA", dmaTests},
		{"Mmio", mmioTests},
		{"Interrupt", interruptTests},
		{"Audit", auditTests},
		{"Revoke", revokeTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, h Harness)
}

// patience is how long a test waits for what must happen. It is ample: the device may
// be one of an emulated machine on a host that is busy.
const patience = 60 * time.Second

// rounds is how often a test does something that costs the device's host much: n
// times, and a tenth of that with -test.short.
func rounds(n int) int {
	if testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// within is a context that ends long after everything that must happen.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// hook skips a test that needs a missing part of the harness.
func hook(t *testing.T, name string, has bool) {
	t.Helper()
	if !has {
		t.Skipf("the harness has no %s", name)
	}
}
