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

// FaultSource tells of DMA that the IOMMU refused, to the sink that it was opened
// with. faultlog.Reader is one.
type FaultSource interface {
	// Run tells of faults as they come, until ctx ends.
	Run(ctx context.Context) error
	// Sync returns when the sink has been told of all that has happened by now.
	Sync() error
	Close() error
}

// faultWatch passes faults on to the devices that they are of.
type faultWatch struct {
	source FaultSource
	gaps   *faultGaps
	cancel context.CancelFunc
	done   chan struct{} // closed when runSource has returned
}

// watchFaults follows the host's reports. Without them, isolation is as good; only
// nobody learns whose work it was that strayed.
func (m *Manager) watchFaults() {
	gaps := m.newFaultGaps()
	source, err := m.cfg.Hardware.Faults(func(f faultlog.Fault) {
		gaps.take(f, time.Now())
		m.takeFault(f)
	})
	if err != nil {
		m.log.Warn("IOMMU faults are not told to anybody", "err", err)
		m.recordAct("iommu.blind", fmt.Sprintf("cause=%q", clipped(err.Error())))
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.faults = &faultWatch{source: source, gaps: gaps, cancel: cancel, done: make(chan struct{})}
	go m.runFaults(ctx)
}

func (m *Manager) runFaults(ctx context.Context) {
	defer close(m.faults.done)
	if err := m.faults.source.Run(ctx); err != nil && ctx.Err() == nil {
		m.log.Warn("IOMMU faults are not told to anybody any more", "err", err)
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

// sync returns when every fault by now that was reported is recorded.
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

// takeFault is the sink.
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

// A device that strays is recorded this often in a row, and then once in each
// interval; what is beyond that is counted.
const (
	faultBurst    = 32
	faultInterval = 5 * time.Second
)

// takeFault records a fault of this function and hands it to the epoch in which it
// was reported.
func (d *device) takeFault(f faultlog.Fault) {
	now := time.Now()
	desk := d.desk.Load()
	before, recorded := d.faultLimiter.allow(now)
	if before > 0 {
		d.recordFaults(before)
	}
	if recorded {
		d.recordOwn("iommu.fault", fmt.Sprintf("%s epoch=%d %s", d.name, d.epoch.Load(), describeFault(f)))
	}
	if desk != nil {
		desk.take(f, now)
	}
}

func (d *device) recordFaults(n uint64) {
	d.recordOwn("iommu.faults", fmt.Sprintf("%s epoch=%d faults=%d", d.name, d.epoch.Load(), n))
}

// A device that faults more often than this is beyond its driver. The kernel's limit
// lets at most six reports of all functions through in this time (DMAR: three in
// 5 s; see faultlog), so that more would never be seen.
const (
	maxFaults   = 4
	faultWindow = 10 * time.Second
)

// faultDesk tells the driver of one epoch of its device's faults, one message at a
// time, and ends the epoch when that does not help.
type faultDesk struct {
	failure *epochFailure
	wake    chan struct{} // holds one

	mu sync.Mutex
	// +checklocks:mu
	recent []time.Time // within faultWindow
	// +checklocks:mu
	pending control.DeviceFaultRequest // what is to be told; Count 0: nothing
	// +checklocks:mu
	telling bool
	// +checklocks:mu
	settled chan struct{} // closed while there is nothing to tell and nothing being told
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

// run tells the driver until ctx ends.
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
				return // nobody is told ok any more: what asks is never settled
			}
		}
	}
}

// next takes what is to be told. The one before was answered.
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

// settle waits until the driver knows of every fault that was taken by now.
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

// tellFault tells the driver, which has to answer in time.
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

// settleFaults answers a driver that wants to know of every fault until now, and
// says for how long, by now, no report of its device was left out.
func (d *device) settleFaults(ctx context.Context, desk *faultDesk) (complete time.Duration, err error) {
	if err := d.faults.sync(); err != nil {
		return 0, err
	}
	if err := desk.settle(ctx); err != nil {
		return 0, err
	}
	return d.faults.gaps.complete(int(d.index), time.Now()), nil
}

// endFaults ends the epoch for faults: those of its driver's time are recorded as
// its own, because the function has stopped.
func (d *device) endFaults() {
	if d.faults != nil {
		if err := d.faults.sync(); err != nil {
			d.log.Warn("read the IOMMU faults of a driver that has ended", "err", err)
		}
	}
	d.desk.Store(nil)
	if n := d.faultLimiter.takeSuppressed(); n > 0 {
		d.recordFaults(n)
	}
}
