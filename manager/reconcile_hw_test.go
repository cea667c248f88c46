package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/audit/dma"
	"capgpu/internal/pci"
	"capgpu/internal/uapi/vfio"
	"capgpu/iommu"
	"capgpu/iommu/trace"
)

// hwGroup binds the first function of CAPGPU_HW to vfio-pci and returns its group.
// It needs a machine with an IOMMU and a function to spare; qemu/cmd/guest-run makes
// one.
func hwGroup(t *testing.T) int {
	t.Helper()
	address, _, _ := strings.Cut(os.Getenv("CAPGPU_HW"), ",")
	if address == "" {
		t.Skip("SKIPPED, no hardware: CAPGPU_HW names no PCI function")
	}
	at, err := pci.ParseAddress(address)
	require.NoError(t, err)
	claimer, err := pci.NewClaimer(&pci.Bus{}, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, claimer.Close()) })
	_, err = claimer.Claim(at)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := claimer.Release(at)
		require.NoError(t, err)
	})
	link, err := os.Readlink(filepath.Join("/sys/bus/pci/devices", address, "iommu_group"))
	require.NoError(t, err)
	group, err := strconv.Atoi(filepath.Base(link))
	require.NoError(t, err)
	return group
}

// spy is a vfio.Kernel that remembers the container, for maps that bypass the manager.
type spy struct {
	vfio.Kernel
	container int
}

func (s *spy) Open(path string) (int, error) {
	fd, err := s.Kernel.Open(path)
	if strings.HasSuffix(path, "/vfio") {
		s.container = fd
	}
	return fd, err
}

// realBench is a bench over the kernel itself.
type realBench struct {
	*bench
	domain *iommu.Type1
	spy    *spy
}

func newRealBench(t *testing.T, ringBytes int) *realBench {
	group := hwGroup(t)
	b := &bench{path: t.TempDir() + "/audit.log"}
	log, err := audit.Open(b.path, audit.Options{})
	require.NoError(t, err)
	b.log = log
	t.Cleanup(func() { _ = log.Close() })
	opened := time.Now()
	b.reconciler, err = newReconciler(b.log, slog.New(slog.NewTextHandler(os.Stderr, nil)), func() (kernelSource, error) {
		return trace.Open(trace.Options{RingBytes: ringBytes})
	}, true)
	require.NoError(t, err)
	t.Logf("the kernel is watched after %v", time.Since(opened))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	b.rec = b.function("edu0", log, log)
	r := &realBench{bench: b, spy: &spy{Kernel: vfio.System{}, container: -1}}
	r.domain, err = iommu.OpenType1(group, iommu.Options{Observer: b.rec.observer(), Kernel: r.spy})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.domain.Close()) })
	b.flush(t)
	b.SetEpoch(1)
	b.append("driver.start", "edu0 epoch=1 path=/x")
	return r
}

func (b *realBench) compare(t *testing.T) *dma.Report {
	t.Helper()
	b.flush(t)
	b.append("driver.end", "edu0 epoch=1 freed=0")
	require.NoError(t, b.domain.Close())
	b.flush(t)
	b.append("manager.stop", "pid=1")
	require.NoError(t, b.log.Sync())
	records, err := audit.Read(b.path, 0, 1<<20)
	require.NoError(t, err)
	for _, r := range records {
		if !strings.HasPrefix(r.Kind, "dma.") {
			t.Log(audit.Format(r))
		}
	}
	return dma.Compare(records)
}

// hwMemory returns memory with few adjacent pages.
func hwMemory(t *testing.T, bytes int) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate("reconcile", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, int64(bytes)))
	b, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	for _, page := range rand.Perm(bytes >> 12) { // the kernel hands out adjacent pages
		b[page<<12] = 1
	}
	return b
}

