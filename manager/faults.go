package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/iommu/faultlog"
)

// FaultSource reports DMA that the IOMMU refused to the sink that it was opened with.
// faultlog.Reader is one.
type FaultSource interface {
	// Run reports faults until ctx ends.
	Run(ctx context.Context) error
	// Sync returns when the sink has every fault of before the call.
	Sync() error
	Close() error
}

// faultWatch passes faults on to their devices.
type faultWatch struct {
	source FaultSource
	gaps   *faultGaps
	cancel context.CancelFunc
	done   chan struct{} // closed when runSource has returned
}

// watchFaults follows the host's reports. Isolation does not depend on them. They only tell
// which device strayed.
func (m *Manager) watchFaults() {
	gaps := m.newFaultGaps()
	source, err := m.cfg.Hardware.Faults(func(f faultlog.Fault) {
		gaps.take(f, time.Now())
		m.takeFault(f)
	})
	if err != nil {
		m.log.Warn("IOMMU faults are not reported to drivers", "err", err)
		m.recordAct("iommu.blind", fmt.Sprintf("cause=%q", clipped(err.Error())))
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.faults.watch = &faultWatch{source: source, gaps: gaps, cancel: cancel, done: make(chan struct{})}
	go m.runFaults(ctx)
}

func (m *Manager) runFaults(ctx context.Context) {
	defer close(m.faults.watch.done)
	if err := m.faults.watch.source.Run(ctx); err != nil && ctx.Err() == nil {
		m.log.Warn("IOMMU faults are not reported to drivers any more", "err", err)
		m.recordAct("iommu.blind", fmt.Sprintf("cause=%q", clipped(err.Error())))
	}
}

func (w *faultWatch) Close() error {
	if w == nil {
		return nil
	}
	w.cancel()
	err := w.source.Close()
	<-w.done
	return err
}

// sync returns when every reported fault is recorded.
func (w *faultWatch) sync() error {
	if w == nil {
		return errNoFaultLog
	}
	if err := w.source.Sync(); err != nil {
		return gpuerr.New(gpuerr.IO, "IOMMU faults cannot be read: %v", err)
	}
	return nil
}

var errNoFaultLog = gpuerr.New(gpuerr.Unimplemented, "this device-manager has no record of IOMMU faults")

// takeFault is the sink of the source.
func (m *Manager) takeFault(f faultlog.Fault) {
	if f.Lost > 0 {
		m.recordAct("iommu.faults.lost", fmt.Sprintf("reports=%d", f.Lost))
	}
	switch of := m.suspects(f); len(of) {
	case 0:
	case 1:
		of[0].takeFault(f)
	default:
		m.recordUnclear(f, of)
	}
}

func (m *Manager) recordAct(kind, detail string) {
	if _, err := m.iommu.Append(kind, "", detail); err != nil {
		m.log.Error("write the audit log", "kind", kind, "err", err)
	}
}

// Faults of a device are recorded in a burst, and then one per interval. The others are
// counted.
const (
	faultBurst    = 32
	faultInterval = 5 * time.Second
)

// takeFault records a fault of this function and passes it to the epoch of that time.
func (d *device) takeFault(f faultlog.Fault) {
	now := time.Now()
	desk := d.faults.desk.Load()
	before, recorded := d.faults.limiter.allow(now)
	if before > 0 {
		d.recordFaults(before)
	}
	if recorded {
		d.recordOwn("iommu.fault", fmt.Sprintf("%s epoch=%d %s", d.name, d.drivers.epoch.Load(), describeFault(f)))
	}
	if desk != nil {
		desk.take(f, now)
	}
}

func (d *device) recordFaults(n uint64) {
	d.recordOwn("iommu.faults", fmt.Sprintf("%s epoch=%d faults=%d", d.name, d.drivers.epoch.Load(), n))
}

// A device with more faults than this is beyond its driver's control. The kernel's limit lets
// at most six reports of all functions through in this time (DMAR: three in 5 s; see
// faultlog), so that a larger number would never be seen.
const (
	maxFaults   = 4
	faultWindow = 10 * time.Second
)

// faultDesk tells the driver of one epoch about its device's faults, one message at a time.
// It ends the epoch when the driver does not deal with them.
type faultDesk struct {
	failure *epochFailure
	wake    chan struct{} // holds one

	mu sync.Mutex
	// +checklocks:mu
	recent []time.Time // within faultWindow
	// +checklocks:mu
	pending control.DeviceFaultRequest // for the next message; Count 0: none
	// +checklocks:mu
	telling bool
	// +checklocks:mu
	settled chan struct{} // closed while no message is due or under way
}

func newFaultDesk(failure *epochFailure) *faultDesk {
	f := &faultDesk{failure: failure, wake: make(chan struct{}, 1), settled: make(chan struct{})}
	close(f.settled)
	return f
}

// take queues a fault for the driver.
func (k *faultDesk) take(f faultlog.Fault, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.recent) > 0 && now.Sub(k.recent[0]) > faultWindow {
		k.recent = k.recent[1:]
	}

	if k.recent = append(k.recent, now); len(k.recent) > maxFaults {
		k.recent = k.recent[1:]
		k.failure.report(fmt.Errorf("more than %d IOMMU faults of the device in %v; the last was at %#x (%s)", maxFaults, faultWindow, uint64(f.IOVA), f.Reason))
	}

	if k.pending.Count == 0 && !k.telling {
		k.settled = make(chan struct{})
	}

	k.pending.IOVA, k.pending.Access, k.pending.Reason = uint64(f.IOVA), control.FaultRead, clipped(f.Reason)
	if f.Write {
		k.pending.Access = control.FaultWrite
	}

	k.pending.Count++
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run sends messages to the driver until ctx ends.
func (k *faultDesk) run(ctx context.Context, tell func(context.Context, control.DeviceFaultRequest) error) {
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		for {
			req, ok := k.next()
			if !ok {
				break
			}
			if err := tell(ctx, req); err != nil && ctx.Err() == nil {
				k.failure.report(fmt.Errorf("the driver was told of an IOMMU fault and did not deal with it: %w", err))
				return // no later request may be told that all is well: it never settles
			}
		}
	}
}

