package manager

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/server"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/ledger"
	"capgpu/schema"
)

// grantLimits are strict, except that a driver may hold one capability for each mapping of
// its account, and a Go client keeps each question for 0.25 s.
func grantLimits() rpcguard.Limits {
	l := rpcguard.StrictLimits()
	l.MaxExports = 20_000
	l.MaxQuestions = 20_000
	return l
}

// grantServer answers the calls of one driver.
type grantServer struct {
	*grants
	holder *holder // the driver that this link serves
	gate   *rpcguard.Gate
	log    *slog.Logger
	// launchRecords: the driver records one of so many launches of a session; 0 means none.
	launchRecords uint64
	askedAll      atomic.Bool // the driver has called All
}

// serve answers until the driver is gone, breaks the protocol, or the gate is revoked. When
// it returns, no call runs and the driver's references are gone.
func (s *grantServer) serve(conn *net.UnixConn) error {
	bootstrap := s.export("DriverGrants", schema.DriverGrants_Methods(nil, s), nil, nil)
	return rpcguard.Serve(s.gate.Context(), conn, bootstrap, grantLimits())
}

func (s *grantServer) export(name string, methods []server.Method, dupFD func() (int, error), shutdown func()) capnp.Client {
	return rpcguard.Export(rpcguard.Spec{Name: name, Gate: s.gate, Methods: methods, DupFD: dupFD, Shutdown: shutdown, Log: s.log})
}

// memory returns a capability that carries a descriptor.
func (s *grantServer) memory(dupFD func() (int, error)) schema.SharedMemory {
	return schema.SharedMemory(s.export("SharedMemory", nil, dupFD, nil))
}

// GrantSet implements schema.DriverGrants_Server.
func (s *grantServer) GrantSet(_ context.Context, call schema.DriverGrants_grantSet) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	g, err := res.NewGrants()
	if err != nil {
		return err
	}
	return s.setGrants(g)
}

func (s *grantServer) setGrants(g schema.GrantSet) error {
	u := s.usage()
	g.SetFake(s.info.Fake)
	g.SetVectors(uint32(len(s.vectors)))
	g.SetLaunchRecords(s.launchRecords)
	g.SetDmaBytes(u.LimitBytes)
	g.SetIovaEntries(limitOf(s.account, ledger.IOVAEntries))
	if err := s.setDevice(g); err != nil {
		return err
	}

	windows, err := g.NewMmio(int32(len(s.windows)))
	if err != nil {
		return err
	}

	for i, w := range s.windows {
		m := windows.At(i)
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

func (s *grantServer) setDevice(g schema.GrantSet) error {
	d, err := g.NewDevice()
	if err != nil {
		return err
	}
	d.SetIndex(s.info.Index)
	d.SetVendorId(s.info.VendorID)
	d.SetDeviceId(s.info.DeviceID)
	d.SetEpoch(s.info.Epoch)
	d.SetMemoryBytes(s.usage().LimitBytes)
	if err := d.SetName(s.info.Name); err != nil {
		return err
	}
	return d.SetPciAddress(s.info.PCIAddress)
}

// DmaPool implements schema.DriverGrants_Server.
func (s *grantServer) DmaPool(_ context.Context, call schema.DriverGrants_dmaPool) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetPool(s.pool())
}

func (s *grantServer) pool() schema.DMAPool {
	return schema.DMAPool(s.export("DMAPool", schema.DMAPool_Methods(nil, poolServer{s}), nil, nil))
}

// Mmio implements schema.DriverGrants_Server.
func (s *grantServer) Mmio(_ context.Context, call schema.DriverGrants_mmio) error {
	i := slices.IndexFunc(s.windows, func(w *window) bool { return w.spec.Bar == call.Args().Bar() })
	if i < 0 {
		return gpuerr.New(gpuerr.Denied, "BAR %d is not granted", call.Args().Bar())
	}
	w := s.windows[i]
	if err := s.recordWindow(w); err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetMmio(s.mmio(w))
}

func (s *grantServer) recordWindow(w *window) error {
	return s.recordGrant(&w.granted, "mmio.grant", "bar=%d bytes=%d writable=%t doorbells=%d", w.spec.Bar, w.spec.Bytes, w.spec.Writable, len(w.spec.Doorbells))
}

func (s *grantServer) mmio(w *window) schema.DeviceMmio {
	return schema.DeviceMmio(s.export("DeviceMmio", schema.DeviceMmio_Methods(nil, windowServer{s, w}), nil, nil))
}

// Interrupt implements schema.DriverGrants_Server.
func (s *grantServer) Interrupt(_ context.Context, call schema.DriverGrants_interrupt) error {
	i := call.Args().Vector()
	if uint64(i) >= uint64(len(s.vectors)) {
		return gpuerr.New(gpuerr.Denied, "vector %d is not granted", i)
	}
	if err := s.recordVector(int(i)); err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetInterrupt(s.interrupt(int(i)))
}

func (s *grantServer) recordVector(i int) error {
	return s.recordGrant(&s.vectors[i].granted, "interrupt.grant", "vector=%d", i)
}

func (s *grantServer) interrupt(i int) schema.Interrupt {
	return schema.Interrupt(s.export("Interrupt", schema.Interrupt_Methods(nil, vectorServer{s, s.vectors[i]}), nil, nil))
}

// AuditLog implements schema.DriverGrants_Server.
func (s *grantServer) AuditLog(_ context.Context, call schema.DriverGrants_auditLog) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetLog(s.auditLog())
}

