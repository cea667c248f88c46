package ddfrpc

import (
	"context"
	"errors"
	"slices"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// Window is the manager's ddf.DeviceMmio: a mapping of the window, and the link
// for the doorbells of a window that is otherwise read-only.
type Window struct {
	link      *Link
	remote    schema.DeviceMmio
	bar       uint32
	writable  bool
	doorbells []uint64
	size      uint64

	// mu is held for reading during an access.
	mu sync.RWMutex
	// +checklocks:mu
	registers []byte // nil once closed
}

func (l *Link) takeWindow(ctx context.Context, grants schema.DriverGrants, m schema.MmioWindow) (*Window, error) {
	bells, err := m.Doorbells()
	if err != nil {
		return nil, err
	}
	if bells.Len() > maxDoorbells {
		return nil, gpuerr.New(gpuerr.Protocol, "%d doorbells are more than %d", bells.Len(), maxDoorbells)
	}
	f, release := grants.Mmio(ctx, func(args schema.DriverGrants_mmio_Params) error {
		args.SetBar(m.Bar())
		return nil
	})
	defer release()
	res, err := f.Struct()
	if err != nil {
		return nil, err
	}
	remote := res.Mmio().AddRef()
	l.release = append(l.release, remote.Release)
	fm, releaseMap := remote.Map(ctx, nil)
	defer releaseMap()
	mem, err := fm.Struct()
	if err != nil {
		return nil, err
	}
	fd, err := l.memory(mem.Memory())
	if err != nil {
		return nil, err
	}
	memory, err := shm.FromFD(fd, mem.Bytes())
	if err != nil {
		return nil, err
	}
	registers, err := memory.Map(0, mem.Bytes(), m.Writable())
	if err := errors.Join(err, memory.Close()); err != nil { // the mapping keeps it alive
		return nil, err
	}
	w := &Window{link: l, remote: remote, bar: m.Bar(), writable: m.Writable(), size: mem.Bytes(), registers: registers}
	for i := range bells.Len() {
		w.doorbells = append(w.doorbells, bells.At(i))
	}
	return w, nil
}

// Size implements ddf.DeviceMmio.
func (w *Window) Size() uint64 { return w.size }

// check refuses what no access may do. The caller holds mu.
//
// +checklocksread:w.mu
func (w *Window) checkLocked(off uint64) error {
	switch {
	case w.link.ctx.Err() != nil:
		return errRevoked
	case w.registers == nil:
		return gpuerr.New(gpuerr.Closed, "the window of BAR %d was closed", w.bar)
	case off%4 != 0 || off >= w.size:
		return gpuerr.New(gpuerr.Invalid, "offset %#x is not a register of the window's %d bytes", off, w.size)
	}
	return nil
}

// Read32 implements ddf.DeviceMmio.
func (w *Window) Read32(off uint64) (uint32, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.checkLocked(off); err != nil {
		return 0, err
	}
	return loadRegister(w.registers, off), nil
}

// Write32 implements ddf.DeviceMmio.
func (w *Window) Write32(off uint64, v uint32) error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.checkLocked(off); err != nil {
		return err
	}
	if !w.writable {
		return gpuerr.New(gpuerr.Denied, "the window of BAR %d is read-only", w.bar)
	}
	storeRegister(w.registers, off, v)
	return nil
}

// Ring implements ddf.DeviceMmio.
func (w *Window) Ring(doorbell uint64, v uint32) error {
	local, err := w.ringLocal(doorbell, v)
	if local || err != nil {
		return err
	}
	return w.link.insist(func() error {
		f, release := w.remote.Ring(w.link.ctx, func(args schema.DeviceMmio_ring_Params) error {
			args.SetDoorbell(doorbell)
			args.SetValue(v)
			return nil
		})
		defer release()
		_, err := f.Struct()
		return err
	})
}

// ringLocal rings without a call where the mapping allows it.
func (w *Window) ringLocal(doorbell uint64, v uint32) (done bool, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.checkLocked(doorbell); err != nil {
		return false, err
	}
	if !slices.Contains(w.doorbells, doorbell) {
		return false, gpuerr.New(gpuerr.Denied, "offset %#x of BAR %d is no doorbell of this grant", doorbell, w.bar)
	}
	if w.writable {
		storeRegister(w.registers, doorbell, v)
	}
	return w.writable, nil
}

// Close implements ddf.DeviceMmio. It is idempotent.
func (w *Window) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.registers == nil {
		return nil
	}
	err := shm.Unmap(w.registers)
	w.registers = nil
	return err
}

var _ ddf.DeviceMmio = (*Window)(nil)
