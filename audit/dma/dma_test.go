package dma

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/ddf"
)

// TestSum: neither order nor division into records matters, and every change does.
func TestSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spans := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Span {
			return Span{rapid.Uint64().Draw(t, "iova"), rapid.Uint64().Draw(t, "bytes")}
		})).Draw(t, "spans")
		whole := SumOf(spans...)
		require.EqualValues(t, len(spans), whole.Count)
		cut := rapid.IntRange(0, len(spans)).Draw(t, "cut")
		parts := SumOf(spans[cut:]...).Plus(SumOf(spans[:cut]...))
		require.Equal(t, whole, parts)
		var again Sum
		require.NoError(t, again.setHash(whole.Hash()))
		require.Equal(t, whole.Hash(), again.Hash())
		if len(spans) > 0 {
			changed := slices.Clone(spans)
			i := rapid.IntRange(0, len(spans)-1).Draw(t, "i")
			if rapid.Bool().Draw(t, "iova?") {
				changed[i].IOVA ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit")
			} else {
				changed[i].Bytes ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit")
			}
			require.NotEqual(t, whole.Hash(), SumOf(changed...).Hash())
		}
	})
	require.Equal(t, "c3d7e5cf3d22745953a4c1d91240b873", SumOf(Span{4096, 8192}).Hash(), "an auditor's own program must agree")
}

func TestKernelRoundTrip(t *testing.T) {
	spans := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Span {
		return Span{rapid.Uint64().Draw(t, "iova"), rapid.Uint64().Draw(t, "bytes")}
	}), 0, MaxSpans/4)
	sum := func(t *rapid.T, name string) (s Sum) {
		if rapid.Bool().Draw(t, name) {
			s = SumOf(spans.Draw(t, name)...)
		}
		return s
	}
	rapid.Check(t, func(t *rapid.T) {
		list := func(name string) (l []Span) {
			if l = spans.Draw(t, name); len(l) == 0 {
				l = nil
			}
			return l
		}
		k := Kernel{
			Function: "edu0", Epoch: rapid.Uint64().Draw(t, "epoch"), Map: list("map"), Unmap: list("unmap"), Close: list("close"), Undone: list("undone"),
			MoreUndone: rapid.Uint64().Draw(t, "more"), Maps: sum(t, "maps"), Unmaps: sum(t, "unmaps"), Closes: sum(t, "closes"),
		}
		require.LessOrEqual(t, len(k.Detail()), 1024+400) // lists and sums are never in one record
		d, err := parseDetail(k.Detail())
		require.NoError(t, err)
		again, err := parseKernel(d)
		require.NoError(t, err)
		require.Equal(t, k, again)
	})
	longest := Kernel{Function: strings.Repeat("f", 64), Epoch: 1<<64 - 1, Map: slices.Repeat([]Span{{1<<64 - 1, 1<<64 - 1}}, MaxSpans)}
	require.LessOrEqual(t, len(longest.Detail()), 1024)
}

// history writes a log as a manager does.
type history struct {
	records []ddf.AuditRecord
	at      time.Time
}

func newHistory() *history {
	h := &history{at: time.Unix(1e9, 0)}
	h.add("manager.start", "pid=1 tenants=1")
	h.add(KindSource, "edu0 source=iommu state=watched")
	h.add(KindKernel, Kernel{Function: "edu0", Undone: []Span{{0, 8192}}}.Detail())
	return h
}

func (h *history) add(kind, detail string) {
	h.at = h.at.Add(time.Millisecond)
	h.records = append(h.records, ddf.AuditRecord{Index: uint64(len(h.records)), Time: h.at, Kind: kind, Detail: detail})
}

func (h *history) start(epoch int) {
	h.add("driver.start", fmt.Sprintf("edu0 epoch=%d path=/x", epoch))
}
func (h *history) end(epoch int) {
	h.add("driver.end", fmt.Sprintf(`edu0 epoch=%d freed=0 windows=1 cause="a \"cause\" with = and bytes=1"`, epoch))
}

func (h *history) manager(kind string, epoch int, s Span) {
	h.add(kind, fmt.Sprintf("edu0 epoch=%d iova=%#x bytes=%d generation=1", epoch, s.IOVA, s.Bytes))
}

func (h *history) kernel(k Kernel) {
	k.Function = "edu0"
	h.add(KindKernel, k.Detail())
}

var a, b = Span{0x100000000, 4096}, Span{0x100200000, 2 << 20}

