// Package driver is the main loop of a driver process, shared by gpu-mock and
// gpu-service: it takes the two links that device-manager gives it, opens a
// backend on the grants, and serves the sessions that the manager attaches.
//
//	fd 3  supervision link  Ready, SettleFaults, Recovery ──►
//	                        ◄── Attach, Ping, DriverStatus, SetTenant, EndSessions, DeviceFault, DeviceGone, Shutdown
//	fd 4  grant link        memory, registers, interrupts, audit log (ddf/ddfrpc)
//
// Who is trusted: the manager, on both links. Clients are not; what they send is
// for driver/session and the core to check. The process has no authority but
// these two descriptors, and ends when either link does: a driver without a
// manager has no grants. Whatever takes the device away, its sessions end as
// deviceLost before the process does.
//
// Locks: driver.mu is a leaf; it guards the registration of sessions against the
// shutdown.
//
// Nothing survives Run: sessions are dismantled, the device is closed and both
// links are down when it returns.
package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/control"
	"capgpu/ddf"
	"capgpu/gpu"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/sandbox"
	"capgpu/ledger"
)

// Options is what a driver program decides: its backend and where it logs.
type Options struct {
	// Open makes the backend for a function, or refuses it with a typed reason.
	// The core closes what it returns.
	Open func(ddf.GrantSet) (backend.Backend, error)
	// Rehearse is what the driver does while it waits for its grants, so that the first
	// session finds nothing cold (package rehearsal). It ends when its context does. nil: it
	// only waits.
	Rehearse func(context.Context) error
	Log      *slog.Logger // nil: nowhere
	// StateVersion is that of the state which it tells and takes in a live upgrade; 0:
	// gpu.ImageVersion. For tests.
	StateVersion uint32
}

const (
	startTimeout = 10 * time.Second // Ready
	closeTimeout = 10 * time.Second // of the device, at the end

	// maxAttaching is how many Attach requests are answered at once. Opening a
	// session waits while the audit log is behind; of the 64 requests that a link
	// carries, the rest is for what must never wait: a Ping, a Shutdown.
	maxAttaching = 32

	goodbyeTimeout = 2 * time.Second // between our answer to Shutdown and the end of the link
)

// rehearsalGC is the GOGC of a rehearsal: nobody waits for it, and its garbage is not kept.
const rehearsalGC = 20

// driver is one running driver.
type driver struct {
	device *gpu.Device
	pool   ddf.DMAPool
	log    *slog.Logger
	ctx    context.Context // of the sessions
	link   atomic.Pointer[control.Caller]

	attaching atomic.Int32 // Attach requests being answered
	upgrade   upgrade      // see upgrade.go

	mu sync.Mutex
	// +checklocks:mu
	closing  bool // no session is attached any more
	sessions sync.WaitGroup
}

// Run serves the device until ctx ends, the manager says Shutdown, or a link
// dies; only the last is an error.
func Run(ctx context.Context, o Options) error {
	links, err := inherit()
	if err != nil {
		return err
	}
	if err := sandbox.Enter(sandbox.Driver, o.Log); err != nil {
		return errors.Join(err, links.close())
	}
	return run(ctx, o, links)
}

func run(ctx context.Context, o Options, links *links) (err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	defer func() { err = errors.Join(err, links.close()) }()

	crashpoint.Here("driver.start.confined")
	stopRehearsal, rehearsed := o.rehearse(ctx)
	defer rehearsed()
	// However long it takes: a standby is given its grants when the driver before it is
	// dead. Without a manager the link ends.
	grants, err := links.dialGrants(ctx)
	stopRehearsal()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, grants.Close()) }()

	set := grants.GrantSet()
	crashpoint.Here("driver.start.granted")
	sessionCtx, endSessions := context.WithCancelCause(context.Background())
	d := &driver{log: o.Log, ctx: sessionCtx, pool: set.DMA}
	d.upgrade.version = cmp.Or(o.StateVersion, gpu.ImageVersion)
	ready, err := d.openDevice(o, set)
	if err != nil {
		endSessions(nil)
		return err
	}
	defer func() {
		endSessions(gpuerr.New(gpuerr.Disconnected, "the driver is shutting down"))
		err = errors.Join(err, d.close())
	}()

	shutdown := make(chan struct{})
	var once sync.Once
	caller := control.NewPeer(ctx, links.takeSupervision(), d.handler(func() { once.Do(func() { close(shutdown) }) }))
	defer caller.Close()
	d.link.Store(caller)
	crashpoint.Here("driver.start.opened")
	startCtx, cancelStart := context.WithTimeout(ctx, startTimeout)
	defer cancelStart()
	if err := sayReady(startCtx, caller, ready); err != nil {
		return err
	}
	crashpoint.Here("driver.start.ready")
	telling, endTelling := context.WithCancel(ctx)
	var told sync.WaitGroup
	told.Go(func() { d.runRecovery(telling, caller) })
	defer told.Wait()
	defer endTelling()
	o.Log.Info("serving", "device", set.Device.Name, "epoch", set.Device.Epoch)
	select {
	case <-ctx.Done():
		return nil
	case <-shutdown:
		awaitGoodbye(caller)
		return nil
	case <-d.device.Lost():
	case <-grants.Done():
		d.device.Gone("the grant link to device-manager is down; without it there is no device to serve")
	case <-caller.Done():
		select {
		case <-shutdown: // the manager closes the link once it has the answer
			return nil
		default:
			d.device.Gone(fmt.Sprintf("the supervision link to device-manager is down: %v", caller.Err()))
		}
	}
	// Everybody is told that before the sockets close.
	return errors.Join(fmt.Errorf("the device is lost: %w", d.device.Err()), d.close())
}

