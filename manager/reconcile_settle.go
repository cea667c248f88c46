package manager

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sort"
	"time"

	"capgpu/audit/dma"
	"capgpu/iommu"
	"capgpu/iommu/trace"
)

// settle compares all operations that have ended. all makes every record due.
func (r *reconciler) settle(all bool) error {
	now, cut := time.Now(), monotonic()
	r.watched.mu.Lock()
	recorders := slices.Clone(r.watched.recorders)
	r.watched.mu.Unlock()
	var ended []*opAccount
	threads := map[int][]*opAccount{} // operations by thread
	owners := map[*opAccount]*opRecorder{}
	for _, rec := range recorders {
		done, open, dropped := rec.take()
		r.match.lostOps += dropped
		if dropped > 0 {
			r.match.blind = 2
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
		r.match.accounts[rec] = under
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

	r.match.blind = max(0, r.match.blind-1)
	for _, rec := range recorders {
		r.book(rec, now).flush(now, all)
	}

	r.writeMismatches(all)
	r.writeLost()
	return nil
}

// account returns the account of an operation that has begun.
func (r *reconciler) account(rec *opRecorder, op endedOp) *opAccount {
	of := r.match.accounts[rec]
	if of == nil {
		of = map[uint64]*opAccount{}
		r.match.accounts[rec] = of
	}
	if of[op.Seq] == nil {
		of[op.Seq] = &opAccount{endedOp: op}
	}
	return of[op.Seq]
}

func (r *reconciler) book(rec *opRecorder, now time.Time) *kernelBook {
	if r.match.books[rec] == nil {
		r.match.books[rec] = newKernelBook(rec.name, rec.own, r.log, now)
	}
	return r.match.books[rec]
}

// findVFIO makes the source ignore mappings in our context that are not of vfio. The type1
// back end is there for certain once a group was attached to it.
func (r *reconciler) findVFIO(ended []*opAccount) {
	attached := slices.ContainsFunc(ended, func(a *opAccount) bool { return a.Kind == iommu.OpAttach })
	if r.match.vfioFound || !attached {
		return
	}
	r.match.vfioFound = true
	if err := r.source.FindVFIO(); err != nil {
		r.log.Warn("what the host's own drivers map in device-manager's context cannot be told from what vfio maps, and is reported", "err", err)
	}
	r.match.judgeFrom = monotonic()
}

// assign gives the events to their operations. An event of no operation is an alarm if it is
// from before cut. For a later event the operation may not be known yet, and an operation
// under way at cut may have ended before the event.
func (r *reconciler) assign(threads map[int][]*opAccount, cut time.Duration) {
	own := uint32(os.Getpid())
	later := r.match.events[:0]
	for _, e := range r.match.events {
		a := during(threads[int(e.TID)], uint64(e.Time))
		if a != nil && e.TGID == own && (a.End != 0 || e.Time < cut) {
			a.take(e)
			continue
		}
		if e.Time >= cut {
			later = append(later, e)
			continue
		}
		if e.TGID == own && (!r.match.vfioFound || e.Time < r.match.judgeFrom) {
			continue // no domain of ours existed then
		}
		if e.TGID == own && r.match.blind > 0 && r.match.lostOps > 0 {
			continue // its operation may be one that was dropped
		}
		r.stray(e)
	}

	r.match.events = later
}

// during returns the operation of one thread at a time. ops are in the order of their start
// and do not overlap.
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

// judge compares one operation, and notes the kernel's actions.
func (r *reconciler) judge(rec *opRecorder, a *opAccount, now time.Time) {
	r.operations.Add(1)
	live, known := r.match.live[rec]
	if !known {
		live = map[dma.Span]struct{}{}
		r.match.live[rec] = live
	}

	v := a.judge(live)
	if r.match.blind > 0 {
		v.missing = "" // lost events are recorded
	}

	span := dma.Span{IOVA: uint64(a.IOVA), Bytes: a.Bytes}
	switch {
	case a.Kind == iommu.OpUnmap && a.err != nil:
		r.match.live[rec] = nil // the domain is lost, and its mappings are unknown
	case live != nil && a.Kind == iommu.OpMap && a.err == nil:
		live[span] = struct{}{}
	case live != nil && a.Kind == iommu.OpUnmap:
		delete(live, span)
	case a.Kind == iommu.OpClose:
		r.match.live[rec] = map[dma.Span]struct{}{}
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

// stray reports an action of the kernel that belongs to no operation.
func (r *reconciler) stray(e trace.Event) {
	bytes, who := e.Bytes, "device-manager"
	if e.Kind == trace.Unmap {
		bytes = e.Unmapped
	}
	if e.TGID != uint32(os.Getpid()) {
		r.watched.mu.Lock()
		who = "the driver of " + r.watched.drivers[e.TGID]
		r.watched.mu.Unlock()
	}
	at := dma.Span{IOVA: uint64(e.IOVA), Bytes: bytes}
	r.mismatch(fmt.Sprintf("pid=%d tid=%d %s %v", e.TGID, e.TID, e.Kind, at), "no operation of device-manager: it was done in "+who)
}

// mismatch raises the alarm.
func (r *reconciler) mismatch(what, cause string) {
	r.mismatches.Add(1)
	if !r.match.limiter.allow(time.Now()) {
		r.match.unrecorded++
		return
	}
	r.log.Warn("the kernel did not do what device-manager asked for", "what", what, "cause", cause)
	r.append(dma.KindMismatch, fmt.Sprintf("%s cause=%q", what, clipped(cause)))
}

// writeMismatches records how many mismatches have no record of their own.
func (r *reconciler) writeMismatches(all bool) {
	if r.match.unrecorded == 0 || (!all && !r.match.limiter.allow(time.Now())) {
		return
	}
	if r.append(dma.KindMismatch, fmt.Sprintf("iommu more=%d", r.match.unrecorded)) {
		r.match.unrecorded = 0
	}
}

// countLost notes lost events.
func (r *reconciler) countLost() error {
	c, err := r.source.Counts()
	if err != nil {
		return err
	}
	n := c.Lost - r.match.seenLost + r.match.overrun
	r.match.seenLost, r.match.overrun = c.Lost, 0
	if n > 0 {
		r.match.blind = 2 // an operation may last into the next tick
		r.lost.Add(n)
		r.match.lostEvents += n
	}
	return nil
}

// writeLost records the number of lost events, which prevent a proof.
func (r *reconciler) writeLost() {
	events, operations := r.match.lostEvents, r.match.lostOps
	if events == 0 && operations == 0 {
		return
	}
	r.log.Warn("some of what the kernel mapped for devices could not be compared", "events", events, "operations", operations)
	if r.append(dma.KindLost, fmt.Sprintf("iommu events=%d operations=%d", events, operations)) {
		r.match.lostEvents, r.match.lostOps = 0, 0
	}
}