// whole is a log in which both sources agree.
func whole() *history {
	h := newHistory()
	h.start(1)
	h.manager(KindMap, 1, a)
	h.manager(KindMap, 1, b)
	h.kernel(Kernel{Epoch: 1, Map: []Span{a, b}})
	h.manager(KindUnmap, 1, a)
	h.add(KindSummary, "edu0 epoch=1 "+Totals(SumOf(a, a), SumOf(b, a, a))+" generations=3-4")
	h.kernel(Kernel{Epoch: 1, Unmap: []Span{a}})
	h.kernel(Kernel{Epoch: 1, Maps: SumOf(a, a), Unmaps: SumOf(a, b, a)})
	h.add(KindFault, `edu0 epoch=1 iova=0x900000 access=write reason="PTE Write access is not set"`)
	h.add(KindFaults, "edu0 epoch=1 faults=4")
	h.end(1)
	h.start(2)
	h.manager(KindUndone, 2, b)
	h.kernel(Kernel{Epoch: 2, Map: []Span{b}, Unmap: []Span{b}})
	h.manager(KindMap, 2, a)
	h.manager(KindKept, 2, a)
	h.kernel(Kernel{Epoch: 2, Map: []Span{a}})
	h.end(2)
	h.kernel(Kernel{Epoch: 2, Close: []Span{a}})
	h.add("manager.stop", "pid=1")
	return h
}

func TestAgrees(t *testing.T) {
	r := Compare(whole().records)
	require.Empty(t, r.Differences)
	require.True(t, r.Agrees())
	require.Len(t, r.Rows, 3)
	e := r.Rows[1]
	require.EqualValues(t, 4, e.Maps.Count)
	require.Equal(t, e.Maps, e.KernelMaps)
	require.Equal(t, e.Unmaps, e.KernelUnmaps)
	require.EqualValues(t, 8, e.Matched)
	require.EqualValues(t, 5, e.Faults)
	require.Equal(t, Ended, e.State)
	require.Equal(t, 1, r.Rows[2].Kept)
}

// TestTampered: a record of either source that is taken out, doubled or changed shows.
func TestTampered(t *testing.T) {
	good := whole().records
	for i, r := range good {
		if r.Kind == KindFault || r.Kind == KindFaults || strings.Contains(r.Detail, "undone") || !(strings.HasPrefix(r.Kind, "dma.") || strings.HasPrefix(r.Kind, "iommu.")) {
			continue
		}
		if r.Kind != KindKept && !strings.Contains(r.Detail, "close=") { // without the close, that it was kept is the last that is known
			require.False(t, Compare(slices.Delete(slices.Clone(good), i, i+1)).Agrees(), "without %v", r)
		}
		if r.Kind != KindKept && !strings.Contains(r.Detail, "close=") {
			require.False(t, Compare(slices.Insert(slices.Clone(good), i, r)).Agrees(), "twice %v", r)
		}
		for _, change := range [][2]string{{"0x100000000", "0x100001000"}, {"4096", "8192"}, {"+2097152", "+2097151"}, {"maps=2", "maps=3"}, {"Sum=", "Sum=x"}, {"epoch=1", "epoch=2"}} {
			if !strings.Contains(r.Detail, change[0]) {
				continue
			}
			changed := slices.Clone(good)
			changed[i].Detail = strings.Replace(r.Detail, change[0], change[1], 1)
			require.False(t, Compare(changed).Agrees(), "%v changed to %v", r, changed[i])
		}
	}
	// A driver's or a tenant's word is no source.
	h := whole()
	h.records[3].Tenant = "@edu0"
	lied := slices.Clone(good)
	lied[4].Tenant = "@edu0"
	require.False(t, Compare(lied).Agrees())
}

// TestCut: records that a function's own log has lost at its beginning are no difference, and
// later ones are judged as usual.
func TestCut(t *testing.T) {
	good := whole().records
	mapped := func(r ddf.AuditRecord) bool {
		return strings.HasPrefix(r.Kind, "dma.") || r.Kind == KindKernel || r.Kind == KindFault || r.Kind == KindFaults
	}
	var device int
	for _, r := range good {
		if mapped(r) {
			device++
		}
	}
	for n := 1; n <= device; n++ {
		left := n // to drop
		records := slices.DeleteFunc(slices.Clone(good), func(r ddf.AuditRecord) bool {
			left--
			if !mapped(r) {
				left++
				return false
			}
			return left >= 0
		})
		r := Compare(records, "edu0")
		require.Empty(t, r.Differences, "without the first %d", n)
		require.Equal(t, Partial, r.Rows[0].State)
	}
	// Epoch 1 has lost its beginning, epoch 2 a record.
	records := slices.DeleteFunc(slices.Clone(good), func(r ddf.AuditRecord) bool {
		return r.Kind == KindMap && (strings.Contains(r.Detail, "epoch=1") || strings.Contains(r.Detail, "epoch=2"))
	})
	r := Compare(records, "edu0")
	require.Equal(t, []string{"run 1, edu0 epoch=2: map 0x100000000+4096 is unexpected: the kernel did it, the manager did not"}, r.Differences)
}

