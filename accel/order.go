package accel

// A clock says which points of which streams something comes after: by slot, 0 for none. It is
// never changed once it is made.
type clock []uint64

func (c clock) at(slot int) uint64 {
	if slot < len(c) {
		return c[slot]
	}
	return 0
}

// join is the clock that comes after both.
func (c clock) join(other clock) clock {
	covered := true
	for slot, point := range other {
		covered = covered && point <= c.at(slot)
	}
	if covered {
		return c
	}

	both := make(clock, max(len(c), len(other)))
	copy(both, c)
	for slot, point := range other {
		both[slot] = max(both[slot], point)
	}
	return both
}

// with is the clock that comes after a point as well.
func (c clock) with(slot int, point uint64) clock {
	if point <= c.at(slot) {
		return c
	}
	more := make(clock, max(len(c), slot+1))
	copy(more, c)
	more[slot] = point
	return more
}

// A mark is what is known of an event: a point of its stream's fence.
type mark struct {
	s     *stream
	op    string // for errors
	id    uint32 // of the event; 0: of a wait by this process
	point uint64
	after clock // what its work comes after, beside its own stream

	// g.mu guards what follows.
	span
	done bool
	err  error
}

// clock is what a process has waited for that has waited for the mark.
func (m *mark) clock() clock { return m.after.with(m.s.slot, m.point) }

// A used says until which point a stream uses a buffer.
type used struct {
	slot  int
	point uint64
	write uint64 // until which it writes; 0: it does not
}

// A use is a buffer that work names.
type use struct {
	memory *memory
	write  bool
}

// admitLocked refuses a buffer that another stream uses, unless both read it, or the work comes
// after that use, or this process has waited for that. The caller holds g.mu.
func (u use) admitLocked(op string, slot int, after, host clock) error {
	m := u.memory
	if m.freed {
		return refuse(Freed, op, "a buffer was freed, or consumed by a transfer")
	}
	m.forgetLocked(host)
	for _, other := range m.uses {
		until := other.write
		if u.write {
			until = other.point
		}
		if other.slot != slot && until > max(after.at(other.slot), host.at(other.slot)) {
			return refuse(BorrowActive, op, "another stream uses a buffer: order the two by an event, or synchronize")
		}
	}
	return nil
}

// noteLocked has the buffer borrowed until a point of a stream was waited for. The caller holds
// g.mu.
func (u use) noteLocked(slot int, point uint64) {
	m := u.memory
	for i := range m.uses {
		if m.uses[i].slot == slot {
			if m.uses[i].point = point; u.write {
				m.uses[i].write = point
			}
			return
		}
	}
	n := used{slot: slot, point: point}
	if u.write {
		n.write = point
	}
	m.uses = append(m.uses, n)
}

// forgetLocked ends the borrows that were waited for. The caller holds g.mu.
func (m *memory) forgetLocked(host clock) {
	kept := m.uses[:0]
	for _, u := range m.uses {
		if u.point > host.at(u.slot) {
			kept = append(kept, u)
		}
	}
	m.uses = kept
}
