package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// The fake function.
const (
	deviceIndex = 0
	deviceName  = "mock0"
	fakeVendor  = 0x1de5
	fakeDevice  = 0x0001
)

// device is one function with its drivers, one after the other.
type device struct {
	cfg     *Config
	log     *slog.Logger
	say     func(format string, args ...any)
	audit   AuditLog
	ledger  *ledger.Ledger
	account *ledger.Account // of the function; each epoch has one below it
	spawner *spawner
	board   *stateBoard
	tenants func() []*Tenant // the policy of each, as it is now; always in the same order

	shares   *auditShares  // of what drivers may have recorded; a death refills none
	sessions atomic.Uint64 // numbers of Attach
	asking   turnstile     // for what tenants have us ask the driver

	stop context.CancelFunc // ends runSupervise
	done chan struct{}      // closed when it has returned
	left error              // what could not be ended of the last driver; read it after done
}

func newDevice(m *Manager) (*device, error) {
	limits := ledger.NoLimits()
	limits[ledger.DeviceMemory] = m.cfg.Policy.Device.MemoryBytes
	entries, err := affordableEntries(m.cfg.Policy)
	if err != nil {
		return nil, err
	}
	if entries < m.cfg.Policy.Device.IOVAEntries {
		m.log.Warn("fewer mappings than the policy says: raise the limit of open files", "iovaEntries", entries)
	}
	limits[ledger.IOVAEntries] = entries
	account, err := m.ledger.Root().Child(deviceName, limits)
	if err != nil {
		return nil, err
	}
	return &device{
		cfg: &m.cfg, log: m.log.With("device", deviceName), say: m.say, audit: m.audit,
		ledger: m.ledger, account: account, spawner: m.spawner, board: newStateBoard(), done: make(chan struct{}),
		asking: newTurnstile(maxAsking), tenants: m.policies,
	}, nil
}

// start begins supervising. Close ends it.
func (d *device) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.shares = newAuditShares(d.cfg.Policy.Audit.DriverBytes, d.tenants())
	go d.runSupervise(ctx)
}

// Close lets the driver shut down within ctx, then ends it, and returns when
// nothing of the device is left, or with what could not be ended in time.
func (d *device) Close(ctx context.Context) error {
	if s, _ := d.board.get(); s.link != nil {
		if _, err := s.link.call(ctx, control.TypeShutdown, nil, nil); err != nil {
			d.log.Warn("the driver did not shut down by itself", "err", err)
		}
	}
	d.stop()
	<-d.done
	err := d.left
	if e := d.account.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("close the books of %s: %w", deviceName, e))
	}
	return err
}

