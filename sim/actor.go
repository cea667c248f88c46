package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/manager"
	"capgpu/ring"
	"capgpu/ring/ringtest"
)

// driver is the process of a driver: a manager.Actor. It does the work of package
// driver, over calls.
//
//	starting ──► serving ──Kill, a crash point, Lost, Shutdown──► ended
type driver struct {
	w     *world
	role  manager.Role
	dieAt string        // the labelled point at which it dies; empty: none
	ended chan struct{} // its process is gone
	why   error         // read after ended
	once  sync.Once
	up    chan struct{} // it reads its link
	torn  chan struct{} // nothing of it runs any more

	mu       sync.Mutex
	device   *gpu.Device
	sessions map[string]*gpu.Session    // the newest of each tenant
	rings    map[uint32]*ringtest.Local // by the size of their arenas, which are all different
	thaw     chan struct{}              // not nil: stopped, until it is closed
}

// newDriver is an epoch's driver.
func (w *world) newDriver(role manager.Role) manager.Actor {
	d := &driver{w: w, role: role, ended: make(chan struct{}), up: make(chan struct{}), torn: make(chan struct{}), sessions: map[string]*gpu.Session{}, rings: map[uint32]*ringtest.Local{}}
	w.guarded.mu.Lock()
	d.dieAt, w.guarded.dieAt = w.guarded.dieAt, ""
	w.guarded.driver = d
	w.guarded.mu.Unlock()
	go d.run()
	return d
}

// at is a labelled point.
func (d *driver) at(label string) {
	if d.dieAt == label {
		d.w.hit(DriverKilled)
		d.end(errors.New("killed at " + label))
	}
}

func (d *driver) end(why error) {
	d.once.Do(func() {
		d.mu.Lock()
		d.why = why
		for _, l := range d.rings {
			l.Cut()
		}
		close(d.ended)
		d.mu.Unlock()
	})
}

func (d *driver) gone() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// current returns the newest driver; nil: there was none yet.
func (w *world) current() *driver {
	w.guarded.mu.Lock()
	defer w.guarded.mu.Unlock()
	return w.guarded.driver
}

// takeSession returns the newest session of a tenant, once; nil: there is none.
func (d *driver) takeSession(tenant string) *gpu.Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sessions[tenant]
	delete(d.sessions, tenant)
	return s
}

// run is the main loop.
func (d *driver) run() {
	defer close(d.torn)
	defer d.tearDown()
	time.Sleep(startTime)
	if d.at("driver.start"); d.gone() {
		return
	}

	limits := ledger.NoLimits()
	limits[ledger.DeviceMemory] = d.role.DMA.Usage().LimitBytes
	ban := banTime
	if d.w.mutant == MutantBansLong {
		ban = time.Hour
	}

	device, err := gpu.New(gpu.Config{
		Info: d.role.Device, Backend: &port{c: d.w.host.chip, dead: d.gone}, DMA: d.w.pool(d.role.DMA), Audit: d.role.Audit, Settle: d.settle, Limits: limits,
		Rings: d.newRing, Log: d.w.log, Strikes: gpu.StrikePolicy{Limit: strikeLimit, Window: strikeWindow, Ban: ban},
	})
	if err != nil {
		d.end(err)
		return
	}

	d.mu.Lock()
	d.device = device
	d.mu.Unlock()
	close(d.up)
	if d.at("driver.open.before-ready"); d.gone() {
		return
	}

	ready := control.ReadyRequest{Epoch: d.role.Device.Epoch, MemoryBytes: limits[ledger.DeviceMemory], Backend: "sim"}
	if err := d.role.Ask(context.Background(), &control.Message{Type: control.TypeReady, Body: ready.AppendTo(nil)}).Err(); err != nil {
		d.end(err)
		return
	}
	if d.at("driver.ready"); d.gone() {
		return
	}

	select {
	case <-d.ended:
	case <-device.Lost():
		time.Sleep(time.Millisecond) // everybody is informed before the sockets close
		d.end(device.Err())
	}
}

// tearDown ends the remains of a dead driver in this process. They must reach
// nothing.
func (d *driver) tearDown() {
	<-d.ended
	time.Sleep(afterlife)
	d.mu.Lock()
	device := d.device
	d.mu.Unlock()
	if device == nil {
		return
	}
	device.Gone("its driver is dead")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := device.Close(ctx); err != nil && d.w.mutant == NoMutant {
		d.w.violate("a driver's core does not come to zero: %v", err)
	}
}

const (
	startTime = 2600 * time.Microsecond // of a process
	reapTime  = 130 * time.Microsecond
	afterlife = 50 * time.Millisecond
)

