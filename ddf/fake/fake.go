// Package fake is one PCI function in ordinary memory: the grant set of a
// device that does not exist.
//
// It serves unit tests and the fake function of developer mode, and behaves as
// the real grants do: DMA memory is sealed memfds with an exact quota and IOVA
// ranges that are never handed out twice, register windows know their
// permission and their doorbells, interrupts merge while nobody waits, and the
// audit log is a Merkle tree. ddf/ddftest is the suite that both pass.
//
// The holder of the Function plays the device and the device-manager: it may raise
// interrupts, make the device vanish, and revoke. The holder of the GrantSet is a driver and
// can do none of this. Neither is trusted beyond that: no argument of a grant's method
// panics.
//
// Locks: each of Pool, Window, Vector and Log has its own mutex, and so has each
// buffer (ddf/dmabuf); the only nesting is Pool.mu inside the one that serialises a
// Free with itself, and only that is held while a hook runs.
//
// After Close no descriptor and no mapping of the function is left.
package fake

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"capgpu/ddf"
	"capgpu/gpuerr"
)

// Options describes the function. The zero value is a mock GPU with one register
// window, one vector and 1 GiB of DMA memory.
type Options struct {
	Info            ddf.DeviceInfo // zero: mock0, epoch 1
	LimitBytes      uint64         // of the DMA pool; 0: 1 GiB
	Windows         []WindowSpec   // nil: BAR 0 of 4 KiB, writable, a doorbell at 0x100
	Vectors         int            // 0: 1; negative: none
	LevelTriggered  bool           // the vectors are level-triggered (INTx) instead of edges (MSI)
	DMABits         int            // address bits of the device's DMA; 0: 48
	Pinned          bool           // DMA memory keeps its pages, as that of hardware does
	AuditLimitBytes uint64         // of the audit log; 0: 1 MiB
	Hooks           Hooks
}

// Hooks let a test stand in the way of the grants. Each may be nil.
type Hooks struct {
	// Alloc runs after the charge and before any memory is made; its error fails
	// the allocation.
	Alloc func(bytes uint64) error
	// Free runs in place of the unmap of the IOVA range. An error plays a lost IOMMU domain:
	// Free reports it and the charge stays.
	Free func(iova ddf.IOVA, bytes uint64) error
}

// Function is the device and the manager's side of its grants.
type Function struct {
	info    ddf.DeviceInfo
	pool    *Pool
	windows map[int]*Window
	vectors []*Vector
	log     *Log
	revoked chan struct{} // closed by Revoke
	once    sync.Once
}

// New makes a function. Close it when its driver is done.
func New(o Options) (*Function, error) {
	if o.Info == (ddf.DeviceInfo{}) {
		o.Info = ddf.DeviceInfo{Name: "mock0", Epoch: 1, Fake: true}
	}
	if o.LimitBytes == 0 {
		o.LimitBytes = 1 << 30
	}
	if o.DMABits == 0 {
		o.DMABits = maxDMABits
	}
	if o.DMABits < 21 || o.DMABits > maxDMABits {
		return nil, gpuerr.New(gpuerr.Invalid, "DMABits is %d; it is 21 to %d", o.DMABits, maxDMABits)
	}
	if o.AuditLimitBytes == 0 {
		o.AuditLimitBytes = 1 << 20
	}
	if o.Windows == nil {
		o.Windows = []WindowSpec{{Bar: 0, Bytes: 4096, Doorbells: []uint64{0x100}}}
	}
	if o.Vectors == 0 {
		o.Vectors = 1
	}

	f := &Function{info: o.Info, windows: map[int]*Window{}, revoked: make(chan struct{})}
	f.pool = newPool(o, f.revoked)
	f.log = newLog(o.AuditLimitBytes, f.revoked)
	for _, spec := range o.Windows {
		if _, twice := f.windows[spec.Bar]; twice {
			return nil, gpuerr.New(gpuerr.Invalid, "Windows names BAR %d twice", spec.Bar)
		}
		w, err := newWindow(spec, f.revoked)
		if err != nil {
			return nil, err
		}
		f.windows[spec.Bar] = w
	}

	for range max(o.Vectors, 0) {
		f.vectors = append(f.vectors, newVector(o.LevelTriggered, f.revoked))
	}

	return f, nil
}

// Grants returns the grants of the function's driver. Every call returns the same grants.
func (f *Function) Grants() ddf.GrantSet {
	g := ddf.GrantSet{
		Device: f.info,
		Mmio:   make(map[int]ddf.DeviceMmio, len(f.windows)),
		DMA:    f.pool,
		Audit:  f.log,
	}
	for bar, w := range f.windows {
		g.Mmio[bar] = w
	}
	for _, v := range f.vectors {
		g.Interrupts = append(g.Interrupts, v)
	}
	return g
}

// Pool is the DMA pool, for what only the manager may see.
func (f *Function) Pool() *Pool { return f.pool }

// Window is the device's side of a BAR, nil if there is none.
func (f *Function) Window(bar int) *Window { return f.windows[bar] }

// Vector is the device's side of an interrupt, nil if there is none.
func (f *Function) Vector(i int) *Vector {
	if i < 0 || i >= len(f.vectors) {
		return nil
	}
	return f.vectors[i]
}

// SetGone makes the device vanish from the bus (or come back): reads of every
// register answer all ones, and writes go nowhere.
func (f *Function) SetGone(gone bool) {
	for _, w := range f.windows {
		w.gone.Store(gone)
	}
}

// Revoke takes every grant back, as the manager does: methods answer
// gpuerr.Revoked, waiters wake, and the DMA memory is scrubbed. The driver's own
// mappings stay until it frees them, so that a late access is harmless.
func (f *Function) Revoke() {
	f.once.Do(func() { close(f.revoked) })
	f.pool.scrubAll()
}

// Close revokes the grants and frees memory that the driver has left behind. The error says
// how much that was, for tests that want none.
func (f *Function) Close() error {
	f.Revoke()
	return f.pool.freeAll()
}

// isClosed reports whether a channel that only ever gets closed has been.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

var errRevoked = gpuerr.New(gpuerr.Revoked, "the device-manager took the grant back; the driver must exit")

// roundUp rounds to whole pages. ok is false when that does not fit.
func roundUp(bytes uint64) (rounded uint64, ok bool) {
	if bytes > math.MaxUint64-(ddf.PageBytes-1) {
		return 0, false
	}
	return (bytes + ddf.PageBytes - 1) &^ (ddf.PageBytes - 1), true
}

// leftBehind is the error of a Close that had to free buffers itself.
func leftBehind(count int, errs []error) error {
	if count == 0 {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs, fmt.Errorf("fake: %d DMA buffers were never freed", count))...)
}
