package manager

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/server"

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
	g.SetEngines(mostEngines(s.function))
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
