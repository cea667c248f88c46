package manager

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/iommu"
)

// The fake function: one register page and two vectors.
const (
	fakeName    = "mock0"
	fakeVendor  = 0x1de5
	fakeDevice  = 0x0001
	fakeVectors = 2
	// fakeEntries is the default number of mappings of vfio's type1.
	fakeEntries = 65535
)

var fakeWindows = []ddf.WindowSpec{{Bar: 0, Bytes: 4096, Writable: true, Doorbells: []uint64{0x100}}}

// fakeRange starts above 4 GiB, so that an address cut to 32 bits is never valid, and ends at
// the 48 bits of a 4-level IOMMU.
var fakeRange = iommu.Range{Start: 1 << 32, End: 1 << 48}

// fakeFunction is a Function without hardware. Its register windows are ordinary memory, and
// only tests raise its vectors; the mock backend needs neither.
type fakeFunction struct {
	domain  *iommu.Fake
	specs   []ddf.WindowSpec
	vectors int

	// mu is held for reading during an access.
	mu sync.RWMutex
	// +checklocks:mu
	windows []*fakeWindow // nil once closed
	// +checklocks:mu
	events []*fakeVector
}

var _ Function = (*fakeFunction)(nil)

var errFunctionClosed = gpuerr.New(gpuerr.Closed, "the function was given back")

func newFakeFunction(specs []ddf.WindowSpec, vectors int) (_ *fakeFunction, err error) {
	f := &fakeFunction{domain: iommu.NewFake([]iommu.Range{fakeRange}, fakeEntries), specs: specs, vectors: vectors}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()

	f.mu.Lock()
	defer f.mu.Unlock()
	for _, spec := range specs {
		w, err := newFakeWindow(spec)
		if err != nil {
			return nil, err
		}
		f.windows = append(f.windows, w)
	}

	for range vectors {
		e, err := shm.NewEvent()
		if err != nil {
			return nil, err
		}
		f.events = append(f.events, &fakeVector{event: e})
	}

	return f, nil
}

// Identity implements Function.
func (f *fakeFunction) Identity() ddf.DeviceInfo {
	return ddf.DeviceInfo{VendorID: fakeVendor, DeviceID: fakeDevice, Fake: true}
}

// Domain implements Function.
func (f *fakeFunction) Domain() iommu.Domain { return f.domain }

// Windows implements Function.
func (f *fakeFunction) Windows() []ddf.WindowSpec { return f.specs }

// windowLocked returns window i.
//
// +checklocksread:f.mu
func (f *fakeFunction) windowLocked(i int) (*fakeWindow, error) {
	if i >= len(f.windows) {
		return nil, errFunctionClosed
	}
	return f.windows[i], nil
}

// WindowFD implements Function.
func (f *fakeFunction) WindowFD(i int) (fd int, offset uint64, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	w, err := f.windowLocked(i)
	if err != nil {
		return -1, 0, err
	}
	fd, err = w.dupFD()
	return fd, 0, err
}

// Load32 implements Function.
func (f *fakeFunction) Load32(i int, off uint64) (uint32, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	w, err := f.windowLocked(i)
	if err != nil {
		return 0, err
	}
	return loadRegister(w.registers, off), nil
}

// Store32 implements Function.
func (f *fakeFunction) Store32(i int, off uint64, v uint32) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	w, err := f.windowLocked(i)
	if err != nil {
		return err
	}
	storeRegister(w.registers, off, v)
	return nil
}

// Vectors implements Function.
func (f *fakeFunction) Vectors() int { return f.vectors }

func (f *fakeFunction) vector(i int) (*fakeVector, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if i >= len(f.events) {
		return nil, errFunctionClosed
	}
	return f.events[i], nil
}

// EventFD implements Function.
func (f *fakeFunction) EventFD(i int) (int, error) {
	v, err := f.vector(i)
	if err != nil {
		return -1, err
	}
	return v.dupFD()
}

// SetMask implements Function.
func (f *fakeFunction) SetMask(i int, masked bool) error {
	v, err := f.vector(i)
	if err != nil {
		return err
	}
	return v.setMask(masked)
}

// Interrupts implements Function: nothing is counted.
func (f *fakeFunction) Interrupts() []uint64 { return nil }

// Trouble implements Function: no error is reported.
func (f *fakeFunction) Trouble() <-chan error { return nil }

// Begin implements Function: it zeroes the registers and clears pending interrupts.
func (f *fakeFunction) Begin() (reset string, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.windows == nil && len(f.specs) > 0 {
		return "", errFunctionClosed
	}
	var errs []error
	for _, w := range f.windows {
		errs = append(errs, w.memory.Punch(0, w.memory.Size()))
	}
	for _, v := range f.events {
		errs = append(errs, v.reset())
	}
	return "fake", errors.Join(errs...)
}

// Quiesce implements Function: there is no DMA to stop.
func (f *fakeFunction) Quiesce() (how string, err error) { return "fake", nil }

// Removed implements Function: never.
func (f *fakeFunction) Removed() <-chan struct{} { return nil }

// Cause implements Function.
func (f *fakeFunction) Cause() error { return nil }

// Close implements Function. Idempotent.
func (f *fakeFunction) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, w := range f.windows {
		errs = append(errs, shm.Unmap(w.registers), w.memory.Close())
	}
	for _, v := range f.events {
		errs = append(errs, v.close())
	}
	f.windows, f.events = nil, nil
	return errors.Join(append(errs, f.domain.Close())...)
}

// fakeWindow is the memory of one window.
type fakeWindow struct {
	spec      ddf.WindowSpec
	memory    *shm.Memory
	registers []byte
}

func newFakeWindow(spec ddf.WindowSpec) (*fakeWindow, error) {
	m, err := shm.Create(fmt.Sprintf("capgpu-bar%d", spec.Bar), spec.Bytes)
	if err != nil {
		return nil, err
	}
	b, err := m.Map(0, spec.Bytes, true)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &fakeWindow{spec: spec, memory: m, registers: b}, nil
}

// dupFD returns the descriptor that the driver maps: read-only unless the window is writable.
func (w *fakeWindow) dupFD() (int, error) {
	if w.spec.Writable {
		return w.memory.DupFD()
	}
	// A descriptor that was opened for reading cannot be mapped writable; a duplicate of ours
	// could.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", w.memory.FD()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, gpuerr.New(gpuerr.IO, "open the registers for reading: %v", err)
	}
	return fd, nil
}

// fakeVector is one interrupt vector. Interrupts raised while it is masked are counted, and
// delivered by the unmask. Only tests raise one: a device-manager that wrote to an eventfd
// which a driver holds could be blocked by the driver (see vfio.Function.SetMask).
type fakeVector struct {
	mu sync.Mutex
	// +checklocks:mu
	event *shm.Event
	// +checklocks:mu
	masked bool
	// +checklocks:mu
	held uint64
}

func (v *fakeVector) dupFD() (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.event.DupFD()
}

func (v *fakeVector) setMask(masked bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.masked = masked
	for !masked && v.held > 0 {
		if err := v.event.Signal(); err != nil {
			return err
		}
		v.held--
	}
	return nil
}

// reset gives the vector a new eventfd, which no earlier driver has.
func (v *fakeVector) reset() error {
	e, err := shm.NewEvent()
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	old := v.event
	v.event, v.masked, v.held = e, false, 0
	return old.Close()
}

func (v *fakeVector) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.event.Close()
}