func TestSpelledOut(t *testing.T) {
	h := newHistory()
	h.start(1)
	h.manager(KindMap, 1, a)
	h.kernel(Kernel{Epoch: 1, Map: []Span{b}})
	h.add(KindMismatch, `pid=7 tid=8 map 0x1000+4096 cause="no operation of device-manager"`)
	h.end(1)
	h.add(KindLost, "iommu events=3 operations=0")
	r := Compare(h.records)
	require.Equal(t, []string{
		`record 6: the manager found: pid=7 tid=8 map 0x1000+4096 cause="no operation of device-manager"`,
		"run 1, edu0 epoch=1: map 0x100000000+4096 is missing: the manager did it, the kernel did not",
		"run 1, edu0 epoch=1: map 0x100200000+2097152 is unexpected: the kernel did it, the manager did not",
		"3 events could not be compared: what they were is not known",
	}, r.Differences)
	require.EqualValues(t, 1, r.Rows[1].Missing)
	require.EqualValues(t, 1, r.Rows[1].Unexpected)

	for range 100 {
		h.add(KindMismatch, "x")
	}
	r = Compare(h.records)
	require.Len(t, r.Differences, maxDifferences)
	require.EqualValues(t, 104, r.Count)
}

// TestLive: at the end of a log that is being written, or of a log of a killed manager, one
// source may be a little ahead of the other; before that, not.
func TestLive(t *testing.T) {
	for _, killed := range []bool{false, true} {
		h := newHistory()
		h.start(1)
		h.manager(KindMap, 1, a)
		h.kernel(Kernel{Epoch: 1, Map: []Span{a}})
		h.manager(KindMap, 1, b)
		then := func() *Report {
			records := slices.Clone(h.records)
			if killed {
				records = append(records, ddf.AuditRecord{Index: uint64(len(records)), Time: h.at.Add(time.Hour), Kind: "manager.start", Detail: "pid=2"})
			}
			return Compare(records)
		}
		r := then()
		require.True(t, r.Agrees(), r.Differences)
		require.EqualValues(t, 1, r.Rows[1].Pending)
		require.Equal(t, map[bool]State{false: Live, true: Unfinished}[killed], r.Rows[1].State)
		h.at = h.at.Add(time.Minute)
		h.add("driver.ready", "edu0 epoch=1 pid=2")
		require.False(t, then().Agrees())
	}
}

func TestNotWatched(t *testing.T) {
	h := &history{at: time.Unix(1e9, 0)}
	h.add("manager.start", "pid=1 tenants=1")
	h.add("driver.start", "mock0 epoch=1 path=/x")
	h.add(KindMap, "mock0 epoch=1 iova=0x1000 bytes=4096 generation=1")
	h.add("driver.end", "mock0 epoch=1 freed=1")
	r := Compare(h.records)
	require.True(t, r.Agrees(), "a fake function has no kernel behind it")
	require.Empty(t, r.Rows)

	h.add(KindSource, `edu0 source=iommu state=unavailable reason="no eBPF"`)
	require.False(t, Compare(h.records).Agrees())
	h.start(1)
	h.manager(KindMap, 1, a)
	r = Compare(h.records)
	require.Equal(t, Unwatched, r.Rows[0].State)
	require.Equal(t, "no eBPF", r.Rows[0].Reason)
	require.False(t, r.Agrees())

	// Watched at first, and not to the end.
	h = whole()
	h.add(KindSource, `edu0 source=iommu state=unavailable reason="closed"`)
	require.False(t, Compare(h.records).Agrees())
}

// TestRotated: an epoch without its beginning is not judged.
func TestRotated(t *testing.T) {
	records := whole().records
	for i := range records {
		r := Compare(records[i:])
		for _, row := range r.Rows {
			if row.State == Ended {
				require.Zero(t, row.Missing+row.Unexpected, "from %d: %v", i, r.Differences)
			}
		}
	}
}

func FuzzCompare(f *testing.F) {
	for _, r := range whole().records {
		f.Add(r.Kind, r.Detail)
	}
	f.Add(KindKernel, `edu0 epoch=1 maps=18446744073709551615 mapBytes=1 mapSum=00000000000000000000000000000000 unmaps=1 unmapBytes=1 unmapSum=00000000000000000000000000000000`)
	f.Fuzz(func(t *testing.T, kind, detail string) {
		records := whole().records
		i := rand.IntN(len(records))
		records = slices.Insert(records, i, ddf.AuditRecord{Kind: kind, Detail: detail})
		Compare(records)
	})
}
