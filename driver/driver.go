// Package driver is the main loop of a driver process, shared by gpu-mock and
// gpu-service: it takes the two links that device-manager gives it, opens a
// backend on the grants, and serves the sessions that the manager attaches.
//
//	fd 3  supervision link  Ready, SettleFaults, Recovery ──►
//	                        ◄── Attach, Ping, DriverStatus, SetTenant, EndSessions, DeviceFault, DeviceGone, Shutdown
//	fd 4  grant link        memory, registers, interrupts, audit log (ddf/ddfrpc)
//
// Trust: the manager is trusted on both links. Clients are not; driver/session and
// the core check everything that they send. These two descriptors are the only
// authority of the process. It ends when either link does, because a driver without
// a manager has no grants. Whenever the device is lost, its sessions end as
// deviceLost before the process exits.
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
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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

// Options are the choices of a driver program: its backend and its log.
type Options struct {
	// Open makes the backend for a function, or refuses it with a typed reason. The
	// core closes the backend.
	Open func(ddf.GrantSet) (backend.Backend, error)
	// Rehearse runs while the driver waits for its grants, so that the first
	// session finds code and memory warm (package rehearsal). It ends when its
	// context does. nil: the driver only waits.
	Rehearse func(context.Context) error
	Log      *slog.Logger // nil: nowhere
	// StateVersion is the version of the state that the driver sends and accepts in
	// a live upgrade; 0: gpu.SnapshotVersion. It is for tests.
	StateVersion uint32
}

const (
	startTimeout = 10 * time.Second // Ready
	closeTimeout = 10 * time.Second // of the device, at the end

	// maxAttaching is the number of Attach requests answered at once. Opening a
	// session waits while the audit log is behind. A link carries 64 requests; the
	// others are reserved for messages that must never wait, such as Ping and
	// Shutdown.
	maxAttaching = 32

	goodbyeTimeout = 2 * time.Second // between our answer to Shutdown and the end of the link
)

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

// Run serves the device until ctx ends, the manager sends Shutdown, or a link dies.
// Only the last is an error.
func Run(ctx context.Context, o Options) error {
	// The reactor sleeps in a system call and keeps a processor of the runtime there; others
	// would wait for it until the runtime looks, which is 20 µs to 10 ms. So there is one more
	// for it, and one that is idle, without which the runtime looks every 20 µs.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 2)
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

	// There is no time limit: a standby gets its grants when the driver before it
	// is dead. If the manager dies, the link ends.
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
	d.upgrade.version = cmp.Or(o.StateVersion, gpu.SnapshotVersion)
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

	if err := reportReady(startCtx, caller, ready); err != nil {
		return err
	}

	crashpoint.Here("driver.start.ready")
	reporting, endReporting := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	reporter.Go(func() { d.runRecovery(reporting, caller) })
	defer reporter.Wait()
	defer endReporting()

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

	// All sessions learn of the loss before the sockets close.
	return errors.Join(fmt.Errorf("the device is lost: %w", d.device.Err()), d.close())
}

// awaitGoodbye waits until the manager closes the link, which it does after it has
// read the answer to its Shutdown.
func awaitGoodbye(caller *control.Caller) {
	timer := time.NewTimer(goodbyeTimeout)
	defer timer.Stop()
	select {
	case <-caller.Done():
	case <-timer.C:
	}
}

// openDevice opens the backend and the core, and returns the report for the
// manager.
func (d *driver) openDevice(o Options, set ddf.GrantSet) (control.ReadyRequest, error) {
	var ready control.ReadyRequest
	b, err := o.Open(set)
	if err != nil {
		return ready, fmt.Errorf("open %s: %w", set.Device.Name, err)
	}
	limits := ledger.NoLimits()
	limits[ledger.DeviceMemory] = set.DMALimit()
	if local := b.Info().LocalBytes; local > 0 {
		limits[ledger.DeviceMemory], limits[ledger.HostMemory] = local, set.DMALimit()
	}

	ready = control.ReadyRequest{Epoch: set.Device.Epoch, MemoryBytes: limits[ledger.DeviceMemory], Backend: b.Info().Name}
	d.device, err = gpu.New(gpu.Config{Info: set.Device, Backend: b, DMA: set.DMA, Audit: set.Audit, LaunchRecords: set.LaunchRecords, Settle: d.settle, Limits: limits, Log: o.Log})
	if err != nil {
		return ready, fmt.Errorf("start the core on %s: %w", set.Device.Name, err)
	}
	return ready, nil
}

func reportReady(ctx context.Context, caller *control.Caller, ready control.ReadyRequest) error {
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
			err = d.resumeAdopted()
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

// shutDown closes the driver on the manager's request.
func (d *driver) shutDown() error {
	crashpoint.Here("driver.shutdown.begun")
	err := d.close()
	crashpoint.Here("driver.shutdown.closed")
	return err
}

// close ends every session and the device. It returns when everything is
// dismantled, or with an error after closeTimeout.
func (d *driver) close() error {
	d.upgrade.mu.Lock() // waits for a step that is under way
	adopts := d.upgrade.adopts.Load()
	d.upgrade.mu.Unlock()
	if adopts {
		return nil // everything here still belongs to another driver, so nothing is dismantled
	}
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// A frozen device closes as it is and starts none of the waiting work. Then its
	// sessions resume, so that they learn of the end.
	return errors.Join(d.device.Close(ctx), d.thaw(), d.awaitSessions(ctx))
}

// awaitSessions waits until no session is served. A session that a client keeps in
// the kernel (by a descriptor with a close that never returns) is left to the end
// of the process.
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
