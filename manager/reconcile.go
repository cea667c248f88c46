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

// Mismatches have so many records in a row, and then one per interval.
const (
	mismatchBurst    = 64
	mismatchInterval = time.Second
)

// kernelSource tells what the kernel's IOMMU layer did; trace.Tracer is one.
type kernelSource interface {
	Read(deadline time.Time, fn func(trace.Event)) error
	Kick() error
	Watch(pid int) error
	Unwatch(pid int) error
	FindVFIO() error
	Counts() (trace.Counts, error)
	Close() error
}

// reconcileTick is how often what the manager asked for is compared with what the
// kernel did. Mappings never wait for it.
const reconcileTick = 250 * time.Millisecond

// maxEvents bounds the events that belong to no operation yet.
const maxEvents = 1 << 20

// reconciler compares two accounts of DMA memory: what this process asked the kernel
// to map and unmap, as each function's domain reports it, and what the kernel's
// IOMMU layer did in this process and in its drivers. Everything of the one must be
// in the other; what is not is an alarm. The kernel's account goes to the audit log,
// so that the comparison with the manager's records can be made again from that
// alone: see package dma.
//
//	domain ──Began, Ended──► opRecorder ─┐
//	                                     ├─► runReconcile ──► audit log
//	kernel ──events──► ring ─────────────┘
//
// An operation and an event belong together when the event is of the operation's
// thread, and not before its start or after its end. So the order is: note the
// time, take the operations, read all events. Then everything is there that belongs
// to an operation that has ended, and every operation that began before that time.
type reconciler struct {
	audit  AuditLog // of what concerns no function, or all
	log    *slog.Logger
	source kernelSource // nil: the kernel is not watched
	reason error        // why not
	cancel context.CancelFunc
	done   chan struct{} // closed when runReconcile has returned; nil without it

	mu sync.Mutex
	// +checklocks:mu
	recorders []*opRecorder
	// +checklocks:mu
	drivers map[uint32]string // watched processes, and whose they are
	// +checklocks:mu
	waiters []chan struct{} // for a Flush
	// +checklocks:mu
	ended bool // runReconcile will look at nothing any more

	operations, mismatches, lost atomic.Uint64

	// Only runReconcile uses these.
	events     []trace.Event // that belong to no operation yet
	overrun    uint64        // events beyond maxEvents
	accounts   map[*opRecorder]map[uint64]*opAccount
	live       map[*opRecorder]map[dma.Span]struct{} // nil once it is not known
	books      map[*opRecorder]*kernelBook
	pace       bucket // of mismatches
	unrecorded uint64 // mismatches without a record
	seenLost   uint64 // of the source's counter
	blind      int    // ticks for which something that is missing may have been lost
	lostEvents uint64 // of which no record tells yet
	lostOps    uint64 // the same
	vfioFound  bool
	judgeFrom  time.Duration // events before are of no operation for reasons of their own
}

// newReconciler begins to watch the kernel; open returns nil when no function needs
// that. Where that cannot be had it returns one
// that compares nothing, and says so in the log and in the audit log; when the
// policy requires it, an error.
func newReconciler(audit AuditLog, log *slog.Logger, open func() (kernelSource, error), required bool) (*reconciler, error) {
	now := time.Now()
	r := &reconciler{
		audit: audit, log: log, drivers: map[uint32]string{},
		accounts: map[*opRecorder]map[uint64]*opAccount{}, live: map[*opRecorder]map[dma.Span]struct{}{}, books: map[*opRecorder]*kernelBook{},
		pace: newBucket(mismatchBurst, mismatchInterval, now),
	}
	if r.source, r.reason = open(); r.source == nil && r.reason == nil {
		return r, nil // there is nothing to watch
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

// openKernelSource is the real one.
func openKernelSource() (kernelSource, error) {
	t, err := trace.Open(trace.Options{})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// function begins the account of a function on real hardware, whose domain reports
// to what is returned; what the kernel does goes to own, the log of its drivers, and
// whether it is watched to that of the device. It is nil where the kernel is not watched:
// nobody need report then.
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorders = append(r.recorders, rec)
	return rec
}

// recorder is what function returned for that name.
func (r *reconciler) recorder(name string) *opRecorder {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.recorders, func(rec *opRecorder) bool { return rec.name == name })
	if i < 0 {
		return nil
	}
	return r.recorders[i]
}

// observer is the recorder as iommu.Options wants it: nil when it is nil.
func (r *opRecorder) observer() iommu.Observer {
	if r == nil {
		return nil
	}
	return r
}

// watch makes everything that vfio maps for a driver process an alarm, until unwatch.
func (r *reconciler) watch(pid int, function string) {
	if r.source == nil {
		return
	}
	r.mu.Lock()
	r.drivers[uint32(pid)] = function
	r.mu.Unlock()
	if err := r.source.Watch(pid); err != nil {
		r.log.Warn("a driver's DMA mappings are not watched", "device", function, "pid", pid, "err", err)
	}
}

// unwatch is for a driver that was reaped.
func (r *reconciler) unwatch(pid int) {
	if r.source == nil {
		return
	}
	if err := r.source.Unwatch(pid); err != nil {
		r.log.Warn("stop watching a driver", "pid", pid, "err", err)
	}
}

// Flush returns when all that was mapped and unmapped by now is compared and
// recorded, or ctx ends.
func (r *reconciler) Flush(ctx context.Context) error {
	if r.source == nil {
		return nil
	}

	done := make(chan struct{})
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return nil
	}

	r.waiters = append(r.waiters, done)
	r.mu.Unlock()
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

// Close compares and records what is left, and ends. Every function is closed.
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
		r.mu.Lock()
		waiters := r.waiters
		r.waiters, r.ended = nil, stopping
		r.mu.Unlock()
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

// fail says that there is no second source any more.
func (r *reconciler) fail(err error) {
	r.log.Error("what the kernel maps for devices is not compared any more", "err", err)
	r.mu.Lock()
	r.ended = true
	waiters := r.waiters
	r.waiters = nil
	recorders := slices.Clone(r.recorders)
	r.mu.Unlock()
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
	if len(r.events) >= maxEvents {
		r.overrun++
		return
	}
	r.events = append(r.events, e)
}

// monotonic is the clock of iommu.Op and trace.Event.
func monotonic() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return math.MaxInt64 // it cannot fail; if it did, everything would be judged
	}
	return time.Duration(t.Nano())
}
