package vfio

import (
	"math"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	uapi "capgpu/internal/uapi/vfio"
)

// window is part of a memory BAR, mapped.
type window struct {
	spec ddf.WindowSpec
	off  uint64 // in the device's descriptor

	// mu is held for writing to unmap only; for reading it keeps the mapping, and the
	// device's descriptor with it, from going away.
	mu sync.RWMutex
	// +checklocks:mu
	registers []byte // nil once unmapped
}

// span is [start, end) of a BAR.
type span struct{ start, end uint64 }

// tableSpan is the pages of a BAR in which the MSI-X table lies; empty elsewhere. The
// table says where interrupts go: it is the manager's, on every host.
type tableSpan struct {
	bar uint32
	span
}

func (f *Function) openWindows(specs []ddf.WindowSpec) error {
	if specs != nil && len(specs) == 0 {
		return nil
	}

	var table tableSpan
	bar, off, bytes, has, err := f.config.msixTable()
	if err != nil {
		return err
	}
	if has {
		table = tableSpan{bar, span{off &^ (ddf.PageBytes - 1), (off + bytes + ddf.PageBytes - 1) &^ (ddf.PageBytes - 1)}}
	}

	if specs == nil {
		if specs, err = f.wholeBARs(table); err != nil {
			return err
		}
	}

	for i, spec := range specs {
		if err := checkSpec(spec); err != nil {
			return err
		}
		for _, other := range specs[:i] {
			if other.Bar == spec.Bar && spec.Offset < other.Offset+other.Bytes && other.Offset < spec.Offset+spec.Bytes {
				return gpuerr.New(gpuerr.Invalid, "windows: two of BAR %d overlap at %#x", spec.Bar, max(spec.Offset, other.Offset))
			}
		}
		r, err := uapi.ReadRegion(f.kernel, f.fd, uapi.RegionBAR0+spec.Bar)
		if err != nil {
			return err
		}
		if err := fits(spec, r); err != nil {
			return err
		}
		if table.bar == spec.Bar && spec.Offset < table.end && table.start < spec.Offset+spec.Bytes {
			return gpuerr.New(gpuerr.Denied, "windows: [%#x, %#x) of BAR %d is the MSI-X table, which no driver may have; leave it out", table.start, table.end, spec.Bar)
		}
		if err := f.openWindow(spec, r); err != nil {
			return err
		}
	}

	return nil
}

func (f *Function) openWindow(spec ddf.WindowSpec, r uapi.Region) error {
	w := &window{spec: spec, off: r.Offset + spec.Offset}
	w.spec.Doorbells = slices.Clone(spec.Doorbells)
	b, err := f.kernel.Mmap(f.fd, int64(w.off), int(spec.Bytes), true)
	if err != nil {
		return uapi.Error("map a window of the device", err)
	}
	w.mu.Lock()
	w.registers = b
	w.mu.Unlock()
	f.windows = append(f.windows, w)
	return nil
}

// wholeBARs are writable windows of all that can be mapped: of each memory BAR, the
// largest part without the MSI-X table.
func (f *Function) wholeBARs(table tableSpan) (specs []ddf.WindowSpec, err error) {
	for bar := range uint32(6) {
		r, err := uapi.ReadRegion(f.kernel, f.fd, uapi.RegionBAR0+bar)
		if err != nil {
			return nil, err
		}
		if r.Flags&uapi.RegionMmap == 0 || r.Size > math.MaxInt64 {
			continue
		}
		parts := []span{{0, r.Size}}
		if r.Sparse {
			parts = nil
			for _, a := range r.Areas {
				parts = append(parts, span{a.Offset, a.Offset + a.Size})
			}
		}
		var best span
		for _, p := range parts {
			for _, q := range p.without(table, bar) {
				q.start, q.end = (q.start+ddf.PageBytes-1)&^(ddf.PageBytes-1), q.end&^(ddf.PageBytes-1)
				if q.end > q.start && q.end-q.start > best.end-best.start {
					best = q
				}
			}
		}
		if best != (span{}) {
			specs = append(specs, ddf.WindowSpec{Bar: bar, Offset: best.start, Bytes: best.end - best.start, Writable: true})
		}
	}

	return specs, nil
}

// without returns the parts of s before and after the table.
func (s span) without(table tableSpan, bar uint32) []span {
	if table.bar != bar || table.end <= s.start || s.end <= table.start {
		return []span{s}
	}
	return []span{{s.start, max(s.start, table.start)}, {min(s.end, table.end), s.end}}
}

// checkSpec checks what can be without the device.
func checkSpec(s ddf.WindowSpec) error {
	switch {
	case s.Bar > 5:
		return gpuerr.New(gpuerr.Invalid, "windows: there is no BAR %d; they are 0 to 5", s.Bar)
	case s.Bytes == 0 || s.Bytes%ddf.PageBytes != 0 || s.Offset%ddf.PageBytes != 0:
		return gpuerr.New(gpuerr.Invalid, "windows: [%#x, +%#x) of BAR %d is not whole pages of %d bytes", s.Offset, s.Bytes, s.Bar, ddf.PageBytes)
	case s.Bytes > math.MaxInt64 || s.Offset > math.MaxInt64-s.Bytes:
		return gpuerr.New(gpuerr.Invalid, "windows: [%#x, +%#x) of BAR %d is too large", s.Offset, s.Bytes, s.Bar)
	}
	for _, d := range s.Doorbells {
		if d%4 != 0 || d >= s.Bytes {
			return gpuerr.New(gpuerr.Invalid, "windows: doorbell %#x is no register of the window of BAR %d", d, s.Bar)
		}
	}
	return nil
}

