package manager

import (
	"log/slog"
	"time"

	"capgpu/audit/dma"
)

// The kernel's account of a function has single records of spans: a burst, and then one per
// kernelInterval. Further spans are summed up, in at most one record per summaryDelay.
const (
	kernelBurst    = 64
	kernelInterval = time.Second
	listDelay      = 250 * time.Millisecond // so that several spans share a record
)

// kernelBook writes the kernel's account of one function to the audit log. It
// belongs to the reconciler's goroutine.
type kernelBook struct {
	audit AuditLog
	log   *slog.Logger
	pace  bucket

	list   dma.Kernel // spans that wait for a record; its epoch is the book's
	spans  int        // in list
	since  time.Time  // of the first of them
	sums   dma.Kernel // the same for sums
	summed time.Time  // when the last record of sums was written
	failed bool       // the last write failed
}

func newKernelBook(function string, audit AuditLog, log *slog.Logger, now time.Time) *kernelBook {
	b := &kernelBook{audit: audit, log: log, pace: newBucket(kernelBurst, kernelInterval, now)}
	b.list.Function, b.sums.Function = function, function
	return b
}

// add notes actions of the kernel.
func (b *kernelBook) add(k dma.Kernel, now time.Time) {
	if k.Epoch != b.list.Epoch {
		b.flush(now, true)
		b.move(k.Epoch)
	}

	for _, l := range []struct {
		to    *[]dma.Span
		spans []dma.Span
	}{{&b.list.Map, k.Map}, {&b.list.Unmap, k.Unmap}, {&b.list.Close, k.Close}, {&b.list.Undone, k.Undone}} {
		for _, s := range l.spans {
			if b.spans == 0 {
				b.since = now
			}
			*l.to = append(*l.to, s)
			if b.spans++; b.spans == dma.MaxSpans {
				b.write(now)
			}
		}
	}
}

// move begins another epoch. Sums that could not be written so far now join the new one.
func (b *kernelBook) move(epoch uint64) {
	if b.spans > 0 || !b.sums.Empty() {
		b.log.Warn("what the kernel did, and no record tells of", "epoch", b.list.Epoch, "account", b.sums.Detail())
	}
	b.list = dma.Kernel{Function: b.list.Function, Epoch: epoch}
	b.sums, b.spans = b.list, 0
}

// flush writes the records that are due; with all, every record is due.
func (b *kernelBook) flush(now time.Time, all bool) {
	if b.spans > 0 && (all || now.Sub(b.since) >= listDelay) {
		b.write(now)
	}
	if !b.sums.Empty() && (all || now.Sub(b.summed) >= summaryDelay) && b.append(b.sums) {
		b.sums = dma.Kernel{Function: b.list.Function, Epoch: b.list.Epoch}
		b.summed = now
	}
}

// write empties the list: into a record, or into the sums.
func (b *kernelBook) write(now time.Time) {
	if !b.pace.allow(now) || !b.append(b.list) {
		b.sumUp()
		return
	}
	b.list, b.spans = dma.Kernel{Function: b.list.Function, Epoch: b.list.Epoch}, 0
}

func (b *kernelBook) sumUp() {
	s, l := &b.sums, &b.list
	s.Maps, s.Unmaps = s.Maps.Plus(dma.SumOf(l.Map...)), s.Unmaps.Plus(dma.SumOf(l.Unmap...))
	s.Closes = s.Closes.Plus(dma.SumOf(l.Close...))
	s.MoreUndone += uint64(len(l.Undone))
	*l, b.spans = dma.Kernel{Function: l.Function, Epoch: l.Epoch}, 0
}

func (b *kernelBook) append(k dma.Kernel) bool {
	_, err := b.audit.Append(dma.KindKernel, "", k.Detail())
	if err != nil && !b.failed {
		b.log.Warn("the audit log takes no records of what the kernel mapped", "err", err)
	}
	b.failed = err != nil
	return err == nil
}
