package manager

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/shm"
)

// fakeFunction is what stands in for hardware behind the grants of one epoch:
// register windows that are plain memory, and vectors that nobody but a test
// raises (the mock backend needs neither).
type fakeFunction struct {
	windows map[uint32]*window
	vectors []*vector
}

// windowSpec describes a window of a BAR.
type windowSpec struct {
	bar       uint32
	bytes     uint64
	writable  bool
	doorbells []uint64 // offsets that may be written even if not writable
}

// The fake function has one register page and two vectors.
var fakeWindows = []windowSpec{{bar: 0, bytes: 4096, writable: true, doorbells: []uint64{0x100}}}

const fakeVectors = 2

func newFakeFunction(windows []windowSpec, vectors int) (f *fakeFunction, err error) {
	f = &fakeFunction{windows: map[uint32]*window{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, spec := range windows {
		w, err := newWindow(spec)
		if err != nil {
			return nil, err
		}
		f.windows[spec.bar] = w
	}
	for range vectors {
		e, err := shm.NewEvent()
		if err != nil {
			return nil, err
		}
		f.vectors = append(f.vectors, &vector{event: e})
	}
	return f, nil
}

// Close releases windows and vectors. Nothing of them may be in use any more.
func (f *fakeFunction) Close() error {
	var errs []error
	for _, w := range f.windows {
		errs = append(errs, shm.Unmap(w.registers), w.memory.Close())
	}
	for _, v := range f.vectors {
		errs = append(errs, v.event.Close())
	}
	f.windows, f.vectors = nil, nil
	return errors.Join(errs...)
}

// window is one window of one BAR.
type window struct {
	granted   recordOnce
	spec      windowSpec
	memory    *shm.Memory
	registers []byte
}

func newWindow(spec windowSpec) (*window, error) {
	m, err := shm.Create(fmt.Sprintf("capgpu-bar%d", spec.bar), spec.bytes)
	if err != nil {
		return nil, err
	}
	b, err := m.Map(0, spec.bytes, true)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return &window{spec: spec, memory: m, registers: b}, nil
}

// dupFD is what the driver maps: read-only unless the window is writable.
func (w *window) dupFD() (int, error) {
	if w.spec.writable {
		return w.memory.DupFD()
	}
	// A descriptor opened for reading cannot be mapped writable; a duplicate could.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", w.memory.FD()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, gpuerr.New(gpuerr.IO, "open the registers for reading: %v", err)
	}
	return fd, nil
}

func (w *window) check(off uint64) error {
	if off%4 != 0 || off >= w.spec.bytes {
		return gpuerr.New(gpuerr.Invalid, "offset %#x is not a register of the window's %d bytes", off, w.spec.bytes)
	}
	return nil
}

func (w *window) read(off uint64) (uint32, error) {
	if err := w.check(off); err != nil {
		return 0, err
	}
	return loadRegister(w.registers, off), nil
}

func (w *window) write(off uint64, v uint32) error {
	if err := w.check(off); err != nil {
		return err
	}
	if !w.spec.writable {
		return gpuerr.New(gpuerr.Denied, "the window of BAR %d is read-only", w.spec.bar)
	}
	storeRegister(w.registers, off, v)
	return nil
}

func (w *window) ring(off uint64, v uint32) error {
	if err := w.check(off); err != nil {
		return err
	}
	if !slices.Contains(w.spec.doorbells, off) {
		return gpuerr.New(gpuerr.Denied, "offset %#x of BAR %d is no doorbell of this grant", off, w.spec.bar)
	}
	storeRegister(w.registers, off, v)
	return nil
}

// vector is one interrupt vector. What is raised while it is masked is counted
// and delivered by the unmask.
type vector struct {
	granted recordOnce
	event   *shm.Event

	mu sync.Mutex
	// +checklocks:mu
	masked bool
	// +checklocks:mu
	held uint64
}

// raise is the device sending one interrupt.
func (v *vector) raise() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.masked {
		v.held++
		return nil
	}
	return v.event.Signal()
}

func (v *vector) setMask(masked bool) error {
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