// runSupervise keeps a driver running until ctx ends or the budget is spent.
func (d *device) runSupervise(ctx context.Context) {
	defer close(d.done)
	respawn := backoff{policy: d.cfg.Policy.Device.Respawn}
	for epoch := uint64(1); ; epoch++ {
		wasReady, cause := d.runEpoch(ctx, epoch)
		if errors.As(cause, new(*remains)) {
			// Never two drivers of one function.
			d.left = cause
			d.wedge(epoch, fmt.Errorf("%w: nothing can use the device while that process is there; find out what it waits for (/proc/PID/task/*/stack) and restart device-manager", cause))
			return
		}
		if ctx.Err() != nil {
			d.board.update(func(s *snapshot) { s.state, s.link, s.cause = recovering, nil, "device-manager is stopping" })
			return
		}
		delay, again := respawn.died(time.Now(), wasReady)
		if !again {
			p := d.cfg.Policy.Device.Respawn
			d.wedge(epoch, fmt.Errorf("%w; given up after more than %d deaths before ready within %v: remove the reason and restart device-manager", cause, p.Budget, p.Window))
			return
		}
		d.lost(epoch, cause, delay)
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// lost tells everybody that the driver of an epoch is gone, and another one comes.
func (d *device) lost(epoch uint64, cause error, delay time.Duration) {
	if s, _ := d.board.get(); s.cause != clipped(cause.Error()) {
		d.board.update(func(s *snapshot) { s.link, s.cause = nil, clipped(cause.Error()) })
	}
	d.say("device %s lost (epoch %d): %v; next driver in %v", deviceName, epoch, cause, delay)
	d.log.Warn("driver lost", "epoch", epoch, "cause", cause, "delay", delay)
}

// wedge gives the device up.
func (d *device) wedge(epoch uint64, cause error) {
	d.board.update(func(s *snapshot) { s.state, s.link, s.cause = wedged, nil, clipped(cause.Error()) })
	d.say("device %s wedged: %v", deviceName, cause)
	d.log.Warn("wedged", "epoch", epoch, "cause", cause)
	d.record("device.wedged", fmt.Sprintf("%s epoch=%d cause=%q", deviceName, epoch, clipped(cause.Error())))
}

// runEpoch runs one driver from spawn to the last page scrubbed, and returns why
// it ended, and whether it had become ready.
func (d *device) runEpoch(ctx context.Context, epoch uint64) (wasReady bool, cause error) {
	account, err := d.account.Child(fmt.Sprintf("epoch-%d", epoch), d.epochLimits())
	if err != nil {
		return false, err
	}
	g, err := newGrants(d.info(epoch), account, d.audit, d.shares, d.log)
	if err != nil {
		return false, fmt.Errorf("make the grants: %w", err)
	}
	var left *remains
	defer func() {
		freed, err := g.revoke(left != nil && left.grantsRun)
		err = errors.Join(err, d.ledger.Check())
		if left == nil || !left.grantsRun {
			err = errors.Join(err, d.account.Zero())
		}
		if err != nil {
			d.log.Error("the driver's grants did not come back whole", "epoch", epoch, "err", err)
		}
		sessions := d.recordLost(epoch, g.sessions, cause)
		d.record("driver.end", fmt.Sprintf("%s epoch=%d freed=%d windows=%d vectors=%d sessions=%d cause=%q",
			deviceName, epoch, freed, len(fakeWindows), fakeVectors, sessions, clipped(cause.Error())))
	}()
	// A driver without a record of its grants is not started.
	if _, err := d.audit.Append("driver.start", "", fmt.Sprintf("%s epoch=%d path=%s", deviceName, epoch, d.cfg.DriverPath)); err != nil {
		return false, fmt.Errorf("write the audit log: %w", err)
	}
	link, err := d.startDriver(g)
	if err != nil {
		return false, err
	}
	// Sessions are refused before the driver is taken down, and waiters told.
	defer func() {
		patience, stopping := d.cfg.ReapTimeout, ctx.Err() != nil
		if stopping {
			patience = min(patience, stopPatience)
		}
		if errors.As(link.end(d.log, stopping, patience), &left) {
			cause = fmt.Errorf("%w (%w)", left, cause)
		}
	}()
	if err := d.awaitReady(ctx, link); err != nil {
		return false, err
	}
	return true, d.watchDriver(ctx, link)
}

// awaitReady waits for the driver's Ready and makes the device ready.
func (d *device) awaitReady(ctx context.Context, l *driverLink) error {
	timer := time.NewTimer(d.cfg.ReadyTimeout)
	defer timer.Stop()
	select {
	case r := <-l.ready:
		tenants := d.tenants()
		if err := d.tellLimits(ctx, l, tenants); err != nil {
			return err
		}
		d.board.update(func(s *snapshot) {
			s.state, s.epoch, s.cause, s.link = ready, l.epoch, "", l
			s.backend, s.memoryBytes = clipped(r.Backend), min(r.MemoryBytes, d.cfg.Policy.Device.MemoryBytes)
		})
		d.say("device %s ready (epoch %d, driver pid %d)", deviceName, l.epoch, l.child.pid())
		d.log.Info("ready", "epoch", l.epoch, "pid", l.child.pid())
		d.record("driver.ready", fmt.Sprintf("%s epoch=%d pid=%d", deviceName, l.epoch, l.child.pid()))
		// What changed meanwhile was not told to a driver that was not ready. If it
		// fails now, watchDriver sees why.
		if err := d.tellLimits(ctx, l, changed(tenants, d.tenants())); err != nil {
			d.log.Warn("tell the driver of new limits", "err", err)
		}
		return nil
	case <-l.child.exited:
		return fmt.Errorf("the driver died before it was ready: %w", l.child.err)
	case <-l.caller.Done():
		return l.exitedOr(fmt.Errorf("the driver's supervision link failed before it was ready: %w", l.caller.Err()))
	case <-l.grantsDone:
		return l.exitedOr(fmt.Errorf("the driver's grant link ended before it was ready: %w", orClosed(l.grantsErr)))
	case <-timer.C:
		return fmt.Errorf("the driver was not ready after %v", d.cfg.ReadyTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *device) watchDriver(ctx context.Context, l *driverLink) error {
	err := l.watch(ctx, d.cfg.PingInterval, d.cfg.PingTimeout)
	if ctx.Err() == nil {
		// At once, before the process is reaped and its memory scrubbed.
		d.board.update(func(s *snapshot) { s.state, s.link, s.cause = recovering, nil, clipped(err.Error()) })
	}
	return err
}

func (d *device) epochLimits() ledger.Limits {
	l := ledger.NoLimits()
	l[ledger.DeviceMemory] = d.cfg.Policy.Device.MemoryBytes
	l[ledger.IOVAEntries] = limitOf(d.account, ledger.IOVAEntries)
	return l
}

func (d *device) info(epoch uint64) ddf.DeviceInfo {
	return ddf.DeviceInfo{Index: deviceIndex, Name: deviceName, VendorID: fakeVendor, DeviceID: fakeDevice, Epoch: epoch, Fake: true}
}

// record writes what has happened already: it cannot be refused any more.
func (d *device) record(kind, detail string) { d.recordOf("", kind, detail) }

func (d *device) recordOf(tenant, kind, detail string) {
	if _, err := d.audit.Append(kind, tenant, detail); err != nil {
		d.log.Error("write the audit log", "kind", kind, "err", err)
	}
}

// recordLost records, for each tenant, how many sessions ended with their driver,
// and returns how many that are in all.
func (d *device) recordLost(epoch uint64, sessions *tally, cause error) (total int) {
	byTenant, total := sessions.left()
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		d.recordOf(tenant, "session.lost", fmt.Sprintf("%s epoch=%d sessions=%d cause=%q", deviceName, epoch, byTenant[tenant], clipped(cause.Error())))
	}
	return total
}

// describe is the device as a tenant sees it.
func (d *device) describe(t *Tenant) control.DeviceInfo {
	s, _ := d.board.get()
	memory := s.memoryBytes
	if memory == 0 {
		memory = d.cfg.Policy.Device.MemoryBytes
	}
	return control.DeviceInfo{
		Index: deviceIndex, State: uint32(s.state), Epoch: s.epoch, MemoryBytes: memory,
		VendorID: fakeVendor, DeviceID: fakeDevice, Facet: t.Facet, Name: deviceName, Backend: s.backend,
	}
}

// live is the driver that takes sessions now, or why there is none.
func (d *device) live() (*driverLink, error) {
	s, _ := d.board.get()
	switch s.state {
	case ready:
		return s.link, nil
	case wedged:
		return nil, gpuerr.New(gpuerr.DeviceLost, "device %s: %s", deviceName, s.cause)
	case recovering:
		return nil, gpuerr.New(gpuerr.Busy, "device %s is recovering (%s); wait for its next state and open it again", deviceName, s.cause)
	default:
		return nil, gpuerr.New(gpuerr.Busy, "device %s is starting; wait for its next state and open it then", deviceName)
	}
}

// attach opens a session for a tenant and returns the client's end of its
// control socket.
func (d *device) attach(ctx context.Context, t *Tenant) (epoch uint64, fd int, err error) {
	l, err := d.live()
	if err != nil {
		return 0, -1, err
	}
	// Recorded before it exists: no session without a record.
	id := d.sessions.Add(1)
	_, err = d.audit.Append("session.attach", t.Name, fmt.Sprintf("%s epoch=%d session=%d facet=%s", deviceName, l.epoch, id, facetNames[t.Facet]))
	if err != nil {
		return 0, -1, gpuerr.New(gpuerr.IO, "the audit log cannot be written, so no session is opened: %v", err)
	}
	l.sessions.begin(id, t.Name)
	defer func() {
		if err != nil {
			l.sessions.end(id)
			d.recordOf(t.Name, "session.refused", fmt.Sprintf("%s epoch=%d session=%d cause=%q", deviceName, l.epoch, id, clipped(err.Error())))
		}
	}()
	ours, theirs, err := shm.Socketpair()
	if err != nil {
		return 0, -1, err
	}
	defer unix.Close(theirs) // sent, or of no use
	req := control.AttachRequest{
		Session: id, Tenant: t.Name, Facet: t.Facet, Weight: t.Weight,
		MaxDeadlineNanos: uint64(t.MaxDeadline), TenantLimits: wireLimits(t.Limits), Programs: t.Programs,
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	if _, err := l.call(ctx, control.TypeAttach, req.AppendTo(nil), []int{theirs}); err != nil {
		unix.Close(ours)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = gpuerr.New(gpuerr.Busy, "the driver of %s did not answer for %v; try again", deviceName, d.cfg.PingTimeout)
		case errors.Is(err, gpuerr.Disconnected), errors.Is(err, gpuerr.Closed):
			err = gpuerr.New(gpuerr.Busy, "the driver of %s was lost while it opened the session; wait for the device's next state and open it again", deviceName)
		}
		return 0, -1, err
	}
	return l.epoch, ours, nil
}

// status is the driver's account of a tenant, unread.
func (d *device) status(ctx context.Context, tenant string) ([]byte, error) {
	l, err := d.live()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	m, err := l.call(ctx, control.TypeDriverStatus, control.DriverStatusRequest{Tenant: tenant}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}
	m.CloseFDs()
	return m.Body, nil
}
