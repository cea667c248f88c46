package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/audit/dma"
	"capgpu/gpuerr"
	"capgpu/iommu"
	"capgpu/iommu/trace"
)

func TestReconciles(t *testing.T) {
	b := newBench(t)
	for i := range iommu.IOVA(40) {
		b.grant(t, 1<<20+i<<24, uint64(1+rand.IntN(1024))*4096)
	}
	for at, bytes := range b.mapped {
		b.takeBack(t, at, bytes)
	}
	report, records := b.compare(t)
	require.Empty(t, report.Differences)
	require.Len(t, report.Rows, 2)
	require.EqualValues(t, 80, report.Rows[1].Matched)
	require.EqualValues(t, 82, b.operations.Load(), "with attach and close")
	require.Zero(t, b.mismatches.Load())
	require.Contains(t, recordsOf(records, dma.KindKernel)[0], "edu0 epoch=0 undone=0x0+8192")
}

// TestReconcileFlood: many mappings make few records, and can still be compared.
func TestReconcileFlood(t *testing.T) {
	b := newBench(t)
	var maps, unmaps, others dma.Sum // others: all but the first
	const many = 20000
	for i := range iommu.IOVA(many) {
		at := 1<<20 + i<<16
		require.NoError(t, b.domain.Map(at, hostMemory[:4096:4096], iommu.ReadWrite))
		require.NoError(t, b.domain.Unmap(at, 4096))
		span := dma.Span{IOVA: uint64(at), Bytes: 4096}
		maps.Add(span)
		unmaps = maps
		if i > 0 {
			others.Add(span)
		}
	}
	b.append(dma.KindSummary, "edu0 epoch=1 "+dma.Totals(maps, unmaps))
	report, records := b.compare(t)
	require.Empty(t, report.Differences)
	require.EqualValues(t, 2*many, report.Rows[1].Matched)
	require.Less(t, len(recordsOf(records, dma.KindKernel)), kernelBurst+30)

	wrong := dma.Totals(dma.SumOf(dma.Span{IOVA: 1, Bytes: 4096}).Plus(others), unmaps)
	for i := range records {
		if records[i].Kind == dma.KindSummary {
			records[i].Detail = "edu0 epoch=1 " + wrong
		}
	}
	require.False(t, dma.Compare(records).Agrees(), "one address of %d", many)
}

// TestReconcileMismatches: every difference in the kernel's actions is an alarm, and
// comparing the log shows it.
func TestReconcileMismatches(t *testing.T) {
	const at, bytes = 1 << 30, 1 << 20
	for name, c := range map[string]struct {
		kernel func(b *bench, op iommu.Op) error
		cause  string
	}{
		"nothing mapped": {func(b *bench, op iommu.Op) error { return nil }, "the kernel mapped nothing instead of 0x40000000+1048576"},
		"too short": {func(b *bench, op iommu.Op) error {
			b.kernel.did(trace.Map, at, bytes-4096)
			return nil
		}, "the kernel mapped 0x40000000+1044480 instead of"},
		"a hole": {func(b *bench, op iommu.Op) error {
			b.kernel.did(trace.Map, at, 4096)
			b.kernel.did(trace.Map, at+8192, bytes-8192)
			return nil
		}, "the kernel mapped 0x40000000+4096, 0x40002000+1040384 instead of"},
		"too much": {func(b *bench, op iommu.Op) error {
			b.kernel.did(trace.Map, at, bytes+4096)
			return nil
		}, "the kernel mapped 0x40000000+1052672 instead of"},
		"elsewhere, too": {func(b *bench, op iommu.Op) error {
			b.kernel.did(trace.Map, at, bytes)
			b.kernel.did(trace.Map, 4096, 4096)
			return nil
		}, "the kernel mapped 0x1000+4096, 0x40000000+1048576 instead of"},
		"twice": {func(b *bench, op iommu.Op) error {
			b.kernel.did(trace.Map, at, bytes)
			b.kernel.did(trace.Map, at, bytes)
			return nil
		}, "instead of"},
		"unmapped again": {func(b *bench, op iommu.Op) error {
			b.kernel.did(trace.Map, at, bytes)
			b.kernel.did(trace.Unmap, at, 4096)
			return nil
		}, "the kernel unmapped 0x40000000+4096"},
		"failed and left": {func(b *bench, op iommu.Op) error {
			b.kernel.did(trace.Map, at, 8192)
			b.kernel.did(trace.Unmap, at, 4096)
			return unix.ENOMEM
		}, "the kernel mapped 0x40000000+8192 and unmapped only 0x40000000+4096"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.instead = func(op iommu.Op) error {
				if op.Kind == iommu.OpMap {
					return c.kernel(b, op)
				}
				return nil
			}
			if err := b.domain.Map(at, hostMemory[:bytes:bytes], iommu.ReadWrite); err == nil {
				b.append(dma.KindMap, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=%d generation=1", at, bytes))
			}
			b.flush(t)
			require.EqualValues(t, 1, b.mismatches.Load())
			report, records := b.compare(t)
			alarms := recordsOf(records, dma.KindMismatch)
			require.Contains(t, alarms[0], "edu0 epoch=1 op=1 map 0x40000000+1048576 cause=")
			require.Contains(t, alarms[0], c.cause)
			require.False(t, report.Agrees())
		})
	}
}

