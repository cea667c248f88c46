package manager

import "iter"

// dmaList is a set of memory, as an intrusive list. A Go map costs more than all other
// bookkeeping of a mapping, because it allocates anew whenever it has become empty.
type dmaList struct {
	first *dmaMemory
	n     int
}

// dmaLinks are a member's links, guarded as the list is.
type dmaLinks struct {
	next, prev *dmaMemory
	listed     bool
}

func (l *dmaList) has(d *dmaMemory) bool { return d.links.listed }

func (l *dmaList) add(d *dmaMemory) {
	if d.links.listed {
		return
	}
	d.links = dmaLinks{next: l.first, listed: true}
	if l.first != nil {
		l.first.links.prev = d
	}
	l.first = d
	l.n++
}

func (l *dmaList) remove(d *dmaMemory) {
	if !d.links.listed {
		return
	}
	next, prev := d.links.next, d.links.prev
	if next != nil {
		next.links.prev = prev
	}
	if prev != nil {
		prev.links.next = next
	} else {
		l.first = next
	}
	d.links = dmaLinks{}
	l.n--
}

// all iterates over the members, newest first. The list must not change meanwhile.
func (l *dmaList) all() iter.Seq[*dmaMemory] {
	return func(yield func(*dmaMemory) bool) {
		for d := l.first; d != nil && yield(d); d = d.links.next {
		}
	}
}
