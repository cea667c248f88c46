package manager

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/audit/dma"
	"capgpu/ddf"
	"capgpu/iommu"
	"capgpu/iommu/trace"
)

// fakeKernel is a kernelSource with the events of a test.
type fakeKernel struct {
	mu      sync.Mutex
	events  []trace.Event
	lost    uint64
	wake    chan struct{}
	failing error
}

func newFakeKernel() *fakeKernel { return &fakeKernel{wake: make(chan struct{}, 1)} }

func (k *fakeKernel) Read(deadline time.Time, fn func(trace.Event)) error {
	if wait := time.Until(deadline); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-k.wake:
		}
	}
	k.mu.Lock()
	events, err := k.events, k.failing
	k.events = nil
	k.mu.Unlock()
	for _, e := range events {
		fn(e)
	}
	return err
}

func (k *fakeKernel) Kick() error {
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}
func (k *fakeKernel) Watch(int) error   { return nil }
func (k *fakeKernel) Unwatch(int) error { return nil }
func (k *fakeKernel) FindVFIO() error   { return nil }
func (k *fakeKernel) Close() error      { return nil }

func (k *fakeKernel) Counts() (trace.Counts, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return trace.Counts{Lost: k.lost}, nil
}

// did adds an event of the calling thread.
func (k *fakeKernel) did(kind trace.Kind, iova iommu.IOVA, bytes uint64) {
	e := trace.Event{Time: monotonic(), TGID: uint32(os.Getpid()), TID: uint32(unix.Gettid()), Kind: kind, IOVA: iova, Bytes: bytes}
	if kind == trace.Unmap {
		e.Unmapped = bytes
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, e)
}

// bench is a reconciler over a fake kernel and the fake domain of edu0. The fake kernel does
// in pieces what the domain is asked for.
type bench struct {
	kernel *fakeKernel
	domain *iommu.Fake
	rec    *opRecorder
	*reconciler

	path string
	log  AuditLog
	// instead, if not nil, plays the kernel for an operation; it returns the error of the
	// ioctl.
	instead func(op iommu.Op) error
	mapped  map[iommu.IOVA]uint64
}

func newBench(t *testing.T) *bench {
	t.Helper()
	runtime.LockOSThread() // the fake kernel's events are of this thread, as the operations are
	t.Cleanup(runtime.UnlockOSThread)
	b := &bench{kernel: newFakeKernel(), path: t.TempDir() + "/audit.log", mapped: map[iommu.IOVA]uint64{}}
	log, err := audit.Open(b.path, audit.Options{})
	require.NoError(t, err)
	b.log = log
	t.Cleanup(func() { _ = log.Close() })
	b.reconciler, err = newReconciler(b.log, slog.New(slog.DiscardHandler), func() (kernelSource, error) { return b.kernel, nil }, true)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	b.rec = b.function("edu0", log, log)
	attach := iommu.Op{Kind: iommu.OpAttach, Seq: 1 << 40, TID: unix.Gettid(), Start: uint64(monotonic())}
	b.rec.Began(attach)
	b.kernel.did(trace.Map, 0, 8192)
	b.kernel.did(trace.Unmap, 0, 4096)
	b.kernel.did(trace.Unmap, 4096, 4096)
	attach.End = uint64(monotonic())
	b.rec.Ended(attach, nil)
	b.flush(t)
	b.domain = iommu.NewFake([]iommu.Range{{Start: 0, End: 1 << 40}}, 1<<16)
	b.domain.Fail(b.act)
	b.domain.Observe(b.rec)
	b.SetEpoch(1)
	b.append("driver.start", "edu0 epoch=1 path=/x")
	return b
}

func (b *bench) SetEpoch(n uint64) { b.rec.SetEpoch(n) }

func (b *bench) flush(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, b.Flush(ctx))
}

// act plays the kernel.
func (b *bench) act(op iommu.Op) error {
	if b.instead != nil {
		return b.instead(op)
	}
	switch op.Kind {
	case iommu.OpMap:
		b.mapped[op.IOVA] = op.Bytes
		for at, left := op.IOVA, op.Bytes; left > 0; {
			n := min(left, uint64(1+rand.IntN(64))*4096)
			b.kernel.did(trace.Map, at, n)
			at, left = at+iommu.IOVA(n), left-n
		}
	case iommu.OpUnmap:
		delete(b.mapped, op.IOVA)
		b.kernel.did(trace.Unmap, op.IOVA, op.Bytes)
	case iommu.OpClose:
		for at, n := range b.mapped {
			b.kernel.did(trace.Unmap, at, n)
		}
	}
	return nil
}

// hostMemory is memory of any number of pages.
var hostMemory = make([]byte, 8<<20)

// grant maps and unmaps as the manager does, and records it.
func (b *bench) grant(t *testing.T, at iommu.IOVA, bytes uint64) {
	t.Helper()
	require.NoError(t, b.domain.Map(at, hostMemory[:bytes:bytes], iommu.ReadWrite))
	b.append(dma.KindMap, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=%d generation=1", uint64(at), bytes))
}

func (b *bench) takeBack(t *testing.T, at iommu.IOVA, bytes uint64) {
	t.Helper()
	require.NoError(t, b.domain.Unmap(at, bytes))
	b.append(dma.KindUnmap, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=%d generation=1", uint64(at), bytes))
}

// compare ends all mappings and compares the log's two accounts, as gpuctl does.
func (b *bench) compare(t *testing.T) (*dma.Report, []ddf.AuditRecord) {
	t.Helper()
	b.flush(t)
	b.append("driver.end", "edu0 epoch=1 freed=0")
	require.NoError(t, b.domain.Close())
	b.flush(t)
	b.append("manager.stop", "pid=1")
	require.NoError(t, b.log.Sync())
	records, err := audit.Read(b.path, 0, 1<<20)
	require.NoError(t, err)
	return dma.Compare(records), records
}

func recordsOf(records []ddf.AuditRecord, kind string) (details []string) {
	for _, r := range records {
		if r.Kind == kind {
			details = append(details, r.Detail)
		}
	}
	return details
}