func (s *grantServer) auditLog() schema.HardwareAuditLog {
	return schema.HardwareAuditLog(s.export("HardwareAuditLog", schema.HardwareAuditLog_Methods(nil, auditServer{s}), nil, nil))
}

type poolServer struct{ *grantServer }

// Allocate implements schema.DMAPool_Server.
func (s poolServer) Allocate(_ context.Context, call schema.DMAPool_allocate) error {
	s.freeDropped()
	d, err := s.allocFor(s.holder, call.Args().Bytes())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	return s.answer(d, res, err)
}

// answer puts a buffer into the results of a call. err is the error of making the results.
func (s poolServer) answer(d *dmaMemory, res interface{ SetBuffer(schema.DMABuffer) error }, err error) error {
	b := &bufferServer{grantServer: s.grantServer, d: d}
	client := s.export("DMABuffer", schema.DMABuffer_Methods(nil, b), nil, b.shutdown)
	if err != nil {
		client.Release()
		return err
	}
	return res.SetBuffer(schema.DMABuffer(client))
}

// Adopt implements schema.DMAPool_Server.
func (s poolServer) Adopt(_ context.Context, call schema.DMAPool_adopt) error {
	d, err := s.adopt(s.holder, ddf.IOVA(call.Args().Iova()), call.Args().Generation())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	return s.answer(d, res, err)
}

// Usage implements schema.DMAPool_Server.
func (s poolServer) Usage(_ context.Context, call schema.DMAPool_usage) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	s.freeDropped()
	u := s.usage()
	res.SetUsedBytes(u.UsedBytes)
	res.SetLimitBytes(u.LimitBytes)
	res.SetEntries(u.Entries)
	return nil
}

type bufferServer struct {
	*grantServer
	d *dmaMemory

	mu sync.Mutex
	// +checklocks:mu
	freed bool
}

// shutdown runs when the driver has released the buffer, with or without a Free.
func (b *bufferServer) shutdown() { b.dropOf(b.holder, b.d) }

// Map implements schema.DMABuffer_Server.
func (b *bufferServer) Map(_ context.Context, call schema.DMABuffer_map) error {
	b.mu.Lock()
	freed := b.freed
	b.mu.Unlock()
	if freed {
		return gpuerr.New(gpuerr.Stale, "the DMA buffer at %#x was freed", uint64(b.d.iova))
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetIova(uint64(b.d.iova))
	res.SetBytes(b.d.bytes)
	res.SetGeneration(b.d.generation)
	res.SetPinned(!b.info.Fake)
	return res.SetMemory(b.memory(b.d.memory.DupFD))
}

// Free implements schema.DMABuffer_Server.
func (b *bufferServer) Free(_ context.Context, call schema.DMABuffer_free) error {
	if !b.letGo(b.holder, b.d) {
		return gpuerr.New(gpuerr.Stale, "the DMA buffer at %#x is another driver's", uint64(b.d.iova))
	}
	b.mu.Lock()
	b.freed = true
	b.mu.Unlock()
	return b.free(b.d)
}

type windowServer struct {
	*grantServer
	w *window
}

// Map implements schema.DeviceMmio_Server.
func (s windowServer) Map(_ context.Context, call schema.DeviceMmio_map) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	fd, offset, err := s.w.fd()
	if err != nil {
		return err
	}
	res.SetBytes(s.w.spec.Bytes)
	res.SetOffset(offset)
	return res.SetMemory(s.descriptor(fd))
}

