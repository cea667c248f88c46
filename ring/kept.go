package ring

import (
	"math"
	"math/bits"
)

// keeper is what a client knows of its kept slots: what each of them says, and which comes
// next. It is of the client's own memory: what lies in the ring is only written.
//
// A slot is found by what came after the last one the last time, and else by a hash. What
// is not found is written over another one: of two at random over that which was named
// longer ago. So who repeats more than there are slots still finds some of them, which
// would not be if it were always the one named longest ago of all.
type keeper struct {
	last   int // slot named last
	slots  []keptSlot
	said   [][keptWords]uint64 // by slot
	fresh  int                 // slots from here on were never written
	random uint32
	hints  [256]uint8 // by hash: in which slot it may be
}

// keptSlot is of half a line, for who repeats himself looks at nothing else of a slot.
type keptSlot struct {
	place uint64 // of an entry in it, but for its position
	named uint64 // position behind the last entry that names it
	after int    // slot that was named after it the last time
	_     uint64
}

func newKeeper(l layout) keeper {
	k := keeper{slots: make([]keptSlot, l.slots), said: make([][keptWords]uint64, l.slots), random: 1}
	for i := range k.slots {
		k.slots[i].place, k.slots[i].after = placeOf(i, 0), i
	}
	return k
}

// expected is the slot that was named after the last one the last time.
func (k *keeper) expected() int { return k.slots[k.last].after }

// says reports whether a slot says the same: what differs in length does so in its words.
func (k *keeper) says(slot int, said []uint64) bool {
	differ, have := uint64(0), k.said[slot][:len(said)]
	for i, w := range said {
		differ |= w ^ have[i]
	}
	return differ == 0
}

// find returns the slot that says this, at most keptWords words, -1 if none is known.
func (k *keeper) find(said []uint64) (slot int) {
	if slot = k.expected(); k.says(slot, said) {
		return slot
	}
	if slot = int(*k.hint(said)) & (len(k.slots) - 1); k.says(slot, said) {
		return slot
	}
	return -1
}

// hint is where the number of the slot that says this may be.
func (k *keeper) hint(said []uint64) *uint8 {
	const a, b = 0x9e3779b97f4a7c15, 0xd1b54a32d192ed03
	h := uint64(a)
	for ; len(said) >= 2; said = said[2:] {
		hi, lo := bits.Mul64(said[0]^h, said[1]^b)
		h = hi ^ lo
	}
	if len(said) > 0 {
		hi, lo := bits.Mul64(said[0]^h, b)
		h = hi ^ lo
	}
	return &k.hints[uint8(h)]
}

// toWrite is the slot to be written next, unless that is worn, or in use.
func (k *keeper) toWrite() (slot int) {
	if k.fresh < len(k.slots) {
		return k.fresh
	}
	k.random = k.random*1664525 + 1013904223
	slot, other := int(k.random>>16)&(len(k.slots)-1), int(k.random>>24)&(len(k.slots)-1)
	if k.slots[other].named < k.slots[slot].named {
		return other
	}
	return slot
}

// worn reports whether a slot has had its last version. It says for ever what it says then: a
// version that came again could be taken for what it was the first time.
func (s *keptSlot) worn() bool { return s.place>>placeVersionShift == math.MaxUint32 }

// say has a slot say something else, under its next version.
func (k *keeper) say(slot int, said []uint64) {
	s := &k.slots[slot]
	s.place, s.after = placeOf(slot, uint32(s.place>>placeVersionShift)+1), slot
	copy(k.said[slot][:], said)
	*k.hint(said) = uint8(slot)
	k.fresh = max(k.fresh, slot+1)
}

// name notes that the entry at a position names a slot.
func (k *keeper) name(slot int, pos uint64) (place uint64) {
	s := &k.slots[slot]
	s.named = pos + 1
	if last := &k.slots[k.last]; last.after != slot {
		last.after = slot
	}
	if k.last != slot { // a store that changes nothing would be waited for
		k.last = slot
	}
	return s.place
}

// again names what is expected for as many entries as there are places, the first of which is
// that of a position, and writes them.
func (k *keeper) again(pos uint64, places []uint64) {
	slot := k.last
	for i := range places {
		slot = k.slots[slot].after
		s := &k.slots[slot]
		if s.after == slot { // and so for all that are left
			s.named = pos + uint64(len(places))
			for ; i < len(places); i++ {
				places[i] = s.place | uint64(uint16(pos+uint64(i)))
			}
			break
		}
		s.named = pos + uint64(i) + 1
		places[i] = s.place | uint64(uint16(pos+uint64(i)))
	}
	if k.last != slot {
		k.last = slot
	}
}

// rollback forgets which entries from a position on name a slot. What the slots say stays,
// under their new versions, which nobody was told.
func (k *keeper) rollback(pos uint64) {
	for i := range k.slots {
		s := &k.slots[i]
		s.named = min(s.named, pos)
	}
}