// next takes the next message. The one before was answered.
func (k *faultDesk) next() (req control.DeviceFaultRequest, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	req, k.pending = k.pending, control.DeviceFaultRequest{}
	wasTelling := k.telling
	k.telling = req.Count > 0
	if wasTelling && !k.telling {
		close(k.settled)
	}
	return req, k.telling
}

// settle waits until the driver knows of every fault taken before the call.
func (k *faultDesk) settle(ctx context.Context) error {
	k.mu.Lock()
	settled := k.settled
	k.mu.Unlock()
	select {
	case <-settled:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tellFault sends a fault to the driver, which has to answer in time.
func (d *device) tellFault(l *driverLink) func(context.Context, control.DeviceFaultRequest) error {
	return func(ctx context.Context, req control.DeviceFaultRequest) error {
		ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
		defer cancel()
		_, err := l.call(ctx, control.TypeDeviceFault, req.AppendTo(nil), nil)
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("no answer for %v", d.cfg.PingTimeout)
		}
		return err
	}
}

// settleFaults answers a driver that wants to know of every fault so far. It returns for how
// long up to now no report of the device can be missing.
func (d *device) settleFaults(ctx context.Context, desk *faultDesk) (complete time.Duration, err error) {
	if err := d.faults.watch.sync(); err != nil {
		return 0, err
	}
	if err := desk.settle(ctx); err != nil {
		return 0, err
	}
	return d.faults.watch.gaps.complete(int(d.index), time.Now()), nil
}

// endFaults ends the epoch for faults. The function has stopped, so every fault so far is
// recorded as one of this driver's time.
func (d *device) endFaults() {
	if d.faults.watch != nil {
		if err := d.faults.watch.sync(); err != nil {
			d.log.Warn("read the IOMMU faults of a driver that has ended", "err", err)
		}
	}
	d.faults.desk.Store(nil)
	if n := d.faults.limiter.takeSuppressed(); n > 0 {
		d.recordFaults(n)
	}
}
