package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/audit/dma"
	"capgpu/iommu"
	"capgpu/iommu/trace"
)

// Mismatches are recorded in a burst, and then one per interval.
const (
	mismatchBurst    = 64
	mismatchInterval = time.Second
)

// kernelSource reports the actions of the kernel's IOMMU layer; trace.Tracer is one.
type kernelSource interface {
	Read(deadline time.Time, fn func(trace.Event)) error
	Kick() error
	Watch(pid int) error
	Unwatch(pid int) error
	FindVFIO() error
	Counts() (trace.Counts, error)
	Close() error
}

// reconcileTick is how often the manager's requests are compared with the kernel's actions.
// Mappings never wait for it.
const reconcileTick = 250 * time.Millisecond

// maxEvents bounds the events that belong to no operation yet.
const maxEvents = 1 << 20

// reconciler compares two accounts of DMA memory: the maps and unmaps that this process asked
// the kernel for, as each function's domain reports them, and the actions of the kernel's
// IOMMU layer in this process and in its drivers. Each account must contain everything of the
// other; a difference is an alarm. The kernel's account goes to the audit log, so that the
// comparison with the manager's records can be repeated from the log alone: see package dma.
//
//	domain ──Began, Ended──► opRecorder ─┐
//	                                     ├─► runReconcile ──► audit log
//	kernel ──events──► ring ─────────────┘
//
// An event belongs to an operation if it is of the operation's thread and neither before its
// start nor after its end. So runReconcile first notes the time, then takes the operations,
// and then reads all events. After that it has every event of an operation that has ended,
// and every operation that began before the noted time.
type reconciler struct {
	audit  AuditLog // of records about no function, or about all
	log    *slog.Logger
	source kernelSource // nil: the kernel is not watched
	reason error        // why it is nil
	cancel context.CancelFunc
	done   chan struct{} // closed when runReconcile has returned; nil if it does not run

	watched watchedDrivers

	operations, mismatches, lost atomic.Uint64

	// Only runReconcile uses match.
	match struct {
		events     []trace.Event // that belong to no operation so far
		overrun    uint64        // events beyond maxEvents
		accounts   map[*opRecorder]map[uint64]*opAccount
		live       map[*opRecorder]map[dma.Span]struct{} // nil once it is unknown
		books      map[*opRecorder]*kernelBook
		limiter    bucket // of mismatches
		unrecorded uint64 // mismatches without a record
		seenLost   uint64 // of the source's counter
		blind      int    // ticks for which a missing event may be a lost one
		lostEvents uint64 // not recorded yet
		lostOps    uint64 // not recorded yet
		vfioFound  bool
		judgeFrom  time.Duration // earlier events have no operation, for known reasons
	}
}

// watchedDrivers are the functions and driver processes that a reconciler watches.
type watchedDrivers struct {
	mu sync.Mutex
	// +checklocks:mu
	recorders []*opRecorder
	// +checklocks:mu
	drivers map[uint32]string // watched processes with their functions
	// +checklocks:mu
	waiters []chan struct{} // for a Flush
	// +checklocks:mu
	ended bool // runReconcile compares nothing more
}

