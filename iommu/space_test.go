package iommu

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// list is the obvious Space: every page is tried, from the last one taken to the
// end and then from the front, against all that is taken.
type list struct {
	usable []Range
	live   []Range // guards included
	next   IOVA
}

func (l *list) take(pages, align IOVA) (IOVA, bool) {
	for _, from := range []IOVA{l.next, 0} {
		for _, r := range l.usable {
			for at := (max(r.Start, from) + align - 1) &^ (align - 1); at+pages+PageBytes <= r.End; at += PageBytes {
				if at%align != 0 || slices.ContainsFunc(l.live, func(o Range) bool { return at < o.End && o.Start < at+pages+PageBytes }) {
					continue
				}
				l.live = append(l.live, Range{at, at + pages + PageBytes})
				l.next = at + pages + PageBytes
				return at, true
			}
		}
	}
	return 0, false
}

// Against the model, in a space of few pages, so that it is full often.
func TestSpaceModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SampledFrom([]IOVA{lowestIOVA, wideIOVA, 1<<39 - 64*PageBytes}).Draw(t, "base")
		var usable []Range
		at := base
		for range rapid.IntRange(1, 3).Draw(t, "ranges") {
			at += PageBytes * IOVA(rapid.IntRange(0, 3).Draw(t, "hole"))
			end := at + PageBytes*IOVA(rapid.IntRange(1, 24).Draw(t, "pages"))
			if n := len(usable); n > 0 && usable[n-1].End == at {
				usable[n-1].End = end
			} else {
				usable = append(usable, Range{at, end})
			}
			at = end
		}
		s, m := NewSpace(usable), &list{usable: usable}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(m.live) > 0 && rapid.IntRange(0, 2).Draw(t, "give") == 0 {
				i := rapid.IntRange(0, len(m.live)-1).Draw(t, "which")
				gone := m.live[i]
				m.live = slices.Delete(m.live, i, i+1)
				s.Give(gone.Start)
				s.Give(gone.Start) // twice is once
				require.False(t, s.Mapped(gone.Start, 1))
				continue
			}
			bytes := rapid.Uint64Range(1, 6*PageBytes).Draw(t, "bytes")
			want, wantOK := m.take(IOVA(bytes+PageBytes-1)&^(PageBytes-1), PageBytes)
			got, ok := s.Take(bytes)
			require.Equal(t, wantOK, ok)
			require.Equal(t, want, got)
			checkSpace(t, s, m.live)
		}
	})
}

// checkSpace asks about every page and looks into the tree.
func checkSpace(t require.TestingT, s *Space, live []Range) {
	for _, r := range live {
		end := r.End - guardBytes
		require.True(t, s.Mapped(r.Start, uint64(end-r.Start)))
		require.False(t, s.Mapped(r.Start, uint64(end-r.Start)+1))
		require.True(t, s.Mapped(end-1, 1))
		require.False(t, s.Mapped(end, 1), "the guard is never mapped")
		require.False(t, s.Mapped(r.Start+1, uint64(end-r.Start)))
	}
	var taken int
	var last IOVA
	var before *node
	var walk func(n *node)
	walk = func(n *node) {
		if n == nil {
			return
		}
		walk(n.left)
		require.Equal(t, last, n.gapStart)
		last = n.end
		require.True(t, n.prev == before && (before == nil || before.next == n))
		before = n
		if !n.hole {
			taken++
		}
		fits := *n
		fits.refresh()
		require.Equal(t, fits, *n)
		for _, child := range []*node{n.left, n.right} {
			require.True(t, child == nil || child.priority <= n.priority && child.up == n)
		}
		walk(n.right)
	}
	require.Nil(t, s.root.up)
	walk(s.root)
	require.Nil(t, before.next)
	require.Len(t, live, taken)
	for n := s.spare; n != nil; n = n.next {
		require.Equal(t, node{next: n.next, priority: n.priority}, *n)
		taken--
	}
	require.Equal(t, len(live)-s.spares, taken)
	require.LessOrEqual(t, s.spares, maxSpares)
}

// Taking and giving back again and again needs no memory.
func TestSpaceAllocatesNothing(t *testing.T) {
	s := NewSpace([]Range{{wideIOVA, 1 << 48}})
	at := make([]IOVA, 2*maxSpares) // some of which find no spare node
	cycle := func(n int) {
		for i := range n {
			at[i], _ = s.Take(HugeBytes)
		}
		for i := range n {
			s.Give(at[i])
		}
		checkSpace(t, s, nil)
	}
	cycle(len(at))
	require.Equal(t, maxSpares, s.spares)
	cycle(len(at))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		at, ok := s.Take(HugeBytes)
		if !ok {
			t.Error("full")
		}
		s.Give(at)
	}))
}

