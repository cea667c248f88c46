package ddftest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ddf"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

var dmaTests = []test{
	{"ZeroedAndWritable", testZeroed},
	{"SizeRoundsUpToPages", testRounding},
	{"QuotaIsExact", testQuota},
	{"BadSizes", testBadSizes},
	{"GenerationMovesOn", testGeneration},
	{"RangesNeverOverlapOrTouch", testRanges},
	{"MemoryIsSealed", testSealed},
	{"ClientSeesTheSameBytes", testShared},
	{"Scrub", testScrub},
	{"DeviceSeesTheScrub", testDeviceScrub},
	{"PinnedMemoryKeepsItsPages", testPinned},
	{"FreeScrubsForEveryHolder", testFreeScrubs},
	{"UseAfterFree", testUseAfterFree},
	{"CancelledContext", testCancelled},
	{"ConcurrentAllocFree", testConcurrent},
	{"NothingLeaks", testNothingLeaks},
	{"UnmappedWhenFreed", testUnmapped},
}

// alloc allocates and frees with the test.
func alloc(t *testing.T, h Harness, bytes uint64) ddf.DMABuffer {
	t.Helper()
	b, err := h.Grants.DMA.Alloc(within(t), bytes)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Free() })
	return b
}

func allZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

func testZeroed(t *testing.T, h Harness) {
	const size = 64 << 10
	for range 3 { // later rounds get pages that earlier ones have dirtied, if any are reused
		b, err := h.Grants.DMA.Alloc(within(t), size)
		require.NoError(t, err)
		require.Len(t, b.Bytes(), size)
		require.True(t, allZero(b.Bytes()), "new memory is not zero")
		for i := range b.Bytes() {
			b.Bytes()[i] = 0xa5
		}
		require.NoError(t, b.Free())
	}
}

func testRounding(t *testing.T, h Harness) {
	for asked, want := range map[uint64]uint64{1: 4096, 4095: 4096, 4096: 4096, 4097: 8192} {
		before := h.Grants.DMA.Usage().UsedBytes
		b := alloc(t, h, asked)
		require.Equal(t, want, b.Size())
		require.Len(t, b.Bytes(), int(want))
		require.Zero(t, uint64(b.IOVA())%ddf.PageBytes)
		require.Equal(t, before+want, h.Grants.DMA.Usage().UsedBytes, "the charge is of whole pages")
	}
}

func testQuota(t *testing.T, h Harness) {
	pool := h.Grants.DMA
	start := pool.Usage()
	available := (start.LimitBytes - start.UsedBytes) &^ (ddf.PageBytes - 1)
	require.NotZero(t, available, "the harness must leave room to allocate")

	_, err := pool.Alloc(within(t), available+ddf.PageBytes)
	require.ErrorIs(t, err, gpuerr.Quota)
	require.Equal(t, start, pool.Usage(), "a refusal charges nothing")

	all := alloc(t, h, available)
	require.Equal(t, start.UsedBytes+available, pool.Usage().UsedBytes)
	require.Equal(t, start.Entries+1, pool.Usage().Entries)
	_, err = pool.Alloc(within(t), ddf.PageBytes)
	var refusal *gpuerr.Error
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, gpuerr.Quota, refusal.Code)
	require.Equal(t, "deviceMemory", refusal.Resource)
	require.EqualValues(t, ddf.PageBytes, refusal.Asked)
	require.Less(t, refusal.Available, uint64(ddf.PageBytes))

	require.NoError(t, all.Free())
	require.Equal(t, start, pool.Usage(), "Free returns the charge")
	alloc(t, h, available)
}

func testBadSizes(t *testing.T, h Harness) {
	before := h.Grants.DMA.Usage()
	_, err := h.Grants.DMA.Alloc(within(t), 0)
	require.ErrorIs(t, err, gpuerr.Invalid)
	for _, huge := range []uint64{math.MaxUint64, math.MaxUint64 - ddf.PageBytes + 2, math.MaxInt64, 1 << 63} {
		_, err := h.Grants.DMA.Alloc(within(t), huge)
		require.Error(t, err)
		require.Contains(t, []gpuerr.Code{gpuerr.Quota, gpuerr.Invalid, gpuerr.IO}, gpuerr.CodeOf(err))
	}
	require.Equal(t, before, h.Grants.DMA.Usage())
}

func testGeneration(t *testing.T, h Harness) {
	var last uint64
	for range 8 {
		b, err := h.Grants.DMA.Alloc(within(t), ddf.PageBytes)
		require.NoError(t, err)
		require.Greater(t, b.Generation(), last)
		last = b.Generation()
		require.NoError(t, b.Free())
		require.Equal(t, last, b.Generation(), "a buffer keeps its generation")
	}
}