// newReconciler begins to watch the kernel; open returns nil when no function needs that. If
// the kernel cannot be watched, the reconciler compares nothing, and the log and the audit
// log say so; if the policy requires the comparison, newReconciler returns an error.
func newReconciler(audit AuditLog, log *slog.Logger, open func() (kernelSource, error), required bool) (*reconciler, error) {
	now := time.Now()
	r := &reconciler{
		audit: audit, log: log, watched: watchedDrivers{drivers: map[uint32]string{}},
	}
	r.match.accounts = map[*opRecorder]map[uint64]*opAccount{}
	r.match.live = map[*opRecorder]map[dma.Span]struct{}{}
	r.match.books = map[*opRecorder]*kernelBook{}
	r.match.limiter = newBucket(mismatchBurst, mismatchInterval, now)
	if r.source, r.reason = open(); r.source == nil && r.reason == nil {
		return r, nil // no function to watch
	}

	if r.reason != nil {
		r.source = nil
		if required {
			return nil, fmt.Errorf("the policy's audit.requireKernel wants the kernel's own account of DMA memory: %w", r.reason)
		}
		log.Warn("what the kernel maps for devices is not compared with what device-manager asked for", "reason", r.reason)
		return r, nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.done = cancel, make(chan struct{})
	go r.runReconcile(ctx)
	return r, nil
}

// openKernelSource opens the kernel's trace.
func openKernelSource() (kernelSource, error) {
	t, err := trace.Open(trace.Options{})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// function begins the account of a hardware function. Its domain reports to the recorder that
// is returned. The kernel's actions are recorded in own, the log of its drivers; the log of
// the device says whether the function is watched. It returns nil if the kernel is not
// watched: then the domain need not report.
func (r *reconciler) function(name string, device, own AuditLog) *opRecorder {
	state := "state=watched"
	if r.source == nil {
		state = fmt.Sprintf("state=unavailable reason=%q", clipped(r.reason.Error()))
	}
	r.appendTo(device, dma.KindSource, name+" source=iommu "+state)
	if r.source == nil {
		return nil
	}
	rec := &opRecorder{name: name, device: device, own: own}
	r.watched.mu.Lock()
	defer r.watched.mu.Unlock()
	r.watched.recorders = append(r.watched.recorders, rec)
	return rec
}

// recorder returns the recorder of a function.
func (r *reconciler) recorder(name string) *opRecorder {
	r.watched.mu.Lock()
	defer r.watched.mu.Unlock()
	i := slices.IndexFunc(r.watched.recorders, func(rec *opRecorder) bool { return rec.name == name })
	if i < 0 {
		return nil
	}
	return r.watched.recorders[i]
}

// observer returns the recorder for iommu.Options: a nil interface if it is nil.
func (r *opRecorder) observer() iommu.Observer {
	if r == nil {
		return nil
	}
	return r
}

// watch makes every mapping that vfio makes for a driver process an alarm, until unwatch.
func (r *reconciler) watch(pid int, function string) {
	if r.source == nil {
		return
	}
	r.watched.mu.Lock()
	r.watched.drivers[uint32(pid)] = function
	r.watched.mu.Unlock()
	if err := r.source.Watch(pid); err != nil {
		r.log.Warn("a driver's DMA mappings are not watched", "device", function, "pid", pid, "err", err)
	}
}

// unwatch ends the watch of a driver that was reaped.
func (r *reconciler) unwatch(pid int) {
	if r.source == nil {
		return
	}
	if err := r.source.Unwatch(pid); err != nil {
		r.log.Warn("stop watching a driver", "pid", pid, "err", err)
	}
}

// Flush returns when all operations so far are compared and recorded, or ctx ends.
func (r *reconciler) Flush(ctx context.Context) error {
	if r.source == nil {
		return nil
	}

	done := make(chan struct{})
	r.watched.mu.Lock()
	if r.watched.ended {
		r.watched.mu.Unlock()
		return nil
	}

	r.watched.waiters = append(r.watched.waiters, done)
	r.watched.mu.Unlock()
	if err := r.source.Kick(); err != nil {
		return err
	}

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close compares and records the rest, and ends. Every function is closed by then.
func (r *reconciler) Close() error {
	if r.source == nil {
		return nil
	}
	r.cancel()
	err := r.source.Kick()
	<-r.done
	return errors.Join(err, r.source.Close())
}

func (r *reconciler) runReconcile(ctx context.Context) {
	defer close(r.done)
	for {
		err := r.source.Read(time.Now().Add(reconcileTick), r.take)
		stopping := ctx.Err() != nil || err != nil
		r.watched.mu.Lock()
		waiters := r.watched.waiters
		r.watched.waiters, r.watched.ended = nil, stopping
		r.watched.mu.Unlock()
		if err == nil {
			err = r.settle(len(waiters) > 0 || stopping)
		}
		for _, w := range waiters {
			close(w)
		}
		if err != nil {
			r.fail(err)
		}
		if stopping || err != nil {
			return
		}
	}
}

// fail records that the second account has ended.
func (r *reconciler) fail(err error) {
	r.log.Error("what the kernel maps for devices is not compared any more", "err", err)
	r.watched.mu.Lock()
	r.watched.ended = true
	waiters := r.watched.waiters
	r.watched.waiters = nil
	recorders := slices.Clone(r.watched.recorders)
	r.watched.mu.Unlock()
	for _, w := range waiters {
		close(w)
	}
	for _, rec := range recorders {
		r.appendTo(rec.device, dma.KindSource, fmt.Sprintf("%s source=iommu state=unavailable reason=%q", rec.name, clipped(err.Error())))
	}
}

func (r *reconciler) append(kind, detail string) bool { return r.appendTo(r.audit, kind, detail) }

func (r *reconciler) appendTo(to AuditLog, kind, detail string) bool {
	if _, err := to.Append(kind, "", detail); err != nil {
		r.log.Error("write the audit log", "kind", kind, "err", err)
		return false
	}
	return true
}

// take keeps an event until its operation is known.
func (r *reconciler) take(e trace.Event) {
	if len(r.match.events) >= maxEvents {
		r.match.overrun++
		return
	}
	r.match.events = append(r.match.events, e)
}

// monotonic reads the clock of iommu.Op and trace.Event.
func monotonic() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return math.MaxInt64 // it cannot fail; with this value everything would be judged
	}
	return time.Duration(t.Nano())
}