// Kill implements manager.Actor.
func (d *driver) Kill() { d.end(errors.New("signal: killed")) }

// Wait implements manager.Actor.
func (d *driver) Wait() error {
	<-d.ended
	time.Sleep(reapTime)
	return d.why
}

// Done implements manager.Actor.
func (d *driver) Done() <-chan struct{} { return d.ended }

// Err implements manager.Actor.
func (d *driver) Err() error {
	if d.gone() {
		return errNoDriver
	}
	return nil
}

// Close implements manager.Actor: the link goes down, and a driver ends with it.
func (d *driver) Close() error {
	d.end(errors.New("the supervision link is down"))
	return nil
}

var errNoDriver = gpuerr.New(gpuerr.Disconnected, "the other side of the connection is gone")

// Call implements manager.Actor.
func (d *driver) Call(ctx context.Context, t control.MsgType, body []byte, _ []int) (*control.Message, error) {
	if d.gone() {
		return nil, errNoDriver
	}

	reply := make(chan *control.Message, 1)
	go func() {
		select {
		case <-d.up:
		case <-d.ended:
			return
		}

		d.mu.Lock()
		thaw := d.thaw
		d.mu.Unlock()
		if thaw != nil {
			select {
			case <-thaw:
			case <-d.ended:
				return
			}
		}

		m := &control.Message{Type: t, Body: body}
		out, err := d.answer(t, body)
		if d.gone() {
			return
		}
		if err != nil {
			reply <- control.ErrorReply(m, err)
			return
		}

		reply <- control.NewReply(m, out)
	}()

	select {
	case m := <-reply:
		if err := m.Err(); err != nil {
			return nil, err
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.ended:
		return nil, errNoDriver
	}
}

func (d *driver) answer(t control.MsgType, body []byte) ([]byte, error) {
	d.mu.Lock()
	device := d.device
	d.mu.Unlock()
	switch t {
	case control.TypeAttach:
		req, err := control.ParseAttachRequest(body)
		if err != nil {
			return nil, err
		}
		d.at("driver.attach.begun")
		s, err := device.OpenSession(gpu.Attach{
			ID: req.Session, Tenant: req.Tenant, TenantLimits: limitsOf(req.TenantLimits), Limits: limitsOf(req.SessionLimits),
			Facet: gpu.Facet(req.Facet), Weight: req.Weight, MaxDeadline: time.Duration(req.MaxDeadlineNanos), Programs: req.Programs,
		})
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		d.sessions[req.Tenant] = s
		d.mu.Unlock()
		d.at("driver.attach.before-reply")
		return nil, nil

	case control.TypeSetTenant:
		req, err := control.ParseSetTenantRequest(body)
		if err != nil {
			return nil, err
		}
		return nil, device.SetTenant(req.Tenant, gpu.TenantPolicy{Limits: limitsOf(req.Limits), Weight: req.Weight, MaxDeadline: time.Duration(req.MaxDeadlineNanos)})

	case control.TypeDeviceFault:
		req, err := control.ParseDeviceFaultRequest(body)
		if err != nil {
			return nil, err
		}
		device.Fault(gpu.Fault{IOVA: req.IOVA, Write: req.Access == control.FaultWrite, Count: req.Count, Reason: req.Reason})
		return nil, nil

	case control.TypeDeviceGone:
		req, err := control.ParseDeviceGoneRequest(body)
		if err != nil {
			return nil, err
		}
		device.Gone(req.Reason)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return nil, device.Close(ctx) // all sessions were informed

	case control.TypeDriverStatus:
		return []byte("{}"), nil
	case control.TypePing, control.TypeShutdown:
		return nil, nil
	}

	return nil, gpuerr.New(gpuerr.Unimplemented, "%v is no message to a driver", t)
}

func limitsOf(list []control.Limit) ledger.Limits {
	l := ledger.NoLimits()
	for _, x := range list {
		l[x.Class] = x.Amount
	}
	return l
}

// settle asks the manager for the faults up to now.
func (d *driver) settle(ctx context.Context) (time.Duration, error) {
	if d.gone() {
		return 0, errNoDriver
	}
	m := d.role.Ask(ctx, &control.Message{Type: control.TypeSettleFaults})
	if err := m.Err(); err != nil {
		return 0, err
	}
	r, err := control.ParseSettleFaultsReply(m.Body)
	return time.Duration(min(r.CompleteNanos, 1<<62)), err
}

// newRing makes the ring of a queue.
func (d *driver) newRing(cfg ring.Config) (*ring.Server, error) {
	l, err := ringtest.New(cfg, ringtest.Options{Late: d.w.late})
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rings[cfg.ArgBytes] = l
	return l.Server, nil
}
