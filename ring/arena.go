package ring

// arena hands out the argument arena as a ring, in step with the entries: what
// an entry was given comes back when the driver has taken the entry. Positions
// are counts that never wrap, like those of the queues; an allocation never
// crosses the end of the arena.
//
// Most entries are given nothing, and then there is nothing to be written for them.
type arena struct {
	bytes uint64
	head  uint64   // everything before is free
	tail  uint64   // everything from here on is free
	off   uint64   // of tail in the arena: tail modulo bytes
	flat  uint64   // position behind which no entry was given anything
	ends  []uint64 // tail after the entry in this slot, of those before flat that are not released
}

func newArena(l layout) arena {
	return arena{bytes: uint64(l.ArgBytes), ends: make([]uint64, l.Entries)}
}

// alloc returns the offset of n free bytes, a multiple of ArgAlign; they belong
// to the entry that is pushed next, at pos.
func (a *arena) alloc(pos, n uint64) (off uint32, ok bool) {
	n = (n + ArgAlign - 1) &^ (ArgAlign - 1)
	if n == 0 {
		return 0, true
	}
	start, at := a.tail, a.off
	if room := a.bytes - at; n > room {
		start, at = start+room, 0 // skip the rest, which comes back with this entry
	}
	if start+n-a.head > a.bytes {
		return 0, false
	}
	for i := max(a.flat, pos-min(pos, uint64(len(a.ends)))); i < pos; i++ {
		a.ends[i&uint64(len(a.ends)-1)] = a.tail
	}
	a.flat = pos
	a.tail, a.off = start+n, at+n
	if a.off == a.bytes {
		a.off = 0
	}
	return uint32(at), true
}

// end is tail after the entry at pos, of those that were pushed and not released.
func (a *arena) end(pos uint64) uint64 {
	if pos >= a.flat {
		return a.tail
	}
	return a.ends[pos&uint64(len(a.ends)-1)]
}

// release takes back what the entry at pos and all before it were given.
func (a *arena) release(pos uint64) { a.head = a.end(pos) }

// rollback takes back what was given to the entries after the one at pos.
func (a *arena) rollback(pos uint64) {
	a.tail, a.flat = a.end(pos), min(a.flat, pos)
	a.off = a.tail % a.bytes
}

// reset starts again at offset 0; nothing is handed out, and the next entry is at pos.
func (a *arena) reset(pos uint64) { a.head, a.tail, a.off, a.flat = 0, 0, 0, pos }