func testRanges(t *testing.T, h Harness) {
	type span struct{ lo, hi uint64 }
	var seen []span
	for i := range 24 {
		b := alloc(t, h, uint64(1+i%5)*ddf.PageBytes)
		lo := uint64(b.IOVA())
		require.NotZero(t, lo, "address 0 must stay unmapped")
		s := span{lo, lo + b.Size()}
		for _, other := range seen {
			require.False(t, s.lo <= other.hi && other.lo <= s.hi,
				"[%#x, %#x) overlaps or touches [%#x, %#x); an overrun would not fault", s.lo, s.hi, other.lo, other.hi)
		}
		seen = append(seen, s)
		if i%3 == 0 {
			require.NoError(t, b.Free()) // its range must not come back either
		}
	}
}

func testSealed(t *testing.T, h Harness) {
	b := alloc(t, h, 3*ddf.PageBytes)
	const want = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	seals, err := unix.FcntlInt(uintptr(b.FD()), unix.F_GET_SEALS, 0)
	require.NoError(t, err)
	require.Equal(t, want, seals&want, "a client could truncate the memory under the driver")
	require.ErrorIs(t, unix.Ftruncate(b.FD(), 0), unix.EPERM)
	flags, err := unix.FcntlInt(uintptr(b.FD()), unix.F_GETFD, 0)
	require.NoError(t, err)
	require.NotZero(t, flags&unix.FD_CLOEXEC, "a child process would inherit the memory")
}

// clientMap is the memory as a client that was sent the descriptor maps it.
func clientMap(t *testing.T, b ddf.DMABuffer) []byte {
	t.Helper()
	m, err := unix.Mmap(b.FD(), 0, int(b.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(m)) })
	return m
}

func testShared(t *testing.T, h Harness) {
	b := alloc(t, h, 2*ddf.PageBytes)
	client := clientMap(t, b)
	client[0], client[len(client)-1] = 1, 2
	require.Equal(t, byte(1), b.Bytes()[0])
	require.Equal(t, byte(2), b.Bytes()[b.Size()-1])
	b.Bytes()[5000] = 3
	require.Equal(t, byte(3), client[5000])
}

func testScrub(t *testing.T, h Harness) {
	b := alloc(t, h, 4*ddf.PageBytes)
	for i := range b.Bytes() {
		b.Bytes()[i] = 0xff
	}

	require.NoError(t, b.Scrub(ddf.PageBytes, 2*ddf.PageBytes))
	require.True(t, allZero(b.Bytes()[ddf.PageBytes:3*ddf.PageBytes]))
	require.Equal(t, byte(0xff), b.Bytes()[ddf.PageBytes-1])
	require.Equal(t, byte(0xff), b.Bytes()[3*ddf.PageBytes])
	b.Bytes()[ddf.PageBytes] = 7 // scrubbed pages can be used again
	require.Equal(t, byte(7), b.Bytes()[ddf.PageBytes])
	require.NoError(t, b.Scrub(0, 0))
	for _, bad := range [][2]uint64{
		{1, ddf.PageBytes}, {0, 1}, {0, 5 * ddf.PageBytes}, {5 * ddf.PageBytes, ddf.PageBytes},
		{math.MaxUint64 &^ (ddf.PageBytes - 1), 2 * ddf.PageBytes}, {ddf.PageBytes, math.MaxUint64 &^ (ddf.PageBytes - 1)},
	} {
		require.ErrorIs(t, b.Scrub(bad[0], bad[1]), gpuerr.Invalid, "Scrub(%#x, %#x)", bad[0], bad[1])
	}

	require.Equal(t, byte(0xff), b.Bytes()[0], "a refused scrub has no effect")
}

// Scrubbed memory is zero for the device as well, and both go on seeing the same.
func testDeviceScrub(t *testing.T, h Harness) {
	hook(t, "DeviceReads", h.DeviceReads != nil)
	b := alloc(t, h, 3*ddf.PageBytes)
	for i := range b.Bytes() {
		b.Bytes()[i] = 0x77
	}
	require.Equal(t, b.Bytes(), h.DeviceReads(t, b.IOVA(), b.Size()))
	require.NoError(t, b.Scrub(ddf.PageBytes, ddf.PageBytes))
	require.Equal(t, b.Bytes(), h.DeviceReads(t, b.IOVA(), b.Size()), "the device has other pages than the driver")
	require.True(t, allZero(h.DeviceReads(t, b.IOVA()+ddf.PageBytes, ddf.PageBytes)))
	b.Bytes()[ddf.PageBytes] = 1
	require.EqualValues(t, 1, h.DeviceReads(t, b.IOVA()+ddf.PageBytes, 1)[0])
}

