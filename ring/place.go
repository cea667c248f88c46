package ring

// Where the entry of a position is says its place, a word of a dense array:
//
//	bits 0 to 15   the low bits of the position
//	bits 16 to 23  0: in the submission queue, with its arguments in the arena.
//	               k+1: in kept slot k
//	bits 24 to 31  0
//	bits 32 to 63  version of what the kept slot says; 0 without one
//
// A kept slot is an entry and the arguments behind it, which the client names again each
// time that it submits the same: then eight bytes travel, and the driver has checked the
// rest before. The client writes a slot when all entries that name it are taken, and gives
// it a version that it never had. One that does it sooner has what it wrote before run, or
// what it wrote after, or is refused; each is checked as a whole.
//
// The place of the last entry that is published lies in sqLast as well, beside sqTail. It is
// good if it has the position; if not, the client has published more meanwhile.
const (
	placeSlotShift    = 16
	placeZeroShift    = 24
	placeVersionShift = 32
)

// Sizes of the kept slots.
const (
	// KeptBytes is what one takes.
	KeptBytes = 512
	// KeptArgBytes is the most arguments that one has.
	KeptArgBytes = KeptBytes - EntryBytes

	keptWords = KeptBytes / 8

	minKept, maxKept = 4, 64 // and a quarter of the entries
)

// placeOf is the place of an entry in a kept slot, but for its position.
func placeOf(slot int, version uint32) uint64 {
	return uint64(slot+1)<<placeSlotShift | uint64(version)<<placeVersionShift
}

// placeAt reads the place of the entry at a position, where there are so many kept slots:
// slot is -1 for one in the submission queue. It is not ok if it cannot be one.
func placeAt(pos, place uint64, slots int) (slot int, version uint32, ok bool) {
	slot, version = int(uint8(place>>placeSlotShift))-1, uint32(place>>placeVersionShift)
	ok = uint16(place) == uint16(pos) && uint8(place>>placeZeroShift) == 0 && slot < slots && (slot >= 0 || version == 0)
	return slot, version, ok
}

// keeps reports whether an operation may be in a kept slot.
func keeps(op Op) bool { return op == OpLaunch || op == OpCopy || op == OpFill }
