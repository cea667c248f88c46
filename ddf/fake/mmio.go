package fake

import (
	"slices"
	"sync"
	"sync/atomic"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// allOnes is the answer of a device that has left the bus.
const allOnes = 0xffff_ffff

// Registers is the device behind a window. Its methods are called one at a time
// per window and must not call the window back.
type Registers interface {
	Read32(off uint64) uint32
	Write32(off uint64, v uint32)
}

// RegisterFile is registers that only remember. It is the default.
type RegisterFile []uint32

// Read32 implements Registers.
func (f RegisterFile) Read32(off uint64) uint32 { return f[off/4] }

// Write32 implements Registers.
func (f RegisterFile) Write32(off uint64, v uint32) { f[off/4] = v }

// WindowSpec describes one window of one BAR.
type WindowSpec struct {
	Bar       int
	Bytes     uint64 // multiple of 4, at most 1 MiB
	ReadOnly  bool
	Doorbells []uint64  // offsets of the selected writes that Ring allows
	Registers Registers // nil: a RegisterFile
}

// Window is the fake ddf.DeviceMmio.
type Window struct {
	revoked <-chan struct{}
	spec    WindowSpec
	gone    atomic.Bool

	mu sync.Mutex
	// +checklocks:mu
	closed bool
}

const maxWindowBytes = 1 << 20

func newWindow(spec WindowSpec, revoked <-chan struct{}) (*Window, error) {
	if spec.Bytes == 0 || spec.Bytes%4 != 0 || spec.Bytes > maxWindowBytes {
		return nil, gpuerr.New(gpuerr.Invalid, "window of BAR %d: Bytes is %d; it must be a multiple of 4 up to %d", spec.Bar, spec.Bytes, maxWindowBytes)
	}
	for _, off := range spec.Doorbells {
		if off%4 != 0 || off >= spec.Bytes {
			return nil, gpuerr.New(gpuerr.Invalid, "window of BAR %d: doorbell %#x is not a register of it", spec.Bar, off)
		}
	}
	spec.Doorbells = slices.Clone(spec.Doorbells)
	if spec.Registers == nil {
		spec.Registers = make(RegisterFile, spec.Bytes/4)
	}
	return &Window{revoked: revoked, spec: spec}, nil
}

// Spec is how the window was made.
func (w *Window) Spec() WindowSpec { return w.spec }

// Poke is the device changing one of its own registers.
func (w *Window) Poke(off uint64, v uint32) error {
	return w.access(off, func() { w.spec.Registers.Write32(off, v) })
}

// Peek returns the device's value of one of its registers.
func (w *Window) Peek(off uint64) (v uint32, err error) {
	err = w.access(off, func() { v = w.spec.Registers.Read32(off) })
	return v, err
}

// Size implements ddf.DeviceMmio.
func (w *Window) Size() uint64 { return w.spec.Bytes }

// Read32 implements ddf.DeviceMmio.
func (w *Window) Read32(off uint64) (uint32, error) {
	v := uint32(allOnes)
	err := w.access(off, func() { v = w.spec.Registers.Read32(off) })
	if err != nil {
		return 0, err
	}
	return v, nil
}

// Write32 implements ddf.DeviceMmio.
func (w *Window) Write32(off uint64, v uint32) error {
	if w.spec.ReadOnly {
		if err := w.check(off); err != nil {
			return err
		}
		return gpuerr.New(gpuerr.Denied, "the window of BAR %d is read-only; the grant names the writes that Ring allows", w.spec.Bar)
	}
	return w.access(off, func() { w.spec.Registers.Write32(off, v) })
}

// Ring implements ddf.DeviceMmio. A doorbell is named by its offset.
func (w *Window) Ring(doorbell uint64, v uint32) error {
	if err := w.check(doorbell); err != nil {
		return err
	}
	if !slices.Contains(w.spec.Doorbells, doorbell) {
		return gpuerr.New(gpuerr.Denied, "offset %#x of BAR %d is not a doorbell of this grant", doorbell, w.spec.Bar)
	}
	return w.access(doorbell, func() { w.spec.Registers.Write32(doorbell, v) })
}

// Close implements ddf.DeviceMmio. It is idempotent.
func (w *Window) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return nil
}

// check refuses what no access may do.
func (w *Window) check(off uint64) error {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	switch {
	case isClosed(w.revoked):
		return errRevoked
	case closed:
		return gpuerr.New(gpuerr.Closed, "the window of BAR %d was closed", w.spec.Bar)
	case off%4 != 0 || off >= w.spec.Bytes:
		return gpuerr.New(gpuerr.Invalid, "offset %#x is not a register of the window's %d bytes", off, w.spec.Bytes)
	}
	return nil
}

// access runs f on the registers, unless the device is gone.
func (w *Window) access(off uint64, f func()) error {
	if err := w.check(off); err != nil {
		return err
	}
	if w.gone.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	return nil
}

var _ ddf.DeviceMmio = (*Window)(nil)
