package manager

import (
	"slices"
	"sort"

	"capgpu/ddf"
)

const (
	// firstIOVA is above 4 GiB, so that an address cut to 32 bits is never valid.
	firstIOVA ddf.IOVA = 1 << 32
	// endIOVA is what a 4-level IOMMU with 48 bits can address.
	endIOVA ddf.IOVA = 1 << 48
	// guardBytes stay unmapped behind each range, so that a device that runs over
	// its end faults.
	guardBytes = ddf.PageBytes
)

// iovaSpace hands out address ranges. It moves upwards and starts over only
// when it has reached the end, so that a stale address keeps faulting for as
// long as possible before it is somebody else's.
type iovaSpace struct {
	next ddf.IOVA    // where the search for the next range starts
	live []iovaRange // by address; guards included
}

type iovaRange struct{ start, end ddf.IOVA }

func newIOVASpace() *iovaSpace { return &iovaSpace{next: firstIOVA} }

// take reserves bytes (whole pages) and the guard behind them.
func (s *iovaSpace) take(bytes uint64) (ddf.IOVA, bool) {
	if bytes > uint64(endIOVA-firstIOVA)-guardBytes {
		return 0, false
	}
	need := ddf.IOVA(bytes + guardBytes)
	for range 2 { // from next to the end, then from the start
		for lo := s.next; endIOVA-lo >= need; {
			i := sort.Search(len(s.live), func(i int) bool { return s.live[i].end > lo })
			if i == len(s.live) || s.live[i].start >= lo+need {
				s.live = slices.Insert(s.live, i, iovaRange{lo, lo + need})
				s.next = lo + need
				return lo, true
			}
			lo = s.live[i].end
		}
		s.next = firstIOVA
	}
	return 0, false
}

// give returns the range that starts at start.
func (s *iovaSpace) give(start ddf.IOVA) {
	i := sort.Search(len(s.live), func(i int) bool { return s.live[i].start >= start })
	if i < len(s.live) && s.live[i].start == start {
		s.live = slices.Delete(s.live, i, i+1)
	}
}

// mapped reports whether all of [start, start+bytes) is in one range, guard
// excluded: what the function's IOMMU would say.
func (s *iovaSpace) mapped(start ddf.IOVA, bytes uint64) bool {
	i := sort.Search(len(s.live), func(i int) bool { return s.live[i].end-guardBytes > start })
	if i == len(s.live) || s.live[i].start > start {
		return false
	}
	return bytes <= uint64(s.live[i].end-guardBytes-start)
}
