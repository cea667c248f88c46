package iommu

const (
	// PageBytes is the granule of addresses.
	PageBytes = 4096
	// HugeBytes is the larger page of most IOMMUs: ranges of at least that length start at a
	// multiple of it.
	HugeBytes = 2 << 20
	// guardBytes stay unmapped behind each range, so that a device that runs over its
	// end faults.
	guardBytes = PageBytes
	// lowestIOVA is never gone below: a small number is more often a mistake than an
	// address.
	lowestIOVA IOVA = 1 << 20
	// wideIOVA is where addresses begin that do not survive being cut to 32 bits.
	wideIOVA IOVA = 1 << 32
)

// Space hands out the addresses of one domain. It moves upwards and starts over only when it
// has reached the end, so that a stale address keeps faulting for as long as possible before
// it is used again. Behind each range a page stays free. Each call takes logarithmic time.
//
// A Space belongs to one function and outlives its drivers. It has no lock of
// its own.
type Space struct {
	// root has every range that is not free, by address: the taken ranges, and the holes
	// between the ranges of NewSpace.
	root *node
	next IOVA // where the search for the next range starts
	// spare nodes, by their next, are those that Give leaves to Take. They keep their
	// priorities, which stay unpredictable.
	spare  *node
	spares int
}

// maxSpares is how many nodes a Space keeps.
const maxSpares = 64

// Clip cuts ranges down to the reach of a device with this many address bits. 0 and 64 are
// all of them.
func Clip(ranges []Range, bits int) []Range {
	end := IOVA(1) << 63 // no IOMMU translates more than 57 bits
	if bits > 0 && bits < 63 {
		end = 1 << bits
	}
	return cut(ranges, 0, end)
}

// cut returns the parts of ranges within [low, high), in whole pages.
func cut(ranges []Range, low, high IOVA) []Range {
	var kept []Range
	for _, r := range ranges {
		r.Start = (max(r.Start, low) + PageBytes - 1) &^ (PageBytes - 1)
		r.End = min(r.End, high) &^ (PageBytes - 1)
		if r.Start < r.End {
			kept = append(kept, r)
		}
	}
	return kept
}

// NewSpace makes a Space of what lies in ranges, which are in order and do not
// overlap. It uses no address below 1 MiB, and none below 4 GiB unless more of
// the ranges lies there than above.
func NewSpace(ranges []Range) *Space {
	low, high := cut(ranges, lowestIOVA, wideIOVA), cut(ranges, wideIOVA, 1<<63)
	usable := high
	if total(low) > total(high) {
		usable = append(low, high...)
	}

	s := &Space{}
	last := newNode() // after it there is nothing
	last.start, last.end, last.hole = ^IOVA(0), ^IOVA(0), true
	last.refresh()
	s.root = last
	var holeStart IOVA
	for _, r := range usable {
		if r.Start > holeStart { // else it continues where the last one ended
			s.occupy(last, holeStart, r.Start, true)
		}
		holeStart = r.End
	}

	last.start = holeStart
	last.refreshUp()
	return s
}

// occupy makes [start, end) of the gap before n a range of its own.
func (s *Space) occupy(n *node, start, end IOVA, hole bool) {
	fresh := s.spare
	if fresh == nil {
		fresh = newNode()
	} else {
		s.spare = fresh.next
		s.spares--
	}
	*fresh = node{gapStart: n.gapStart, start: start, end: end, hole: hole, priority: fresh.priority}
	n.gapStart = end
	s.insertBefore(n, fresh)
}

// Take reserves bytes, rounded up to whole pages, and the guard after them.
func (s *Space) Take(bytes uint64) (IOVA, bool) {
	if bytes == 0 || bytes >= 1<<63 {
		return 0, false
	}

	need := IOVA(bytes+PageBytes-1)&^(PageBytes-1) + guardBytes
	align := IOVA(PageBytes)
	if bytes >= HugeBytes {
		align = HugeBytes
	}

	at, before := s.root.first(s.next, need, align)
	if before == nil {
		at, before = s.root.first(0, need, align)
	}
	if before == nil {
		return 0, false
	}

	s.occupy(before, at, at+need, false)
	s.next = at + need
	return at, true
}

// Give returns what starts at start. Anything else is none of its business.
func (s *Space) Give(start IOVA) {
	n := s.root.at(start)
	if n == nil || n.start != start || n.hole {
		return
	}
	s.remove(n)
	*n = node{priority: n.priority}
	if s.spares < maxSpares {
		n.next, s.spare = s.spare, n
		s.spares++
	}
}

// Mapped reports whether all of [start, start+bytes) is in one taken range, guard excluded,
// as the function's IOMMU would.
func (s *Space) Mapped(start IOVA, bytes uint64) bool {
	n := s.root.at(start)
	return n != nil && !n.hole && start < n.end-guardBytes && bytes <= uint64(n.end-guardBytes-start)
}

func total(ranges []Range) (bytes uint64) {
	for _, r := range ranges {
		bytes += r.Bytes()
	}
	return bytes
}
