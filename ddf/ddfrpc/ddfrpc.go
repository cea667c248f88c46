// Package ddfrpc is ddf over the guarded link to device-manager: the grants of a driver
// process.
//
// All slow operations go over the link as Cap'n Proto calls: allocating, freeing, masking,
// the audit log. All fast ones are local, on descriptors that came over the link: DMA memory
// and register windows are mappings, interrupts are eventfds. A window of hardware that the
// driver may not write freely has no mapping: each access of it is a call.
//
// Trust: the manager, which owns all of it, is trusted. Sizes and offsets are still checked,
// and memory to be sealed. The manager trusts nothing that is sent from here.
//
// The descriptor that the registers of hardware are mapped from is the device's, and
// lives for that moment only. A device may be unplugged at any time: an access of its
// registers then answers all ones, or is lost, and never ends the process.
//
// The end of the link is the revocation of every grant: when the manager closes it or dies,
// each method answers gpuerr.Revoked, waiters wake, and mappings stay (harmless: the manager
// has scrubbed the memory under them) until Free and Close. Nothing survives Close but
// buffers that were not freed.
//
// Parallel calls that clients cause are bounded here (calls.go), so that they never meet the
// link's own bounds: a Free never fails because of other requests.
//
// Locks: Window.mu and Vector.mu are leaves; neither is held across a call over the link. A
// buffer (ddf/dmabuf) holds across it only the lock that serialises Free with itself.
package ddfrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/internal/shm"
	"capgpu/schema"
)

// Bounds of a grant set that this side believes.
const (
	maxWindows   = 6 // memory BARs of a PCI function
	maxVectors   = 2048
	maxDoorbells = 4096
)

var errRevoked = gpuerr.New(gpuerr.Revoked, "the link to the device-manager is down and every grant with it; the driver must exit")

// Link is a driver's end of its grant link.
type Link struct {
	conn      *rpc.Conn
	transport *rpcguard.ClientTransport
	ctx       context.Context // ends with the link; its cause is errRevoked
	cancel    context.CancelCauseFunc
	watching  chan struct{} // closed when runWatch has returned

	asking, saying, killing chan struct{} // places for calls; see calls.go

	set     ddf.GrantSet
	windows []*Window
	vectors []*Vector
	engines openEngines
	release []func() // capabilities, in the order they came
	asked   []func() // answers that take has asked for; its own

	closeOnce sync.Once
	closeErr  error
}