func TestReconcileUnmapMismatches(t *testing.T) {
	const at, bytes = 1 << 30, 1 << 20
	for name, c := range map[string]struct {
		event trace.Event
		cause string
	}{
		"nothing":   {trace.Event{Bytes: bytes, IOVA: at}, "the kernel unmapped nothing instead of"},
		"short":     {trace.Event{Bytes: bytes, IOVA: at, Unmapped: 4096}, "the kernel unmapped 0x40000000+4096 instead of"},
		"more":      {trace.Event{Bytes: bytes, IOVA: at, Unmapped: 2 * bytes}, "the kernel unmapped 0x40000000+2097152 instead of"},
		"elsewhere": {trace.Event{Bytes: bytes, IOVA: 0, Unmapped: bytes}, "the kernel unmapped 0x0+1048576 instead of"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.grant(t, at, bytes)
			b.instead = func(op iommu.Op) error {
				if op.Kind == iommu.OpUnmap {
					b.kernel.did(trace.Unmap, c.event.IOVA, c.event.Bytes)
					b.kernel.events[len(b.kernel.events)-1].Unmapped = c.event.Unmapped
				}
				return nil
			}
			b.takeBack(t, at, bytes)
			b.flush(t)
			require.EqualValues(t, 1, b.mismatches.Load())
			report, records := b.compare(t)
			require.Contains(t, recordsOf(records, dma.KindMismatch)[0], c.cause)
			require.False(t, report.Agrees())
		})
	}
}

// TestReconcileStray: an action of the kernel for no operation, at any time, is an alarm.
func TestReconcileStray(t *testing.T) {
	b := newBench(t)
	b.kernel.did(trace.Map, 1<<30, 4096)
	b.grant(t, 1<<20, 4096)
	b.kernel.did(trace.Unmap, 1<<31, 4096)
	b.watch(99, "edu0")
	b.kernel.did(trace.Map, 1<<32, 4096)
	b.kernel.mu.Lock()
	b.kernel.events[len(b.kernel.events)-1].TGID = 99
	b.kernel.mu.Unlock()
	b.takeBack(t, 1<<20, 4096)
	b.flush(t)
	report, records := b.compare(t)
	require.EqualValues(t, 3, b.mismatches.Load())
	alarms := strings.Join(recordsOf(records, dma.KindMismatch), "\n")
	for _, want := range []string{" map 0x40000000+4096 cause=", " unmap 0x80000000+4096 cause=", "the driver of edu0"} {
		require.Contains(t, alarms, want)
	}
	require.False(t, report.Agrees())
	b.unwatch(99)
}

// TestReconcileCloseLeavesNothing: the mappings of a domain that is closed must go.
func TestReconcileCloseLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.grant(t, 1<<30, 8192)
	b.append(dma.KindKept, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=8192 generation=1", 1<<30))
	report, _ := b.compare(t)
	require.Empty(t, report.Differences)
	require.EqualValues(t, 1, report.Rows[1].Kept)

	b = newBench(t)
	b.grant(t, 1<<30, 8192)
	b.instead = func(iommu.Op) error { return nil }
	report, records := b.compare(t)
	require.Contains(t, recordsOf(records, dma.KindMismatch)[0], "edu0 epoch=1 op=2 close cause=")
	require.False(t, report.Agrees())
}

// TestReconcileFailedMapIsUndone: pieces that the kernel takes back itself are neither an
// alarm nor a difference.
func TestReconcileFailedMapIsUndone(t *testing.T) {
	b := newBench(t)
	b.instead = func(op iommu.Op) error {
		if op.Kind == iommu.OpMap {
			b.kernel.did(trace.Map, op.IOVA, 8192)
			b.kernel.did(trace.Unmap, op.IOVA+8192, 4096) // of the failed part
			b.kernel.did(trace.Unmap, op.IOVA, 8192)
			return unix.ENOMEM
		}
		return nil
	}
	require.Error(t, b.domain.Map(1<<30, hostMemory[:1<<20:1<<20], iommu.ReadWrite))
	b.instead = nil
	report, records := b.compare(t)
	require.Empty(t, report.Differences)
	require.Contains(t, strings.Join(recordsOf(records, dma.KindKernel), "\n"), "edu0 epoch=1 undone=0x40000000+8192")
}

