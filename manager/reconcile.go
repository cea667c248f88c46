package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/audit/dma"
	"capgpu/iommu"
	"capgpu/iommu/trace"
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

// Mismatches have so many records in a row, and then one per interval.
const (
	mismatchBurst    = 64
	mismatchInterval = time.Second
)

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
	audit  AuditLog
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
// to what is returned. It is nil where the kernel is not watched: nobody need report
// then.
func (r *reconciler) function(name string) *opRecorder {
	state := "state=watched"
	if r.source == nil {
		state = fmt.Sprintf("state=unavailable reason=%q", clipped(r.reason.Error()))
	}
	if _, err := r.audit.Append(dma.KindSource, "", name+" source=iommu "+state); err != nil {
		r.log.Error("write the audit log", "kind", dma.KindSource, "err", err)
	}
	if r.source == nil {
		return nil
	}
	rec := &opRecorder{name: name}
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
		r.append(dma.KindSource, fmt.Sprintf("%s source=iommu state=unavailable reason=%q", rec.name, clipped(err.Error())))
	}
}

func (r *reconciler) append(kind, detail string) bool {
	if _, err := r.audit.Append(kind, "", detail); err != nil {
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

// settle compares all that has ended by now. all makes every record due.
func (r *reconciler) settle(all bool) error {
	now, cut := time.Now(), monotonic()
	r.mu.Lock()
	recorders := slices.Clone(r.recorders)
	r.mu.Unlock()
	var ended []*opAccount
	threads := map[int][]*opAccount{} // operations by thread
	owners := map[*opAccount]*opRecorder{}
	for _, rec := range recorders {
		done, open, dropped := rec.take()
		r.lostOps += dropped
		if dropped > 0 {
			r.blind = 2
		}
		for _, op := range done {
			a := r.account(rec, op)
			a.endedOp = op
			ended = append(ended, a)
			threads[op.TID] = append(threads[op.TID], a)
			owners[a] = rec
		}
		under := map[uint64]*opAccount{}
		for _, op := range open {
			a := r.account(rec, op)
			under[op.Seq] = a
			threads[op.TID] = append(threads[op.TID], a)
		}
		r.accounts[rec] = under
	}
	if err := r.source.Read(time.Unix(1, 0), r.take); err != nil {
		return err
	}
	if err := r.countLost(); err != nil {
		return err
	}
	for _, ops := range threads {
		slices.SortFunc(ops, func(a, b *opAccount) int { return cmp.Compare(a.Start, b.Start) })
	}
	r.findVFIO(ended)
	r.assign(threads, cut)
	for _, a := range ended {
		r.judge(owners[a], a, now)
	}
	r.blind = max(0, r.blind-1)
	for _, rec := range recorders {
		r.book(rec, now).flush(now, all)
	}
	r.writeMismatches(all)
	r.writeLost()
	return nil
}

// account is what is known of an operation that has begun.
func (r *reconciler) account(rec *opRecorder, op endedOp) *opAccount {
	of := r.accounts[rec]
	if of == nil {
		of = map[uint64]*opAccount{}
		r.accounts[rec] = of
	}
	if of[op.Seq] == nil {
		of[op.Seq] = &opAccount{endedOp: op}
	}
	return of[op.Seq]
}

func (r *reconciler) book(rec *opRecorder, now time.Time) *kernelBook {
	if r.books[rec] == nil {
		r.books[rec] = newKernelBook(rec.name, r.audit, r.log, now)
	}
	return r.books[rec]
}

// findVFIO makes the source pass over what others than vfio map in our context. The
// type1 back end is there for certain once a group was attached to it.
func (r *reconciler) findVFIO(ended []*opAccount) {
	attached := slices.ContainsFunc(ended, func(a *opAccount) bool { return a.Kind == iommu.OpAttach })
	if r.vfioFound || !attached {
		return
	}
	r.vfioFound = true
	if err := r.source.FindVFIO(); err != nil {
		r.log.Warn("what the host's own drivers map in device-manager's context cannot be told from what vfio maps, and is reported", "err", err)
	}
	r.judgeFrom = monotonic()
}

// assign gives the events to their operations. Those of none are alarms, if they
// are from before cut: the operation of a later one may not be known yet, and one
// that was under way at cut may have ended before the event.
func (r *reconciler) assign(threads map[int][]*opAccount, cut time.Duration) {
	own := uint32(os.Getpid())
	later := r.events[:0]
	for _, e := range r.events {
		a := during(threads[int(e.TID)], uint64(e.Time))
		if a != nil && e.TGID == own && (a.End != 0 || e.Time < cut) {
			a.take(e)
			continue
		}
		if e.Time >= cut {
			later = append(later, e)
			continue
		}
		if e.TGID == own && (!r.vfioFound || e.Time < r.judgeFrom) {
			continue // no domain of ours can have been there
		}
		if e.TGID == own && r.blind > 0 && r.lostOps > 0 {
			continue // its operation may be one that was dropped
		}
		r.stray(e)
	}
	r.events = later
}

// during is the operation of one thread at a time. ops are in the order of their
// start, and do not overlap.
func during(ops []*opAccount, at uint64) *opAccount {
	i := sort.Search(len(ops), func(i int) bool { return ops[i].Start > at }) - 1
	if i < 0 {
		return nil
	}
	if end := ops[i].End; end != 0 && end < at {
		return nil
	}
	return ops[i]
}

// judge compares one operation, and notes what the kernel did.
func (r *reconciler) judge(rec *opRecorder, a *opAccount, now time.Time) {
	r.operations.Add(1)
	live, known := r.live[rec]
	if !known {
		live = map[dma.Span]struct{}{}
		r.live[rec] = live
	}
	v := a.judge(live)
	if r.blind > 0 {
		v.missing = "" // that events were lost is recorded
	}
	span := dma.Span{IOVA: uint64(a.IOVA), Bytes: a.Bytes}
	switch {
	case a.Kind == iommu.OpUnmap && a.err != nil:
		r.live[rec] = nil // the domain is lost: nobody knows what is mapped
	case live != nil && a.Kind == iommu.OpMap && a.err == nil:
		live[span] = struct{}{}
	case live != nil && a.Kind == iommu.OpUnmap:
		delete(live, span)
	case a.Kind == iommu.OpClose:
		r.live[rec] = map[dma.Span]struct{}{}
	}
	if cause := cmp.Or(v.wrong, v.missing); cause != "" {
		what := ""
		if a.Bytes > 0 {
			what = " " + span.String()
		}
		r.mismatch(fmt.Sprintf("%s epoch=%d op=%d %s%s", rec.name, a.epoch, a.Seq, a.Kind, what), cause)
	}
	v.kernel.Function, v.kernel.Epoch = rec.name, a.epoch
	r.book(rec, now).add(v.kernel, now)
}

// stray reports what the kernel did for no operation.
func (r *reconciler) stray(e trace.Event) {
	bytes, who := e.Bytes, "device-manager"
	if e.Kind == trace.Unmap {
		bytes = e.Unmapped
	}
	if e.TGID != uint32(os.Getpid()) {
		r.mu.Lock()
		who = "the driver of " + r.drivers[e.TGID]
		r.mu.Unlock()
	}
	at := dma.Span{IOVA: uint64(e.IOVA), Bytes: bytes}
	r.mismatch(fmt.Sprintf("pid=%d tid=%d %s %v", e.TGID, e.TID, e.Kind, at), "no operation of device-manager: it was done in "+who)
}

// mismatch is the alarm.
func (r *reconciler) mismatch(what, cause string) {
	r.mismatches.Add(1)
	if !r.pace.enter(time.Now()) {
		r.unrecorded++
		return
	}
	r.log.Warn("the kernel did not do what device-manager asked for", "what", what, "cause", cause)
	r.append(dma.KindMismatch, fmt.Sprintf("%s cause=%q", what, clipped(cause)))
}

// writeMismatches records how many got no record of their own.
func (r *reconciler) writeMismatches(all bool) {
	if r.unrecorded == 0 || (!all && !r.pace.enter(time.Now())) {
		return
	}
	if r.append(dma.KindMismatch, fmt.Sprintf("iommu more=%d", r.unrecorded)) {
		r.unrecorded = 0
	}
}

// countLost notes events that nobody can compare any more.
func (r *reconciler) countLost() error {
	c, err := r.source.Counts()
	if err != nil {
		return err
	}
	n := c.Lost - r.seenLost + r.overrun
	r.seenLost, r.overrun = c.Lost, 0
	if n > 0 {
		r.blind = 2 // an operation may go on into the next tick
		r.lost.Add(n)
		r.lostEvents += n
	}
	return nil
}

// writeLost records what was lost, for which there can be no proof.
func (r *reconciler) writeLost() {
	events, operations := r.lostEvents, r.lostOps
	if events == 0 && operations == 0 {
		return
	}
	r.log.Warn("some of what the kernel mapped for devices could not be compared", "events", events, "operations", operations)
	if r.append(dma.KindLost, fmt.Sprintf("iommu events=%d operations=%d", events, operations)) {
		r.lostEvents, r.lostOps = 0, 0
	}
}

// monotonic is the clock of iommu.Op and trace.Event.
func monotonic() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return math.MaxInt64 // it cannot fail; if it did, everything would be judged
	}
	return time.Duration(t.Nano())
}
