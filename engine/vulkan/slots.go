package vulkan

import (
	"slices"

	"capgpu/gpuerr"
	"capgpu/program/instrument"
)

// maxSlots is how many entries all lists of a device may have together, with the number 0.
const maxSlots = 1 << 16

// Words of the head of the trap buffer; see the package comment.
const (
	firstOff  = instrument.FirstOff
	stopOff   = instrument.StopOff
	runOff    = 64 // by turn
	beforeOff = 96 // by turn

	none   = instrument.NoEntry
	all    = 0                      // of first
	notYet = instrument.NoEntry - 1 // of before: the run has not begun
)

// slots are the slots of the trap buffer that no list has, as ranges in order.
type slots struct {
	free []slotRange
	left int
}

type slotRange struct{ first, count uint32 }

// newSlots are the slots first to end-1.
func newSlots(first, end uint32) slots {
	return slots{free: []slotRange{{first, end - first}}, left: int(end - first)}
}

// take takes n slots in a row.
func (s *slots) take(n int) (first uint32, err error) {
	if n == 0 {
		return 1, nil
	}
	for i := range s.free {
		r := &s.free[i]
		if int(r.count) < n {
			continue
		}
		first = r.first
		r.first, r.count = r.first+uint32(n), r.count-uint32(n)
		if r.count == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		s.left -= n
		return first, nil
	}
	e := gpuerr.Refused("", uint64(n), uint64(s.left))
	e.Msg = "the device has room for so many entries of recorded lists only; free lists"
	return 0, e
}

// put gives n slots back.
func (s *slots) put(first uint32, n int) {
	if n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(s.free, first, func(r slotRange, at uint32) int { return int(r.first) - int(at) })
	s.free = slices.Insert(s.free, i, slotRange{first, uint32(n)})
	s.left += n
	for _, k := range [2]int{i, i - 1} { // join with the next, then with the one before
		if k >= 0 && k+1 < len(s.free) && s.free[k].first+s.free[k].count == s.free[k+1].first {
			s.free[k].count += s.free[k+1].count
			s.free = slices.Delete(s.free, k+1, k+2)
		}
	}
}