// TestHardwareReconciles maps and unmaps at random, in several threads at once: the kernel
// reports each of them and nothing else.
func TestHardwareReconciles(t *testing.T) {
	b := newRealBench(t, 0)
	const threads = 4
	each := 10000 / threads
	if testing.Short() {
		each /= 10
	}
	var mu sync.Mutex
	var maps, unmaps dma.Sum
	var running sync.WaitGroup
	began := time.Now()
	for thread := range threads {
		host := hwMemory(t, 64<<12)
		running.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(thread)))
			live := map[iommu.IOVA]uint64{}
			next := iommu.IOVA(1<<32 + thread<<33)
			unmap := func(at iommu.IOVA, bytes uint64) {
				if err := b.domain.Unmap(at, bytes); err != nil {
					t.Error(err)
				}
				delete(live, at)
				mu.Lock()
				defer mu.Unlock()
				unmaps.Add(dma.Span{IOVA: uint64(at), Bytes: bytes})
			}
			for range each {
				if len(live) > 0 && rng.IntN(2) == 0 {
					for at, bytes := range live {
						unmap(at, bytes)
						break
					}
				}
				off := rng.IntN(64)
				bytes := uint64(1+rng.IntN(64-off)) << 12
				if err := b.domain.Map(next, host[off<<12:off<<12+int(bytes)], iommu.ReadWrite); err != nil {
					t.Error(err)
					return
				}
				live[next] = bytes
				mu.Lock()
				maps.Add(dma.Span{IOVA: uint64(next), Bytes: bytes})
				mu.Unlock()
				next += iommu.IOVA(bytes) + 4096
				for at, bytes := range live {
					if len(live) < 200 {
						break
					}
					unmap(at, bytes)
				}
			}
			for at, bytes := range live {
				unmap(at, bytes)
			}
		})
	}
	running.Wait()
	t.Logf("%d maps and as many unmaps of %d bytes in %v", maps.Count, maps.Bytes, time.Since(began))
	b.append(dma.KindSummary, "edu0 epoch=1 "+dma.Totals(maps, unmaps))
	report := b.compare(t)
	require.Empty(t, report.Differences)
	require.Zero(t, b.mismatches.Load())
	require.EqualValues(t, 2*maps.Count, report.Rows[1].Matched)
	c, err := b.source.Counts()
	require.NoError(t, err)
	t.Logf("%d operations, %+v", b.operations.Load(), c)
}

// TestHardwareBehindTheBack: maps and unmaps of this process that bypass the domain are
// found.
func TestHardwareBehindTheBack(t *testing.T) {
	b := newRealBench(t, 0)
	host := hwMemory(t, 1<<20)
	k := vfio.System{}
	require.NoError(t, b.domain.Map(1<<32, host[:8192], iommu.ReadWrite))
	b.append(dma.KindMap, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=8192 generation=1", 1<<32))
	require.NoError(t, k.MapDMA(b.spy.container, &vfio.DMAMap{Flags: vfio.DMAMapRead | vfio.DMAMapWrite, Vaddr: vfio.Address(host), IOVA: 1 << 33, Size: 4096}))
	b.flush(t)
	require.NotZero(t, b.mismatches.Load(), "a map")
	found := b.mismatches.Load()
	require.NoError(t, k.UnmapDMA(b.spy.container, &vfio.DMAUnmap{IOVA: 1 << 33, Size: 4096}))
	b.flush(t)
	require.Greater(t, b.mismatches.Load(), found, "an unmap")
	require.NoError(t, b.domain.Unmap(1<<32, 8192))
	b.append(dma.KindUnmap, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=8192 generation=1", 1<<32))
	report := b.compare(t)
	require.False(t, report.Agrees())
	require.Contains(t, strings.Join(report.Differences, "\n"), "map 0x200000000+4096 cause=\"no operation of device-manager")
	require.EqualValues(t, 2, report.Rows[1].Matched, "the rest agrees")
}

// TestHardwareClose: remaining mappings go when the domain is closed, and the kernel reports
// each.
func TestHardwareClose(t *testing.T) {
	b := newRealBench(t, 0)
	host := hwMemory(t, 1<<20)
	for i := range 10 {
		at := iommu.IOVA(1<<32 + i<<21)
		require.NoError(t, b.domain.Map(at, host[:8192*(i+1)], iommu.ReadWrite))
		for _, kind := range []string{dma.KindMap, dma.KindKept} {
			b.append(kind, fmt.Sprintf("edu0 epoch=1 iova=%#x bytes=%d generation=1", uint64(at), 8192*(i+1)))
		}
	}
	report := b.compare(t)
	require.Empty(t, report.Differences)
	require.Zero(t, b.mismatches.Load())
	require.EqualValues(t, 10, report.Rows[1].KernelUnmaps.Count)
}

// TestHardwareOverflow: a ring that is too small loses events, reports that, and delays no
// map.
func TestHardwareOverflow(t *testing.T) {
	b := newRealBench(t, os.Getpagesize())
	host := hwMemory(t, 16<<20)
	for range 3 { // in some thousand pieces each
		require.NoError(t, b.domain.Map(1<<32, host, iommu.ReadWrite))
		require.NoError(t, b.domain.Unmap(1<<32, uint64(len(host))))
	}
	report := b.compare(t)
	require.NotZero(t, b.lost.Load())
	require.EqualValues(t, b.lost.Load(), report.Lost)
	require.False(t, report.Agrees())
}

// TestHardwareFailedMap: the unmaps that vfio makes when a map fails half-way are no alarm.
func TestHardwareFailedMap(t *testing.T) {
	b := newRealBench(t, 0)
	fd, err := unix.MemfdCreate("short", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, 1<<20))
	host, err := unix.Mmap(fd, 0, 2<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(host)
	err = b.domain.Map(1<<32, host, iommu.ReadWrite) // half of it has no memory
	require.Error(t, err)
	require.False(t, errors.Is(err, unix.EBUSY))
	report := b.compare(t)
	require.Empty(t, report.Differences)
	require.Zero(t, b.mismatches.Load())
}
