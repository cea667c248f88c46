package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/control"
	"capgpu/ddf"
	"capgpu/iommu"
	"capgpu/ledger"
)

// device is one function and its drivers, one after the other.
type device struct {
	index    uint32 // as in ListDevices
	name     string
	policy   FunctionPolicy
	function Function
	space    *iommu.Space // of the function's domain, for all epochs

	cfg     *Config
	log     *slog.Logger
	say     func(format string, args ...any)
	ledger  *ledger.Ledger
	account *ledger.Account // of the function; each epoch has one below it
	board   *stateBoard
	tenants func() []*Tenant // the current policies, always in the same order

	logs struct {
		host    AuditLog     // of the host
		device  AuditLog     // of the device: the manager's acts, which are few
		drivers AuditLog     // of its drivers: their grants and their own records
		shares  *auditShares // of records about tenants; a driver's death refills none
	}

	drivers struct {
		spawner *spawner
		actors  func(Role) Actor // nil: drivers are processes (stage.go)
		standby *standby         // set by start
		epoch   atomic.Uint64    // of the last driver that was started
	}

	faults struct {
		watch   *faultWatch               // of the host; nil: there is none
		desk    atomic.Pointer[faultDesk] // of the live driver
		limiter *rateLimiter              // of records of faults
	}

	kernel struct {
		reconciler *reconciler
		recorder   *opRecorder // of the function's domain; nil: not watched
	}

	requests struct {
		sessions atomic.Uint64 // numbers of Attach
		turns    turnstile     // bounds requests to the driver for tenants
		operator chan *ask     // for runSupervise
	}

	supervision struct {
		stop context.CancelFunc // ends runSupervise
		done chan struct{}      // closed when it has returned
		left error              // the part of the last driver that could not be ended; read it after done
		kept *grants            // with memory that had to be kept
		held bool               // some memory was freed, or will be, after its epoch; used by runSupervise
	}

	closing  sync.Once
	closeErr error // read after closing
}

// newDevice takes ownership of the function, also when it fails.
func newDevice(m *Manager, index int, p FunctionPolicy, f Function, entries uint64) (_ *device, err error) {
	log := m.log.With("device", p.Name)
	entries = min(entries, f.Domain().Entries())
	if entries < p.IOVAEntries {
		log.Warn("fewer mappings than the policy says: the limit of open files or the kernel's limit of mappings is lower", "iovaEntries", entries)
	}

	life, own, err := m.deviceLogs(p.Name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	limits := ledger.NoLimits()
	limits[ledger.DeviceMemory] = p.MemoryBytes
	limits[ledger.IOVAEntries] = entries
	account, err := m.ledger.Root().Child(p.Name, limits)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}

	bits := p.DMABits
	if bits == 0 {
		bits = dmaBits(f.Identity())
	}

	d := &device{
		index: uint32(index), name: p.Name, policy: p, function: f, space: iommu.NewSpace(iommu.Clip(f.Domain().Ranges(), bits)),
		cfg: &m.cfg, log: log, say: m.say, ledger: m.ledger, account: account, board: newStateBoard(),
		tenants: func() []*Tenant { return usersOf(policiesOf(m.servers()), p.Name) },
	}
	d.logs.host, d.logs.device, d.logs.drivers = m.audit, life, own
	d.logs.shares = newAuditShares(p.Name, m.cfg.Policy.Audit.DriverBytes, own, func(tenant string) AuditLog { return m.tenantLog(p.Name, tenant) }, log)
	d.drivers.spawner = m.spawner
	d.faults.limiter = newRateLimiter(faultBurst, faultInterval, time.Now())
	d.kernel.reconciler, d.kernel.recorder = m.reconcile, m.reconcile.recorder(p.Name)
	d.requests.turns, d.requests.operator = newTurnstile(maxAsking), make(chan *ask)
	d.supervision.done = make(chan struct{})
	return d, nil
}

// start starts the supervision. Close ends it.
func (d *device) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.supervision.stop = cancel
	d.drivers.standby = newStandby(d)
	go d.runSupervise(ctx)
}

// Close lets the driver shut down within ctx, and then ends it. It returns when nothing of
// the device is left, or with the part that could not be ended in time.
func (d *device) Close(ctx context.Context) error {
	if s, _ := d.board.get(); s.link != nil {
		if _, err := s.link.call(ctx, control.TypeShutdown, nil, nil); err != nil {
			d.log.Warn("the driver did not shut down by itself", "err", err)
		}
	}
	d.supervision.stop()
	timer := time.NewTimer(goodbyeGrace + stopPatience + endGrace)
	defer timer.Stop()
	select {
	case <-d.supervision.done:
	case <-timer.C: // blocked in the kernel: nothing that it uses can be closed
		return fmt.Errorf("%s is left behind: its last driver's grants are still being taken back", d.name)
	}
	return errors.Join(d.supervision.left, d.release())
}

// endGrace is how long the kernel may take to stop a function and to take back the resources
// of its last driver.
const endGrace = 5 * time.Second

// release closes the function and its account. No driver of it runs.
func (d *device) release() error {
	d.logs.shares.close()
	err := d.closeFunction()
	if e := d.account.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("close the books of %s: %w", d.name, e))
	}
	return err
}

// releaseGrace is how long the kernel may take to give a function back: some drivers take
// seconds to release a device, and to start on it. The next manager finds one that takes
// longer.
const releaseGrace = 30 * time.Second

// closeFunction closes the function, and then the memory that was kept because the function
// might have been running.
func (d *device) closeFunction() error {
	d.closing.Do(func() {
		closed := make(chan error, 1)
		go func() { closed <- d.function.Close() }()
		timer := time.NewTimer(releaseGrace)
		defer timer.Stop()
		select {
		case d.closeErr = <-closed:
		case <-timer.C:
			d.closeErr = fmt.Errorf("it is not given back after %v", releaseGrace)
		}
		if d.closeErr == nil && d.supervision.kept != nil { // a closed function reaches no memory
			d.closeErr = d.supervision.kept.salvage()
		}
		if d.closeErr != nil {
			d.closeErr = fmt.Errorf("give %s back: %w", d.name, d.closeErr)
		}
	})
	return d.closeErr
}

func (d *device) info(epoch uint64) ddf.DeviceInfo {
	info := d.function.Identity()
	info.Index, info.Name, info.Epoch = d.index, d.name, epoch
	return info
}

// record records an event of the past, which cannot be refused.
func (d *device) record(kind, detail string) {
	_, err := d.logs.device.Append(kind, "", detail)
	d.recorded(kind, err)
}

// recordHost records an act of the operator, or an event that concerns the operator.
func (d *device) recordHost(kind, detail string) {
	_, err := d.logs.host.Append(kind, "", detail)
	d.recorded(kind, err)
}

// recordOwn records an act of the device.
func (d *device) recordOwn(kind, detail string) {
	_, err := d.logs.drivers.Append(kind, "", detail)
	d.recorded(kind, err)
}

func (d *device) recorded(kind string, err error) {
	if err != nil {
		d.log.Error("write the audit log", "kind", kind, "err", err)
	}
}

// recordLost records, for each tenant, how many sessions ended with their driver. It returns
// their total.
func (d *device) recordLost(epoch uint64, sessions *openSessions, cause error) (total int) {
	byTenant, total := sessions.lost()
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		_, err := d.logs.shares.append(tenant, tenant, "session.lost", fmt.Sprintf("%s epoch=%d sessions=%d cause=%q", d.name, epoch, byTenant[tenant], clipped(cause.Error())))
		d.recorded("session.lost", counted(err))
	}
	return total
}