func testPinned(t *testing.T, h Harness) {
	hook(t, "Pinned", h.Pinned)
	b := alloc(t, h, 4*ddf.PageBytes)
	client := clientMap(t, b)
	pages := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(b.FD(), &st))
		return st.Blocks
	}
	for i := range b.Bytes() {
		b.Bytes()[i] = 0x77
	}

	before := pages()
	require.NoError(t, b.Scrub(0, b.Size()))
	require.Equal(t, before, pages(), "pages that the device has were given back to the host")
	require.True(t, allZero(client))
}

func testFreeScrubs(t *testing.T, h Harness) {
	b := alloc(t, h, 2*ddf.PageBytes)
	client := clientMap(t, b)
	for i := range client {
		client[i] = 0x5a
	}
	require.NoError(t, b.Free())
	require.True(t, allZero(client), "who still maps freed memory reads what was in it")
}

func testUseAfterFree(t *testing.T, h Harness) {
	start := h.Grants.DMA.Usage()
	b := alloc(t, h, ddf.PageBytes)
	require.NoError(t, b.Free())
	require.Equal(t, start, h.Grants.DMA.Usage())
	require.NoError(t, b.Free(), "Free is idempotent")
	require.Equal(t, start, h.Grants.DMA.Usage(), "the second Free returns nothing")
	err := b.Scrub(0, ddf.PageBytes)
	require.Contains(t, []gpuerr.Code{gpuerr.Stale, gpuerr.Revoked, gpuerr.Closed}, gpuerr.CodeOf(err))
	require.Empty(t, b.Bytes())
	require.Negative(t, b.FD())
	_, _, _ = b.IOVA(), b.Size(), b.Generation()
}

func testCancelled(t *testing.T, h Harness) {
	before := h.Grants.DMA.Usage()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Grants.DMA.Alloc(ctx, ddf.PageBytes)
	require.Error(t, err)
	require.Equal(t, before, h.Grants.DMA.Usage())
}

func testConcurrent(t *testing.T, h Harness) {
	const workers = 8
	each := rounds(25)
	pool, start := h.Grants.DMA, h.Grants.DMA.Usage()
	var (
		mu    sync.Mutex
		spans [][2]uint64
		wg    sync.WaitGroup
	)
	ctx := within(t)
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				b, err := pool.Alloc(ctx, uint64(1+(w+i)%4)*ddf.PageBytes)
				if errors.Is(err, gpuerr.Quota) {
					continue
				}
				if err != nil {
					t.Errorf("Alloc: %v", err)
					return
				}
				b.Bytes()[0] = byte(w)
				mu.Lock()
				spans = append(spans, [2]uint64{uint64(b.IOVA()), uint64(b.IOVA()) + b.Size()})
				mu.Unlock()
				if u := pool.Usage(); u.UsedBytes > u.LimitBytes {
					t.Errorf("used %d of %d", u.UsedBytes, u.LimitBytes)
				}
				if b.Bytes()[0] != byte(w) {
					t.Error("two live buffers share memory")
				}
				var frees sync.WaitGroup
				for range 2 {
					frees.Go(func() {
						if err := b.Free(); err != nil {
							t.Errorf("Free: %v", err)
						}
					})
				}
				frees.Wait()
			}
		})
	}

	wg.Wait()
	require.Equal(t, start, pool.Usage())
	slices.SortFunc(spans, func(a, b [2]uint64) int {
		if a[0] < b[0] {
			return -1
		}
		return 1
	})
	for i := 1; i < len(spans); i++ {
		require.Less(t, spans[i-1][1], spans[i][0], "IOVA ranges were reused or touch")
	}
}

func testNothingLeaks(t *testing.T, h Harness) {
	warm, err := h.Grants.DMA.Alloc(within(t), ddf.PageBytes)
	require.NoError(t, err)
	require.NoError(t, warm.Free())
	leakcheck.Check(t)
	for range rounds(50) {
		b, err := h.Grants.DMA.Alloc(within(t), 3*ddf.PageBytes)
		require.NoError(t, err)
		b.Bytes()[0] = 1
		require.NoError(t, b.Free())
		_, err = h.Grants.DMA.Alloc(within(t), math.MaxInt64)
		require.Error(t, err)
	}
}

func testUnmapped(t *testing.T, h Harness) {
	hook(t, "Mapped", h.Mapped != nil)
	b := alloc(t, h, 2*ddf.PageBytes)
	require.True(t, h.Mapped(b.IOVA(), b.Size()))
	require.False(t, h.Mapped(b.IOVA(), b.Size()+1), "the device reaches beyond the buffer")
	require.False(t, h.Mapped(b.IOVA()-1, 1), "the device reaches before the buffer")
	require.NoError(t, b.Free())
	require.False(t, h.Mapped(b.IOVA(), 1), "the device reaches freed memory")
}