// rehearse rehearses until stop is called; ended returns when nothing of it runs.
func (o *Options) rehearse(ctx context.Context) (stop, ended func()) {
	if o.Rehearse == nil {
		return func() {}, func() {}
	}
	ctx, stop = context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		// What it leaves is garbage. Memory that the process has not needed yet has not to be
		// taken down by the kernel when it dies, while everybody waits for the next one.
		before := debug.SetGCPercent(rehearsalGC)
		defer debug.SetGCPercent(before)
		if err := o.Rehearse(ctx); err != nil && ctx.Err() == nil {
			o.Log.Warn("the rehearsal failed", "err", err)
		}
	})
	return stop, running.Wait
}

// awaitGoodbye waits until the manager, having read the answer to its Shutdown,
// closes the link.
func awaitGoodbye(caller *control.Caller) {
	timer := time.NewTimer(goodbyeTimeout)
	defer timer.Stop()
	select {
	case <-caller.Done():
	case <-timer.C:
	}
}

// openDevice opens backend and core, and says what to tell the manager.
func (d *driver) openDevice(o Options, set ddf.GrantSet) (control.ReadyRequest, error) {
	var ready control.ReadyRequest
	b, err := o.Open(set)
	if err != nil {
		return ready, fmt.Errorf("open %s: %w", set.Device.Name, err)
	}
	limits := ledger.NoLimits()
	limits[ledger.DeviceMemory] = set.DMALimit()
	ready = control.ReadyRequest{Epoch: set.Device.Epoch, MemoryBytes: limits[ledger.DeviceMemory], Backend: b.Info().Name}
	d.device, err = gpu.New(gpu.Config{Info: set.Device, Backend: b, DMA: set.DMA, Audit: set.Audit, LaunchRecords: set.LaunchRecords, Settle: d.settle, Limits: limits, Log: o.Log})
	if err != nil {
		return ready, fmt.Errorf("start the core on %s: %w", set.Device.Name, err)
	}
	return ready, nil
}

func sayReady(ctx context.Context, caller *control.Caller, ready control.ReadyRequest) error {
	if _, err := caller.Call(ctx, control.TypeReady, ready.AppendTo(nil), nil); err != nil {
		return fmt.Errorf("tell device-manager that the device is ready: %w", err)
	}
	return nil
}

// handler answers the manager.
func (d *driver) handler(shutdown func()) control.Handler {
	return func(ctx context.Context, m *control.Message) *control.Message {
		defer m.CloseFDs()
		body, err := []byte(nil), error(nil)
		switch m.Type {
		case control.TypeAttach:
			err = d.attach(m)
		case control.TypeDriverStatus:
			body, err = d.status(m)
		case control.TypeSetTenant:
			err = d.setTenant(m)
		case control.TypeEndSessions:
			body, err = d.endSessions(m)
		case control.TypeDeviceFault:
			err = d.fault(m)
		case control.TypeDeviceGone:
			err = d.gone(m)
		case control.TypePing:
			err = d.device.Short()
		case control.TypeHandover:
			body, err = d.handover(ctx, m)
		case control.TypeTakeOver:
			body, err = d.takeOver(ctx, m)
		case control.TypeGo:
			err = d.goOn()
		case control.TypeFreeze:
			err = d.suspend(ctx, m)
		case control.TypeThaw:
			err = d.thawAt(m.Seq)
		case control.TypePreempt:
			body = d.preempt()
		case control.TypeShutdown:
			if err = d.shutDown(); err == nil {
				defer shutdown()
			}
		default:
			err = gpuerr.New(gpuerr.Unimplemented, "%v is no message of the supervision link to a driver", m.Type)
		}
		if err != nil {
			return control.ErrorReply(m, err)
		}
		return control.NewReply(m, body)
	}
}

