package ddfrpc

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/server"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/ddf/fake"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// hardware is a manager's end of a grant link with a function that looks like a real one: its
// registers are a file that stands for a vfio device, with windows at some offset, its
// vectors are eventfds, and its memory is pinned.
type hardware struct {
	fn      *fake.Function // memory and audit log
	gate    *rpcguard.Gate
	served  chan struct{}
	file    *os.File // every BAR, one after the other
	windows []window
	vectors []*eventVector
	older   bool // than DriverGrants.all
	engines *engineHost
	// The wrong answers of All: so many more windows and vectors.
	moreWindows int
	moreVectors int

	mu sync.Mutex
	// +checklocks:mu
	gone bool
	// +checklocks:mu
	refuse int // calls of registers that are answered E_BUSY first
}

// window is one of the function's, at an offset in the file.
type window struct {
	spec ddf.WindowSpec
	// The wrong answers of Map.
	bytes, offset uint64
}

type eventVector struct {
	event *shm.Event

	mu sync.Mutex
	// +checklocks:mu
	masked bool
	// +checklocks:mu
	parked uint64
}

// raise is the device sending n interrupts at once.
func (v *eventVector) raise(t *testing.T, n uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.masked {
		v.parked += n
		return
	}
	require.NoError(t, v.add(n))
}

func (v *eventVector) add(n uint64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], n)
	_, err := unix.Write(v.event.FD(), b[:])
	return err
}

func (v *eventVector) setMask(masked bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.masked = masked
	n := v.parked
	if masked || n == 0 {
		return nil
	}
	v.parked = 0
	return v.add(n)
}

// serve makes a function and the driver's end of the link to it.
func serve(t *testing.T, specs ...ddf.WindowSpec) (h *hardware, theirs *net.UnixConn) {
	t.Helper()
	h = &hardware{gate: rpcguard.NewGate(), served: make(chan struct{})}
	var err error
	h.fn, err = fake.New(fake.Options{
		Info:       ddf.DeviceInfo{Name: "card0", PCIAddress: "0000:01:00.0", VendorID: 1, DeviceID: 2, Epoch: 3},
		LimitBytes: 1 << 20, Pinned: true,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.fn.Close() })
	h.file, err = os.CreateTemp(t.TempDir(), "bars")
	require.NoError(t, err)
	t.Cleanup(func() { h.file.Close() })
	var at uint64
	for _, s := range specs {
		at += s.Offset
		h.windows = append(h.windows, window{spec: s, bytes: s.Bytes, offset: at})
		at += (s.Bytes + 4095) &^ 4095
	}
	require.NoError(t, h.file.Truncate(int64(at)))
	for range 2 {
		e, err := shm.NewEvent()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, e.Close()) })
		h.vectors = append(h.vectors, &eventVector{event: e})
	}
	theirs, fd := pair(t)
	f := os.NewFile(uintptr(fd), "grant link")
	ours, err := net.FileConn(f)
	f.Close()
	require.NoError(t, err)
	bootstrap := h.export("DriverGrants", schema.DriverGrants_Methods(nil, h), nil)
	limits := rpcguard.StrictLimits()
	limits.MaxExports, limits.MaxQuestions = 20_000, 20_000
	go func() {
		defer close(h.served)
		_ = rpcguard.Serve(h.gate.Context(), ours.(*net.UnixConn), bootstrap, limits)
	}()
	t.Cleanup(h.revoke)
	return h, theirs
}

// dial takes the grants.
func dial(t *testing.T, theirs *net.UnixConn) *Link {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := Dial(ctx, theirs)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func (h *hardware) revoke() {
	h.gate.Revoke(errRevoked)
	<-h.served
	h.fn.Revoke()
}

func (h *hardware) export(name string, methods []server.Method, dupFD func() (int, error)) capnp.Client {
	return rpcguard.Export(rpcguard.Spec{Name: name, Gate: h.gate, Methods: methods, DupFD: dupFD})
}

func (h *hardware) memory(dupFD func() (int, error)) schema.SharedMemory {
	return schema.SharedMemory(h.export("SharedMemory", nil, dupFD))
}

// unplug takes the device away: its mappings fault.
func (h *hardware) unplug(t *testing.T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gone = true
	require.NoError(t, h.file.Truncate(0))
}

// load and store are the manager's, and the device's.
func (h *hardware) load(w window, off uint64) (v uint32, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse > 0 {
		h.refuse--
		return 0, gpuerr.New(gpuerr.Busy, "32 calls of this connection have not returned yet")
	}
	if h.gone {
		return allOnes, nil
	}
	var b [4]byte
	_, err = h.file.ReadAt(b[:], int64(w.offset+off))
	return binary.NativeEndian.Uint32(b[:]), err
}

func (h *hardware) store(w window, off uint64, v uint32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return nil
	}
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	_, err := h.file.WriteAt(b[:], int64(w.offset+off))
	return err
}