// TestReconcileLost: lost events are no alarm, but prevent a proof.
func TestReconcileLost(t *testing.T) {
	b := newBench(t)
	b.instead = func(iommu.Op) error { return nil }
	b.kernel.mu.Lock()
	b.kernel.lost = 7
	b.kernel.mu.Unlock()
	b.grant(t, 1<<30, 4096)
	b.flush(t)
	require.Zero(t, b.mismatches.Load())
	require.EqualValues(t, 7, b.lost.Load())
	b.instead = nil
	b.takeBack(t, 1<<30, 4096)
	report, records := b.compare(t)
	require.Equal(t, []string{"iommu events=7 operations=0"}, recordsOf(records, dma.KindLost))
	require.False(t, report.Agrees())
	require.EqualValues(t, 7, report.Lost)
}

// TestReconcileSlowReader: a domain never waits for the comparison. Operations without room
// are counted, and are no alarm.
func TestReconcileSlowReader(t *testing.T) {
	rec := &opRecorder{name: "edu0"}
	for i := range uint64(maxOps + 10) {
		rec.Began(iommu.Op{Kind: iommu.OpMap, Bytes: 4096, Seq: i})
		rec.Ended(iommu.Op{Kind: iommu.OpMap, Bytes: 4096, Seq: i}, nil)
	}
	ended, open, dropped := rec.take()
	require.Len(t, ended, maxOps)
	require.Empty(t, open)
	require.EqualValues(t, 10, dropped)

	b := newBench(t)
	b.rec.Began(iommu.Op{Kind: iommu.OpMap, IOVA: 1 << 30, Bytes: 4096, Seq: 1 << 41, TID: unix.Gettid(), Start: uint64(monotonic())})
	b.kernel.did(trace.Map, 1<<30, 4096)
	b.rec.mu.Lock()
	b.rec.open, b.rec.dropped = nil, 1 // it ends, and there is no room
	b.rec.mu.Unlock()
	b.flush(t)
	require.Zero(t, b.mismatches.Load())
	report, records := b.compare(t)
	require.Equal(t, []string{"iommu events=0 operations=1"}, recordsOf(records, dma.KindLost))
	require.False(t, report.Agrees())
}

// TestReconcileManyMismatches: a repeated alarm does not fill the log.
func TestReconcileManyMismatches(t *testing.T) {
	b := newBench(t)
	for range 10000 {
		b.kernel.did(trace.Map, 1<<30, 4096)
	}
	b.flush(t)
	report, records := b.compare(t)
	require.EqualValues(t, 10000, b.mismatches.Load())
	alarms := recordsOf(records, dma.KindMismatch)
	require.LessOrEqual(t, len(alarms), mismatchBurst+10)
	require.Contains(t, alarms[len(alarms)-1], fmt.Sprintf("more=%d", 10000-len(alarms)+1))
	require.False(t, report.Agrees())
}

func TestReconcileWithoutKernel(t *testing.T) {
	none := func() (kernelSource, error) { return nil, gpuerr.New(gpuerr.Unimplemented, "no eBPF") }
	log := &testLog{}
	_, err := newReconciler(log, slog.New(slog.DiscardHandler), none, true)
	require.ErrorIs(t, err, gpuerr.Unimplemented)
	require.ErrorContains(t, err, "audit.requireKernel")
	r, err := newReconciler(log, slog.New(slog.DiscardHandler), none, false)
	require.NoError(t, err)
	rec := r.function("edu0", log, log)
	require.Nil(t, rec.observer(), "nobody need report")
	r.watch(1, "edu0")
	r.unwatch(1)
	require.NoError(t, r.Flush(t.Context()))
	require.NoError(t, r.Close())
	require.Equal(t, `edu0 source=iommu state=unavailable reason="E_UNIMPLEMENTED: no eBPF"`, log.records[0].Detail)
}

// TestReconcileSourceFails: when the kernel cannot be watched any more, the log says so.
func TestReconcileSourceFails(t *testing.T) {
	b := newBench(t)
	b.kernel.mu.Lock()
	b.kernel.failing = errors.New("broken")
	b.kernel.mu.Unlock()
	b.flush(t)
	<-b.done
	b.flush(t) // no waiting for what has ended
	report, records := b.compare(t)
	sources := recordsOf(records, dma.KindSource)
	require.Equal(t, `edu0 source=iommu state=unavailable reason="broken"`, sources[len(sources)-1])
	require.False(t, report.Agrees())
}

func BenchmarkObserver(b *testing.B) {
	rec := &opRecorder{name: "edu0"}
	op := iommu.Op{Kind: iommu.OpMap, Bytes: 4096}
	for b.Loop() {
		op.Seq++
		rec.Began(op)
		rec.Ended(op, nil)
		if op.Seq%1024 == 0 {
			rec.take()
		}
	}
}
