package sim

import (
	"context"
	"errors"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/iommu"
	"capgpu/iommu/faultlog"
	"capgpu/manager"
)

// function is the PCI function with its IOMMU domain, and the host's record of faults.
type function struct {
	w      *world
	domain *iommu.Fake

	mu       sync.Mutex
	cause    error
	removed  chan struct{}
	trouble  chan error
	badBegin int // Begins that are still to fail
	sink     func(faultlog.Fault)
	reports  []faultlog.Fault // printed by the kernel, and not yet read
}

const address = "0000:01:00.0"

func newFunction(w *world) *function {
	return &function{w: w, domain: iommu.NewFake([]iommu.Range{{Start: 1 << 32, End: 1 << 48}}, 4096), removed: make(chan struct{}), trouble: make(chan error, 1)}
}

// Identity implements manager.Function.
func (f *function) Identity() ddf.DeviceInfo {
	return ddf.DeviceInfo{PCIAddress: address, VendorID: 0x1de5, DeviceID: 2, Fake: !f.w.dma}
}

// Domain implements manager.Function.
func (f *function) Domain() iommu.Domain { return f.domain }

// Windows implements manager.Function.
func (f *function) Windows() []ddf.WindowSpec { return nil }

// WindowFD implements manager.Function.
func (f *function) WindowFD(int) (int, uint64, error) { return -1, 0, errNoWindow }

// Load32 implements manager.Function.
func (f *function) Load32(int, uint64) (uint32, error) { return 0, errNoWindow }

// Store32 implements manager.Function.
func (f *function) Store32(int, uint64, uint32) error { return errNoWindow }

var errNoWindow = gpuerr.New(gpuerr.Denied, "the simulated function has no windows")

// Vectors implements manager.Function.
func (f *function) Vectors() int { return 0 }

// EventFD implements manager.Function.
func (f *function) EventFD(int) (int, error) { return -1, errNoWindow }

// SetMask implements manager.Function.
func (f *function) SetMask(int, bool) error { return nil }

// Interrupts implements manager.Function.
func (f *function) Interrupts() []uint64 { return nil }

// Begin implements manager.Function.
func (f *function) Begin() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.badBegin > 0 {
		f.badBegin--
		return "", gpuerr.New(gpuerr.IO, "the reset timed out")
	}
	select { // earlier trouble is over
	case <-f.trouble:
	default:
	}
	f.w.host.chip.begin()
	return "sim", nil
}

// Quiesce implements manager.Function.
func (f *function) Quiesce() (string, error) {
	f.w.host.chip.stop()
	return "sim", nil
}

// Removed implements manager.Function.
func (f *function) Removed() <-chan struct{} { return f.removed }

// Cause implements manager.Function.
func (f *function) Cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cause
}

// Trouble implements manager.Function.
func (f *function) Trouble() <-chan error { return f.trouble }

// Close implements manager.Function.
func (f *function) Close() error {
	f.w.host.chip.stop()
	if left := f.domain.Mappings(); len(left) > 0 && f.w.mutant == NoMutant {
		f.w.violate("%d pieces of memory are mapped for a function that is given back", len(left))
	}
	return nil
}

// remove removes the function from the host.
func (f *function) remove(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cause == nil {
		f.cause = errors.New(why)
		close(f.removed)
	}
}

func (f *function) isRemoved() bool { return f.Cause() != nil }

// fault is an access that the IOMMU refuses: the kernel prints it, and it is read
// later.
func (f *function) fault(iova uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, faultlog.Fault{Address: address, IOVA: iommu.IOVA(iova), Write: true, Reason: "not mapped"})
}

// hostFaults is a manager.Hardware with nothing but faults.
type hostFaults struct {
	manager.Hardware
	f *function
}

// Faults implements manager.Hardware.
func (h hostFaults) Faults(sink func(faultlog.Fault)) (manager.FaultSource, error) {
	h.f.mu.Lock()
	h.f.sink = sink
	h.f.mu.Unlock()
	return faultSource{h.f}, nil
}

// faultSource reads the reports on request.
type faultSource struct{ f *function }

// Run implements manager.FaultSource.
func (s faultSource) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Sync implements manager.FaultSource.
func (s faultSource) Sync() error {
	s.f.mu.Lock()
	reports, sink := s.f.reports, s.f.sink
	s.f.reports = nil
	s.f.mu.Unlock()
	for _, r := range reports {
		sink(r)
	}
	return nil
}

// Close implements manager.FaultSource.
func (s faultSource) Close() error { return nil }