// Dial takes the grants from the link. It takes ownership of c.
func Dial(ctx context.Context, c *net.UnixConn) (*Link, error) {
	t := rpcguard.NewClientTransport(c)
	l := &Link{
		transport: t, conn: rpc.NewConn(t, nil), watching: make(chan struct{}),
		asking: make(chan struct{}, maxAsking), saying: make(chan struct{}, maxSaying), killing: make(chan struct{}, maxKilling),
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	go l.runWatch()
	if err := l.take(ctx); err != nil {
		if err = l.mapped(err); errors.Is(err, gpuerr.Revoked) {
			err = gpuerr.New(gpuerr.Disconnected, "the grant set is missing: device-manager closed the grant link")
		}
		return nil, errors.Join(fmt.Errorf("take the grants from the device-manager: %w", err), l.Close())
	}
	return l, nil
}

// runWatch makes the end of the connection the end of the grants.
func (l *Link) runWatch() {
	defer close(l.watching)
	<-l.conn.Done()
	l.cancel(errRevoked)
}

// take asks for everything that the grant set names: at once, or in two round trips where
// the manager does not know of that. The first question lies ready for the manager in a
// driver that waits.
func (l *Link) take(ctx context.Context) error {
	ctx, done := l.within(ctx)
	defer done()
	grants := schema.DriverGrants(l.conn.Bootstrap(ctx))
	l.release = append(l.release, grants.Release)
	defer l.releaseAsked()
	f, release := grants.All(ctx, nil)
	defer release()
	res, err := f.Struct()
	switch {
	case errors.Is(rpcguard.FromException(err), gpuerr.Unimplemented):
		return l.takeEach(ctx, grants)
	case err != nil:
		return err
	}

	return l.takeAll(ctx, grants, res)
}

// takeEach asks for each part of the grant set.
func (l *Link) takeEach(ctx context.Context, grants schema.DriverGrants) error {
	f, release := grants.GrantSet(ctx, nil)
	defer release()
	finishPool := l.askPool(ctx, grants)
	res, err := f.Struct()
	if err != nil {
		return err
	}

	g, err := res.Grants()
	if err != nil {
		return err
	}
	if err := errors.Join(l.setGrants(g), l.setEngines(grants, g)); err != nil {
		return err
	}

	asked, err := l.askWindows(ctx, grants, g)
	if err != nil {
		return err
	}

	asked = append(asked, l.askVectors(ctx, grants, 0, g.Vectors())...)
	return finishAll(append([]func() error{finishPool}, asked...))
}

func finishAll(asked []func() error) error {
	for _, finish := range asked {
		if err := finish(); err != nil {
			return err
		}
	}
	return nil
}

// setGrants reads the description of the grant set.
func (l *Link) setGrants(g schema.GrantSet) (err error) {
	if l.set.Device, err = deviceInfo(g); err != nil {
		return err
	}
	if g.Vectors() > maxVectors {
		return gpuerr.New(gpuerr.Protocol, "%d vectors were granted; a function has at most %d", g.Vectors(), maxVectors)
	}
	l.set.LaunchRecords, l.set.DMABytes = g.LaunchRecords(), g.DmaBytes()
	return nil
}

func deviceInfo(g schema.GrantSet) (ddf.DeviceInfo, error) {
	d, err := g.Device()
	if err != nil {
		return ddf.DeviceInfo{}, err
	}

	name, err := d.Name()
	if err != nil {
		return ddf.DeviceInfo{}, err
	}

	address, err := d.PciAddress()
	if err != nil {
		return ddf.DeviceInfo{}, err
	}

	return ddf.DeviceInfo{
		Index: d.Index(), Name: name, PCIAddress: address, VendorID: d.VendorId(), DeviceID: d.DeviceId(),
		Epoch: d.Epoch(), Fake: g.Fake(),
	}, nil
}

// releaseAsked releases the answers. Grants that were taken from them stay.
func (l *Link) releaseAsked() {
	for i := len(l.asked) - 1; i >= 0; i-- {
		l.asked[i]()
	}
	l.asked = nil
}

// askPool asks for the DMA pool and the audit log, and returns what takes the answers.
func (l *Link) askPool(ctx context.Context, grants schema.DriverGrants) (finish func() error) {
	f, release := grants.DmaPool(ctx, nil)
	fl, releaseLog := grants.AuditLog(ctx, nil)
	l.asked = append(l.asked, release, releaseLog)
	return func() error {
		res, err := f.Struct()
		if err != nil {
			return fmt.Errorf("DMA pool: %w", err)
		}
		l.setPool(res.Pool())
		resLog, err := fl.Struct()
		if err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		l.setLog(resLog.Log())
		return nil
	}
}

func (l *Link) setPool(pool schema.DMAPool) {
	pool = pool.AddRef()
	l.release = append(l.release, pool.Release)
	l.set.DMA = &Pool{link: l, remote: pool}
}

func (l *Link) setLog(log schema.HardwareAuditLog) {
	log = log.AddRef()
	l.release = append(l.release, log.Release)
	l.set.Audit = &auditLog{link: l, remote: log}
}

// askWindows asks for all windows, and returns what takes each.
func (l *Link) askWindows(ctx context.Context, grants schema.DriverGrants, g schema.GrantSet) (asked []func() error, err error) {
	list, err := l.windowList(g)
	if err != nil {
		return nil, err
	}

	for i := range list.Len() {
		m := list.At(i)
		take, err := l.askWindow(ctx, grants, m)
		if err != nil {
			return nil, fmt.Errorf("window of BAR %d: %w", m.Bar(), err)
		}
		asked = append(asked, func() error {
			w, err := take()
			if err != nil {
				return fmt.Errorf("window of BAR %d: %w", m.Bar(), err)
			}
			l.addWindow(w)
			return nil
		})
	}

	return asked, nil
}

// windowList returns the windows of the set, and bounds their number.
func (l *Link) windowList(g schema.GrantSet) (schema.MmioWindow_List, error) {
	list, err := g.Mmio()
	if err != nil {
		return list, err
	}
	if list.Len() > maxWindows {
		return list, gpuerr.New(gpuerr.Protocol, "%d windows were granted; a function has at most %d BARs", list.Len(), maxWindows)
	}
	l.set.Mmio = make(map[int]ddf.DeviceMmio, list.Len())
	return list, nil
}

func (l *Link) addWindow(w *Window) {
	l.windows = append(l.windows, w)
	l.set.Mmio[int(w.bar)] = w
}

// memory takes the descriptor that came with a capability.
func (l *Link) memory(c schema.SharedMemory) (fd int, err error) {
	fd, ok := l.transport.TakeFD(capnp.Client(c))
	if !ok {
		// The kernel leaves out descriptors for which a process has no free number (unix(7),
		// SCM_RIGHTS).
		return -1, gpuerr.New(gpuerr.IO, "no descriptor came with memory; the driver may have none free: close other objects and try again")
	}
	return fd, nil
}

// within is ctx, ended by the link as well.
func (l *Link) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(errRevoked) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// mapped maps the error of a call to this package's errors.
func (l *Link) mapped(err error) error {
	if err == nil {
		return nil
	}
	if l.ctx.Err() != nil {
		return errRevoked
	}
	err = rpcguard.FromException(err)
	if errors.Is(err, gpuerr.Disconnected) {
		return errRevoked
	}
	return err
}

// GrantSet returns the driver's grants. They are valid until Close.
func (l *Link) GrantSet() ddf.GrantSet { return l.set }

// Done is closed when the link has died.
func (l *Link) Done() <-chan struct{} { return l.ctx.Done() }

// Close ends the link and with it every grant. Idempotent.
func (l *Link) Close() error {
	l.closeOnce.Do(func() {
		l.cancel(errRevoked)
		for i := len(l.release) - 1; i >= 0; i-- {
			l.release[i]()
		}
		_ = l.conn.Close() // an error means that the other side was first
		<-l.watching
		l.closeEngines()
		var errs []error
		for _, w := range l.windows {
			errs = append(errs, w.Close())
		}
		for _, v := range l.vectors {
			errs = append(errs, v.event.Close())
		}
		l.closeErr = errors.Join(errs...)
	})
	return l.closeErr
}

// event takes an eventfd. A driver has no /proc to look it up in.
func (l *Link) event(c schema.SharedMemory) (*shm.Interrupt, error) {
	fd, err := l.memory(c)
	if err != nil {
		return nil, err
	}
	return shm.InterruptFromManager(fd)
}