// descriptor returns a capability that owns one descriptor and hands it out once.
func (s *grantServer) descriptor(fd int) schema.SharedMemory {
	var held atomic.Int64
	held.Store(int64(fd))
	take := func() int { return int(held.Swap(-1)) }
	return schema.SharedMemory(s.export("SharedMemory", nil, func() (int, error) {
		if fd := take(); fd >= 0 {
			return fd, nil
		}
		return -1, gpuerr.New(gpuerr.Denied, "the descriptor was handed out already")
	}, func() {
		if fd := take(); fd >= 0 {
			unix.Close(fd)
		}
	}))
}

// Read32 implements schema.DeviceMmio_Server.
func (s windowServer) Read32(_ context.Context, call schema.DeviceMmio_read32) error {
	v, err := s.w.read(call.Args().Offset())
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetValue(v)
	return nil
}

// Write32 implements schema.DeviceMmio_Server.
func (s windowServer) Write32(_ context.Context, call schema.DeviceMmio_write32) error {
	return s.w.write(call.Args().Offset(), call.Args().Value())
}

// Ring implements schema.DeviceMmio_Server.
func (s windowServer) Ring(_ context.Context, call schema.DeviceMmio_ring) error {
	return s.w.ring(call.Args().Doorbell(), call.Args().Value())
}

type vectorServer struct {
	*grantServer
	v *vector
}

// EventFd implements schema.Interrupt_Server.
func (s vectorServer) EventFd(_ context.Context, call schema.Interrupt_eventFd) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetMemory(s.event(s.v))
}

func (s *grantServer) event(v *vector) schema.SharedMemory {
	return s.memory(func() (int, error) { return s.function.EventFD(v.index) })
}

// Mask implements schema.Interrupt_Server.
func (s vectorServer) Mask(context.Context, schema.Interrupt_mask) error {
	return s.function.SetMask(s.v.index, true)
}

// Unmask implements schema.Interrupt_Server.
func (s vectorServer) Unmask(context.Context, schema.Interrupt_unmask) error {
	return s.function.SetMask(s.v.index, false)
}

// Ack implements schema.Interrupt_Server. The vectors are edge-triggered, as MSI is, and need
// no rearming.
func (s vectorServer) Ack(context.Context, schema.Interrupt_ack) error { return nil }

type auditServer struct{ *grantServer }

// Append implements schema.HardwareAuditLog_Server.
func (s auditServer) Append(_ context.Context, call schema.HardwareAuditLog_append) error {
	kind, err := call.Args().Kind()
	if err != nil {
		return err
	}

	detail, err := call.Args().Detail()
	if err != nil {
		return err
	}

	index, err := s.auditAppend(kind, detail)
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetIndex(index)
	return nil
}

// Snapshot implements schema.HardwareAuditLog_Server.
func (s auditServer) Snapshot(_ context.Context, call schema.HardwareAuditLog_snapshot) error {
	records, head, err := s.auditSnapshot(call.Args().From(), call.Args().Max())
	if err != nil {
		return err
	}

	res, err := call.AllocResults()
	if err != nil {
		return err
	}

	res.SetSize(head.Size)
	if err := res.SetRoot(head.Root[:]); err != nil {
		return err
	}

	list, err := res.NewRecords(int32(len(records)))
	if err != nil {
		return err
	}

	for i, r := range records {
		if err := setRecord(list.At(i), r); err != nil {
			return err
		}
	}

	return nil
}

func setRecord(to schema.AuditRecord, r ddf.AuditRecord) error {
	to.SetIndex(r.Index)
	to.SetTimeUnixNanos(r.Time.UnixNano())
	if err := to.SetKind(r.Kind); err != nil {
		return err
	}
	if err := to.SetTenant(r.Tenant); err != nil {
		return err
	}
	return to.SetDetail(r.Detail)
}

// Verify implements schema.HardwareAuditLog_Server.
func (s auditServer) Verify(_ context.Context, call schema.HardwareAuditLog_verify) error {
	head, err := s.own.Head()
	if err != nil {
		return err
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetOk(true)
	res.SetSize(head.Size)
	return nil
}