// fits checks a window against the kernel's description of its BAR.
func fits(s ddf.WindowSpec, r uapi.Region) error {
	switch {
	case r.Size == 0:
		return gpuerr.New(gpuerr.Invalid, "windows: the device has no BAR %d", s.Bar)
	case s.Offset > r.Size || s.Bytes > r.Size-s.Offset:
		return gpuerr.New(gpuerr.Invalid, "windows: [%#x, +%#x) does not lie in BAR %d of %#x bytes", s.Offset, s.Bytes, s.Bar, r.Size)
	case r.Flags&uapi.RegionMmap == 0:
		return gpuerr.New(gpuerr.Invalid, "windows: BAR %d cannot be mapped: it is of I/O ports, or smaller than a page", s.Bar)
	case r.Offset > math.MaxInt64-r.Size || r.Size > math.MaxInt64:
		return gpuerr.New(gpuerr.IO, "vfio: BAR %d of %#x bytes at %#x cannot be", s.Bar, r.Size, r.Offset)
	}

	if r.Sparse && !slices.ContainsFunc(r.Areas, func(a uapi.MmapArea) bool {
		return s.Offset >= a.Offset && s.Offset-a.Offset <= a.Size && s.Bytes <= a.Size-(s.Offset-a.Offset)
	}) {
		return gpuerr.New(gpuerr.Denied, "windows: [%#x, +%#x) of BAR %d lies not in one of the parts that the kernel lets map: %+v", s.Offset, s.Bytes, s.Bar, r.Areas)
	}

	return nil
}

// Windows returns the granted parts of the BARs.
func (f *Function) Windows() []ddf.WindowSpec {
	specs := make([]ddf.WindowSpec, len(f.windows))
	for i, w := range f.windows {
		specs[i] = w.spec
		specs[i].Doorbells = slices.Clone(w.spec.Doorbells)
	}
	return specs
}

func (f *Function) window(i int) (*window, error) {
	if i < 0 || i >= len(f.windows) {
		return nil, gpuerr.New(gpuerr.Invalid, "the function has no window %d", i)
	}
	return f.windows[i], nil
}

// WindowFD returns a descriptor of the device, which the caller owns, and the offset of the
// window in it. It opens every mappable part of the device, and its ioctls: a process that
// receives it must be kept from those, and from keeping it.
func (f *Function) WindowFD(i int) (fd int, offset uint64, err error) {
	w, err := f.window(i)
	if err != nil {
		return -1, 0, err
	}
	if !w.spec.Writable {
		return -1, 0, gpuerr.New(gpuerr.Denied, "the window of BAR %d is not writable, and is reached by calls", w.spec.Bar)
	}
	if err := f.removal.err(); err != nil {
		return -1, 0, err
	}

	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.registers == nil { // and the descriptor may be another's
		return -1, 0, errClosed
	}

	fd, err = unix.FcntlInt(uintptr(f.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, 0, uapi.Error("duplicate the device's descriptor", err)
	}

	return fd, w.off, nil
}

// Load32 reads a register of window i.
func (f *Function) Load32(i int, off uint64) (v uint32, err error) {
	err = f.access(i, off, func(b []byte) error {
		v = loadRegister(b, off)
		if v == math.MaxUint32 { // which a register may hold, and one that is not there does
			return f.checkAlive()
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return v, nil
}

// Store32 writes a register of window i.
func (f *Function) Store32(i int, off uint64, v uint32) error {
	return f.access(i, off, func(b []byte) error {
		storeRegister(b, off, v)
		return nil
	})
}

func (f *Function) access(i int, off uint64, do func(b []byte) error) error {
	w, err := f.window(i)
	if err != nil {
		return err
	}
	if off%4 != 0 || off >= w.spec.Bytes {
		return gpuerr.New(gpuerr.Invalid, "offset %#x is not a register of the window's %d bytes", off, w.spec.Bytes)
	}
	if err := f.removal.err(); err != nil {
		return err
	}

	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.registers == nil {
		return errClosed
	}

	// When the device does not answer to its addresses, the kernel takes the pages away: in a
	// reset, and when it has left.
	b := w.registers
	if _, faulted := shm.Guard(func() { err = do(b) }); faulted {
		return gpuerr.New(gpuerr.DeviceLost, "the registers of %s are out of reach: it is being reset, or has left the bus", f.identity.PCIAddress)
	}

	return err
}

func (w *window) unmap(k uapi.Kernel) error {
	w.mu.Lock()
	b := w.registers
	w.registers = nil
	w.mu.Unlock()
	if b == nil {
		return nil
	}
	if err := k.Munmap(b); err != nil {
		return uapi.Error("unmap a window of the device", err)
	}
	return nil
}

var errClosed = gpuerr.New(gpuerr.Closed, "the function is closed")
