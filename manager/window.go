package manager

import (
	"slices"
	"sync/atomic"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// window is one window of one BAR as one driver holds it, for accesses by calls.
type window struct {
	granted  recordOnce
	function Function
	index    int // among the function's windows
	spec     ddf.WindowSpec
	mapped   atomic.Bool // its descriptor was handed out
}

// vector is one interrupt vector as one driver holds it.
type vector struct {
	granted  recordOnce
	function Function
	index    int
}

// fd returns the window's descriptor, once. For real hardware that is the descriptor of the
// whole device. A driver closes it as soon as it has mapped its window, before it reads a
// byte of a client, and code that takes over the driver later gets no other.
func (w *window) fd() (fd int, offset uint64, err error) {
	if w.mapped.Swap(true) {
		return -1, 0, gpuerr.New(gpuerr.Denied, "the window of BAR %d was mapped already; reach it by calls", w.spec.Bar)
	}
	return w.function.WindowFD(w.index)
}

func (w *window) check(off uint64) error {
	if off%4 != 0 || off >= w.spec.Bytes {
		return gpuerr.New(gpuerr.Invalid, "offset %#x is not a register of the window's %d bytes", off, w.spec.Bytes)
	}
	return nil
}

func (w *window) read(off uint64) (uint32, error) {
	if err := w.check(off); err != nil {
		return 0, err
	}
	return w.function.Load32(w.index, off)
}

func (w *window) write(off uint64, v uint32) error {
	if err := w.check(off); err != nil {
		return err
	}
	if !w.spec.Writable {
		return gpuerr.New(gpuerr.Denied, "the window of BAR %d is read-only", w.spec.Bar)
	}
	return w.function.Store32(w.index, off, v)
}

func (w *window) ring(off uint64, v uint32) error {
	if err := w.check(off); err != nil {
		return err
	}
	if !slices.Contains(w.spec.Doorbells, off) {
		return gpuerr.New(gpuerr.Denied, "offset %#x of BAR %d is no doorbell of this grant", off, w.spec.Bar)
	}
	return w.function.Store32(w.index, off, v)
}

// grantedWindows returns the windows of a function, for one driver.
func grantedWindows(f Function) (all []*window) {
	for i, spec := range f.Windows() {
		all = append(all, &window{function: f, index: i, spec: spec})
	}
	return all
}

func grantedVectors(f Function) (all []*vector) {
	for i := range f.Vectors() {
		all = append(all, &vector{function: f, index: i})
	}
	return all
}
