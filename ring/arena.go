package ring

// arena hands out the argument arena as a ring, in step with the entries: an entry's
// bytes come back when the driver has taken the entry. Positions are counts that never
// wrap, like those of the queues; an allocation never crosses the end of the arena.
type arena struct {
	bytes uint64
	head  uint64   // everything before is free
	tail  uint64   // everything from here on is free
	off   uint64   // of tail in the arena: tail modulo bytes
	ends  []uint64 // tail after the entry in this slot
}

func newArena(l layout) arena {
	return arena{bytes: uint64(l.ArgBytes), ends: make([]uint64, l.Entries)}
}

// alloc returns the offset of n free bytes, a multiple of ArgAlign, for the entry that is
// pushed next.
func (a *arena) alloc(n uint64) (off uint32, ok bool) {
	n = (n + ArgAlign - 1) &^ (ArgAlign - 1)
	start, at := a.tail, a.off
	if room := a.bytes - at; n > room {
		start, at = start+room, 0 // skip the rest, which comes back with this entry
	}
	if start+n-a.head > a.bytes {
		return 0, false
	}
	a.tail, a.off = start+n, at+n
	if a.off == a.bytes {
		a.off = 0
	}
	return uint32(at), true
}

// end is tail after the entry at pos.
func (a *arena) end(pos uint64) *uint64 { return &a.ends[pos&uint64(len(a.ends)-1)] }

// pushed notes that all that was handed out belongs to the entry at pos, or to one before.
func (a *arena) pushed(pos uint64) { *a.end(pos) = a.tail }

// release takes back what the entry at pos and all before it were given.
func (a *arena) release(pos uint64) { a.head = *a.end(pos) }

// rollback takes back what was given to the entries after the one at pos.
func (a *arena) rollback(pos uint64) {
	a.tail = *a.end(pos)
	a.off = a.tail % a.bytes
}

// reset starts again at offset 0; nothing is handed out.
func (a *arena) reset() { a.head, a.tail, a.off = 0, 0, 0 }
