package ddfrpc

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// Window is the manager's ddf.DeviceMmio: a mapping of the window where there is one,
// and the link for what cannot be done on it: the doorbells of a window that is
// otherwise read-only, and all of one that is reached by calls.
type Window struct {
	link      *Link
	remote    schema.DeviceMmio
	bar       uint32
	writable  bool
	doorbells []uint64
	size      uint64

	// mu is held for reading during an access of the mapping.
	mu sync.RWMutex
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	registers []byte // nil once closed, and where all accesses are calls
}

// maxWindowBytes is more than any BAR has, and keeps offset+bytes within an int64.
const maxWindowBytes = 1 << 48

// allOnes is the answer of a device that has left the bus.
const allOnes = math.MaxUint32

// askWindow asks for a window and its registers, and returns what takes the answers.
func (l *Link) askWindow(ctx context.Context, grants schema.DriverGrants, m schema.MmioWindow) (take func() (*Window, error), err error) {
	w, err := l.newWindow(m)
	if err != nil {
		return nil, err
	}

	f, release := grants.Mmio(ctx, func(args schema.DriverGrants_mmio_Params) error {
		args.SetBar(m.Bar())
		return nil
	})

	// Once only: go-capnp hangs when an unresolved answer is asked twice for the same
	// field.
	pipelined := f.Mmio()
	fm, releaseMap := pipelined.Map(ctx, nil)
	l.asked = append(l.asked, release, releaseMap)
	return func() (*Window, error) {
		res, err := f.Struct()
		if err != nil {
			return nil, err
		}
		w.setRemote(res.Mmio())
		m, err := fm.Struct()
		if err != nil {
			if err = l.mapped(err); errors.Is(err, gpuerr.Denied) {
				return w, nil // it can be reached by calls only
			}
			return nil, err
		}
		return w, w.mapRegisters(m.Memory(), m.Bytes(), m.Offset())
	}, nil
}

// newWindow returns a window as the grant set describes it, not mapped yet.
func (l *Link) newWindow(m schema.MmioWindow) (*Window, error) {
	bells, err := m.Doorbells()
	if err != nil {
		return nil, err
	}
	if bells.Len() > maxDoorbells {
		return nil, gpuerr.New(gpuerr.Protocol, "%d doorbells are more than %d", bells.Len(), maxDoorbells)
	}
	if m.Bytes() == 0 || m.Bytes()%4 != 0 || m.Bytes() > maxWindowBytes {
		return nil, gpuerr.New(gpuerr.Protocol, "the window of BAR %d has %d bytes; it has 4 to %d, in whole registers", m.Bar(), m.Bytes(), uint64(maxWindowBytes))
	}

	w := &Window{link: l, bar: m.Bar(), writable: m.Writable(), size: m.Bytes()}
	for i := range bells.Len() {
		w.doorbells = append(w.doorbells, bells.At(i))
	}

	return w, nil
}

func (w *Window) setRemote(remote schema.DeviceMmio) {
	w.remote = remote.AddRef()
	w.link.release = append(w.link.release, w.remote.Release)
}