func (h *hardware) window(bar int) window {
	return h.windows[slices.IndexFunc(h.windows, func(w window) bool { return int(w.spec.Bar) == bar })]
}

func (h *hardware) GrantSet(_ context.Context, call schema.DriverGrants_grantSet) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	g, err := res.NewGrants()
	if err != nil {
		return err
	}
	return h.setGrants(g)
}

func (h *hardware) setGrants(g schema.GrantSet) error {
	if h.engines != nil {
		g.SetEngines(4)
	}
	g.SetVectors(uint32(len(h.vectors)))
	d, err := g.NewDevice()
	if err != nil {
		return err
	}
	if err := d.SetPciAddress("0000:01:00.0"); err != nil {
		return err
	}
	list, err := g.NewMmio(int32(len(h.windows)))
	if err != nil {
		return err
	}
	for i, w := range h.windows {
		m := list.At(i)
		m.SetBar(w.spec.Bar)
		m.SetBytes(w.spec.Bytes)
		m.SetWritable(w.spec.Writable)
		bells, err := m.NewDoorbells(int32(len(w.spec.Doorbells)))
		if err != nil {
			return err
		}
		for j, off := range w.spec.Doorbells {
			bells.Set(j, off)
		}
	}
	return nil
}

func (h *hardware) DmaPool(_ context.Context, call schema.DriverGrants_dmaPool) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetPool(h.pool())
}

func (h *hardware) pool() schema.DMAPool {
	return schema.DMAPool(h.export("DMAPool", schema.DMAPool_Methods(nil, poolServer{h}), nil))
}

func (h *hardware) Mmio(_ context.Context, call schema.DriverGrants_mmio) error {
	w := h.window(int(call.Args().Bar()))
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetMmio(h.mmio(w))
}

func (h *hardware) mmio(w window) schema.DeviceMmio {
	return schema.DeviceMmio(h.export("DeviceMmio", schema.DeviceMmio_Methods(nil, windowServer{h, w}), nil))
}

func (h *hardware) Interrupt(_ context.Context, call schema.DriverGrants_interrupt) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetInterrupt(h.interrupt(h.vectors[call.Args().Vector()]))
}

func (h *hardware) interrupt(v *eventVector) schema.Interrupt {
	return schema.Interrupt(h.export("Interrupt", schema.Interrupt_Methods(nil, vectorServer{h, v}), nil))
}

func (h *hardware) AuditLog(_ context.Context, call schema.DriverGrants_auditLog) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetLog(h.log())
}

func (h *hardware) log() schema.HardwareAuditLog {
	return schema.HardwareAuditLog(h.export("HardwareAuditLog", nil, nil))
}

// All has one vector only; the others are to be asked for.
func (h *hardware) All(_ context.Context, call schema.DriverGrants_all) error {
	if h.older {
		return gpuerr.New(gpuerr.Unimplemented, "DriverGrants.all")
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	g, err := res.NewGrants()
	if err != nil {
		return err
	}
	if err := errors.Join(h.setGrants(g), res.SetPool(h.pool()), res.SetLog(h.log())); err != nil {
		return err
	}
	windows, err := res.NewWindows(int32(len(h.windows) + h.moreWindows))
	if err != nil {
		return err
	}
	for i, w := range h.windows[:min(len(h.windows), windows.Len())] {
		to := windows.At(i)
		if err := to.SetMmio(h.mmio(w)); err != nil {
			return err
		}
		if !w.spec.Writable {
			continue
		}
		to.SetBytes(w.bytes)
		to.SetOffset(w.offset)
		if err := to.SetMemory(h.bars()); err != nil {
			return err
		}
	}
	vectors, err := res.NewVectors(int32(1 + h.moreVectors))
	if err != nil {
		return err
	}
	for i := range vectors.Len() {
		v := h.vectors[i%len(h.vectors)]
		to := vectors.At(i)
		if err := errors.Join(to.SetInterrupt(h.interrupt(v)), to.SetMemory(h.memory(v.event.DupFD))); err != nil {
			return err
		}
	}
	return nil
}

// bars carries the device's descriptor.
func (h *hardware) bars() schema.SharedMemory {
	return h.memory(func() (int, error) { return unix.FcntlInt(h.file.Fd(), unix.F_DUPFD_CLOEXEC, 0) })
}