// attach opens a session and serves it on the socket that came along.
func (d *driver) attach(m *control.Message) error {
	defer d.attaching.Add(-1)
	if d.attaching.Add(1) > maxAttaching {
		return gpuerr.New(gpuerr.Busy, "%d sessions are being opened already; try again", maxAttaching)
	}
	req, err := control.ParseAttachRequest(m.Body)
	if err != nil {
		return err
	}
	if err := d.beginSession(); err != nil {
		return err
	}
	crashpoint.Here("driver.attach.received")
	session, err := d.device.OpenSession(gpu.Attach{
		ID:           req.Session,
		Tenant:       req.Tenant,
		TenantLimits: limitsOf(req.TenantLimits),
		Limits:       limitsOf(req.SessionLimits),
		Facet:        gpu.Facet(req.Facet),
		Weight:       req.Weight,
		MaxDeadline:  deadlineOf(req.MaxDeadlineNanos),
		Programs:     req.Programs,
	})
	if err != nil {
		d.sessions.Done()
		return err
	}
	conn, err := control.NewConn(m.FDs[0], control.ConnOptions{})
	m.FDs = nil // the Conn's, also when it failed
	if err != nil {
		d.sessions.Done()
		return errors.Join(err, session.Close())
	}
	crashpoint.Here("driver.attach.opened")
	go d.runSession(req.Session, req.Tenant, conn, session)
	return nil
}

// beginSession counts a session, unless the device is closing.
func (d *driver) beginSession() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return gpuerr.New(gpuerr.Busy, "the driver is shutting down; open the device again")
	}
	d.sessions.Add(1)
	return nil
}

func (d *driver) runSession(id uint64, tenant string, conn *control.Conn, s *gpu.Session) {
	defer d.sessions.Done()
	err := d.upgrade.hub.Serve(d.ctx, conn, s)
	d.log.Debug("session ended", "session", id, "tenant", tenant, "why", err)
}

func (d *driver) status(m *control.Message) ([]byte, error) {
	req, err := control.ParseDriverStatusRequest(m.Body)
	if err != nil {
		return nil, err
	}
	status := d.device.Status(req.Tenant)
	crashpoint.Here("driver.status.read")
	body, err := json.Marshal(status)
	if err != nil {
		return nil, gpuerr.New(gpuerr.Internal, "describe the device: %v", err)
	}
	// More sessions than fit are cut from the end; the budgets stay whole.
	for len(body) > maxStatusBytes && halveSessions(&status) {
		if body, err = json.Marshal(status); err != nil {
			return nil, gpuerr.New(gpuerr.Internal, "describe the device: %v", err)
		}
	}
	if len(body) > maxStatusBytes {
		return nil, gpuerr.New(gpuerr.Busy, "the status has %d bytes, more than a message; ask for one tenant", len(body))
	}
	return body, nil
}

const maxStatusBytes = control.MaxLongBytes - control.HeaderBytes

// halveSessions reports whether there was something to leave out.
func halveSessions(s *gpu.Status) (some bool) {
	for i := range s.Tenants {
		t := &s.Tenants[i]
		some = some || len(t.Sessions) > 0
		t.Sessions = t.Sessions[:len(t.Sessions)/2]
	}
	return some
}

// shutDown is close, when the manager says so.
func (d *driver) shutDown() error {
	crashpoint.Here("driver.shutdown.begun")
	err := d.close()
	crashpoint.Here("driver.shutdown.closed")
	return err
}

// close ends every session and the device, and returns when all is dismantled, or
// with an error after closeTimeout.
func (d *driver) close() error {
	d.upgrade.mu.Lock() // a step that is under way is over then
	adopts := d.upgrade.adopts.Load()
	d.upgrade.mu.Unlock()
	if adopts {
		return nil // what it has is another driver's: nothing of it is dismantled here
	}
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// A device that stands still ends so, and begins nothing of what waits; then its
	// sessions hear of it.
	return errors.Join(d.device.Close(ctx), d.thaw(), d.awaitSessions(ctx))
}

// awaitSessions waits until no session is served. One that a client keeps in the
// kernel (a descriptor whose close never returns) is left to the process's end.
func (d *driver) awaitSessions(ctx context.Context) error {
	served := make(chan struct{})
	go func() {
		defer close(served)
		d.sessions.Wait()
	}()
	select {
	case <-served:
		return nil
	case <-ctx.Done():
		return gpuerr.New(gpuerr.Busy, "sessions are still being served after %v; the driver exits without them", closeTimeout)
	}
}