func BenchmarkSpaceEmpty(b *testing.B) {
	s := NewSpace([]Range{{wideIOVA, 1 << 48}})
	b.ReportAllocs()
	for b.Loop() {
		at, ok := s.Take(HugeBytes)
		if !ok {
			b.Fatal("full")
		}
		s.Give(at)
	}
}

// With small and huge sizes mixed.
func TestSpaceAligns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSpace([]Range{{lowestIOVA, 64 << 20}})
		m := &list{usable: []Range{{lowestIOVA, 64 << 20}}}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(m.live) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(m.live)-1).Draw(t, "which")
				s.Give(m.live[i].Start)
				m.live = slices.Delete(m.live, i, i+1)
			}
			bytes := rapid.SampledFrom([]uint64{1, PageBytes, HugeBytes - PageBytes, HugeBytes, HugeBytes + 1, 3 * HugeBytes}).Draw(t, "bytes")
			align := IOVA(PageBytes)
			if bytes >= HugeBytes {
				align = HugeBytes
			}
			want, wantOK := m.take(IOVA(bytes+PageBytes-1)&^(PageBytes-1), align)
			got, ok := s.Take(bytes)
			require.Equal(t, wantOK, ok)
			require.Equal(t, want, got)
			require.Zero(t, got%align)
		}
		checkSpace(t, s, m.live)
	})
}

// Addresses for devices of long and short reach.
func TestSpaceFloor(t *testing.T) {
	vtd := []Range{{0, 0xfee00000}, {0xfef00000, 1 << 39}} // QEMU's intel-iommu
	for _, c := range []struct {
		bits  int
		first IOVA
	}{{0, 1 << 32}, {64, 1 << 32}, {39, 1 << 32}, {32, 1 << 20}, {28, 1 << 20}, {33, 1 << 32}} {
		at, ok := NewSpace(Clip(vtd, c.bits)).Take(1)
		require.True(t, ok)
		require.Equal(t, c.first, at, "%d bits", c.bits)
	}
	require.Equal(t, []Range{{0, 1 << 28}}, Clip(vtd, 28))
	require.Equal(t, []Range{{0, 0xfee00000}, {0xfef00000, 1 << 32}}, Clip(vtd, 32))
	require.Equal(t, []Range{{0x2000, 0x3000}}, Clip([]Range{{0x1001, 0x3fff}}, 0), "whole pages")
	require.Empty(t, Clip([]Range{{0x1001, 0x1fff}}, 0))

	for name, none := range map[string][]Range{"nothing": nil, "low": {{0, lowestIOVA}}, "a page": {{lowestIOVA, lowestIOVA + PageBytes}}} {
		_, ok := NewSpace(none).Take(1)
		require.False(t, ok, name)
	}
}

func TestSpaceRefuses(t *testing.T) {
	s := NewSpace([]Range{{wideIOVA, 1 << 48}})
	for _, bytes := range []uint64{0, 1 << 48, 1 << 63, ^uint64(0)} {
		_, ok := s.Take(bytes)
		require.False(t, ok, "%#x bytes", bytes)
	}
	all, ok := s.Take(1<<48 - 1<<32 - guardBytes)
	require.True(t, ok)
	require.Equal(t, wideIOVA, all)
	_, ok = s.Take(1)
	require.False(t, ok)
	s.Give(all + PageBytes) // not the start
	s.Give(0)               // a hole
	s.Give(1 << 48)         // the end
	_, ok = s.Take(1)
	require.False(t, ok)
	s.Give(all)
	_, ok = s.Take(1)
	require.True(t, ok)
}

// The kernel's limit of mappings, taken and given in the worst order, next to
// nothing: every gap but the last is too small.
func BenchmarkSpaceFull(b *testing.B) {
	const entries = 65535
	s := NewSpace([]Range{{wideIOVA, wideIOVA + entries*2*PageBytes + 3*PageBytes}})
	at := make([]IOVA, entries)
	for i := range at {
		at[i], _ = s.Take(PageBytes)
	}
	for i := 0; i < len(at); i += 2 {
		s.Give(at[i])
	}
	for b.Loop() {
		got, ok := s.Take(2 * PageBytes)
		if !ok {
			b.Fatal("full")
		}
		s.Give(got)
	}
}