// mapRegisters maps them from what came with memory.
func (w *Window) mapRegisters(memory schema.SharedMemory, bytes, offset uint64) error {
	fd, err := w.link.memory(memory)
	if err != nil {
		return err
	}
	if bytes != w.size || offset%shm.PageBytes != 0 || offset > maxWindowBytes {
		return errors.Join(gpuerr.New(gpuerr.Protocol, "%d bytes at %#x are not the window of BAR %d that was granted, of %d bytes", bytes, offset, w.bar, w.size), unix.Close(fd))
	}

	mapFrom := mapDevice
	if w.link.set.Device.Fake {
		mapFrom = mapMemory
	}

	registers, err := mapFrom(fd, offset, w.size, w.writable)
	if err != nil {
		return err
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.registers = registers
	return nil
}

// mapMemory maps registers that are shared memory.
func mapMemory(fd int, off, bytes uint64, writable bool) ([]byte, error) {
	memory, err := shm.FromFD(fd, off+bytes)
	if err != nil {
		return nil, err
	}
	registers, err := memory.Map(off, bytes, writable)
	return registers, errors.Join(err, memory.Close()) // the mapping keeps it alive
}

// mapDevice maps registers of a vfio device. The descriptor could do much more than
// that, so it is gone when this returns.
func mapDevice(fd int, off, bytes uint64, writable bool) ([]byte, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	registers, err := unix.Mmap(fd, int64(off), int(bytes), prot, unix.MAP_SHARED)
	if err != nil {
		err = gpuerr.New(gpuerr.IO, "map %d bytes of registers: %v", bytes, err)
	}
	return registers, errors.Join(err, unix.Close(fd))
}

// Size implements ddf.DeviceMmio.
func (w *Window) Size() uint64 { return w.size }

// checkLocked refuses what no access may do.
//
// +checklocksread:w.mu
func (w *Window) checkLocked(off uint64) error {
	switch {
	case w.link.ctx.Err() != nil:
		return errRevoked
	case w.closed:
		return gpuerr.New(gpuerr.Closed, "the window of BAR %d was closed", w.bar)
	case off%4 != 0 || off >= w.size:
		return gpuerr.New(gpuerr.Invalid, "offset %#x is not a register of the window's %d bytes", off, w.size)
	}
	return nil
}

// Read32 implements ddf.DeviceMmio.
func (w *Window) Read32(off uint64) (uint32, error) {
	v, local, err := w.readLocal(off)
	if local || err != nil {
		return v, err
	}

	err = w.link.insist(func() error {
		f, release := w.remote.Read32(w.link.ctx, func(args schema.DeviceMmio_read32_Params) error {
			args.SetOffset(off)
			return nil
		})
		defer release()
		res, err := f.Struct()
		if err == nil {
			v = res.Value()
		}
		return err
	})
	return v, err
}

// readLocal reads without a call where there is a mapping. Registers of a device that
// was unplugged fault, or read as all ones: it is the same here.
func (w *Window) readLocal(off uint64) (v uint32, done bool, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.checkLocked(off); err != nil {
		return 0, false, err
	}
	b := w.registers
	if b == nil {
		return 0, false, nil
	}
	if _, faulted := shm.Guard(func() { v = loadRegister(b, off) }); faulted {
		v = allOnes
	}
	return v, true, nil
}

// Write32 implements ddf.DeviceMmio.
func (w *Window) Write32(off uint64, v uint32) error {
	local, err := w.writeLocal(off, v)
	if local || err != nil {
		return err
	}
	return w.link.insist(func() error {
		f, release := w.remote.Write32(w.link.ctx, func(args schema.DeviceMmio_write32_Params) error {
			args.SetOffset(off)
			args.SetValue(v)
			return nil
		})
		defer release()
		_, err := f.Struct()
		return err
	})
}

func (w *Window) writeLocal(off uint64, v uint32) (done bool, err error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if err := w.checkLocked(off); err != nil {
		return false, err
	}
	if !w.writable {
		return false, gpuerr.New(gpuerr.Denied, "the window of BAR %d is read-only", w.bar)
	}
	return w.storeLocked(off, v), nil
}

// storeLocked writes a register that the grant allows to write, if there is a mapping
// to write. A write to a device that was unplugged is lost.
//
// +checklocksread:w.mu
func (w *Window) storeLocked(off uint64, v uint32) (done bool) {
	b := w.registers
	if b == nil || !w.writable {
		return false
	}
	_, _ = shm.Guard(func() { storeRegister(b, off, v) })
	return true
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
	return w.storeLocked(doorbell, v), nil
}

// Close implements ddf.DeviceMmio. It is idempotent, and waits for accesses of the
// mapping.
func (w *Window) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	b := w.registers
	w.registers = nil
	return shm.Unmap(b)
}

var _ ddf.DeviceMmio = (*Window)(nil)
