package lane

import (
	"sort"

	"capgpu/outcome"
	"capgpu/program/lane/vec"
)

// run runs one workgroup.
//
// All lanes begin in the first block. Where a branch parts them, each part waits
// at its target, and the part whose block is first goes on. A merge block comes
// after all blocks of its construct, so by the time it is the first, all lanes
// that come to it are there, and go on together.
func (w *Worker) run() bool {
	k := w.k
	at := int32(0)
	for {
		b := &k.blocks[at]
		for _, s := range b.code {
			if !s(w) {
				return false
			}
		}
		var e *xedge
		switch b.term {
		case termJump:
			e = &b.edges[0]
		case termBranch:
			if b.vary {
				n := w.part(b)
				if n < 0 {
					if !checkStop(w) {
						return false
					}
					at = w.next()
					continue
				}
				e = &b.edges[n]
			} else if w.s[b.cond] != 0 {
				e = &b.edges[0]
			} else {
				e = &b.edges[1]
			}
		case termSwitch:
			if b.vary {
				n := w.partSwitch(b)
				if n < 0 {
					if !checkStop(w) {
						return false
					}
					at = w.next()
					continue
				}
				e = &b.edges[n]
			} else {
				sel := uint64(w.s[b.cond])
				if b.wide {
					sel = w.sq[b.cond]
				}
				e = &b.edges[b.choose(sel)]
			}
		case termReturn:
			if w.pending == 0 {
				return true
			}
			w.retire()
			at = w.next()
			continue
		case termUnreachable:
			return w.trap(outcome.Unreachable, b.inst, noBinding, 0, vec.First(w.mask))
		}
		for _, s := range e.copies {
			s(w)
		}
		if e.back && !checkStop(w) {
			return false
		}
		at = e.to
		if w.pending != 0 {
			if at > w.low {
				w.park(at, w.mask)
				w.mask = nil
				at = w.next()
			} else if at == w.low {
				m := w.unpark(at)
				vec.Or(w.mask, w.mask, m)
				w.giveMask(m)
				w.full = vec.All(w.mask)
			}
		}
	}
}

// part splits the lanes of a branch on which they differ. If they all go one way
// it is the edge returned; otherwise both parts wait, and it is -1.
func (w *Worker) part(b *xblock) int {
	c := w.r[b.cond]
	yes, no := w.takeMask(), w.takeMask()
	anyYes, anyNo := vec.Split(yes, no, c, w.mask)
	if !anyYes {
		w.giveMask(yes)
		w.giveMask(no)
		return 1
	}
	if !anyNo {
		w.giveMask(yes)
		w.giveMask(no)
		return 0
	}
	w.giveMask(w.mask)
	w.full = false
	w.pending++ // copies see that not all lanes take part
	first, second := 0, 1
	if b.edges[0].back {
		first, second = 1, 0
	}
	sides := [2][]uint32{yes, no}
	for _, n := range [2]int{first, second} {
		w.mask = sides[n]
		for _, s := range b.edges[n].copies {
			s(w)
		}
	}
	w.pending--
	w.mask = nil
	for n := range sides {
		w.park(b.edges[n].to, sides[n])
	}
	return -1
}

// choose is the edge of a switch.
func (b *xblock) choose(v uint64) int32 {
	n := sort.Search(len(b.cases), func(i int) bool { return b.cases[i] >= v })
	if n < len(b.cases) && b.cases[n] == v {
		return b.to[n+1]
	}
	return b.to[0]
}

// partSwitch is part for a switch: the lanes of each edge, one after the other.
func (w *Worker) partSwitch(b *xblock) int {
	lanes := w.mask
	sel := w.spare
	for i := range sel {
		if lanes[i] == 0 {
			continue
		}
		v := uint64(0)
		if b.wide {
			v = w.q[b.cond][i]
		} else {
			v = uint64(w.r[b.cond][i])
		}
		sel[i] = uint32(b.choose(v))
	}
	one := vec.First(lanes)
	if vec.Same(sel, lanes) {
		return int(sel[one])
	}
	w.full = false
	w.pending++
	w.mask = nil
	// Back edges last: what they write may be what the others read.
	for _, back := range [2]bool{false, true} {
		for n := range b.edges {
			e := &b.edges[n]
			if e.back != back {
				continue
			}
			m := w.takeMask()
			some := uint32(0)
			for i := range m {
				m[i] = 0
				if lanes[i] != 0 && sel[i] == uint32(n) {
					m[i] = 1<<32 - 1
					some = 1
				}
			}
			if some == 0 {
				w.giveMask(m)
				continue
			}
			w.mask = m
			for _, s := range e.copies {
				s(w)
			}
			w.park(e.to, m)
		}
	}
	w.pending--
	w.mask = nil
	w.giveMask(lanes)
	return -1
}

// park lets lanes wait at a block.
func (w *Worker) park(at int32, m []uint32) {
	w.full = false
	if have := w.waiting[at]; have != nil {
		vec.Or(have, have, m)
		w.giveMask(m)
		return
	}
	w.waiting[at] = m
	w.pending++
	w.low = min(w.low, at)
}

// unpark takes the lanes that wait at a block.
func (w *Worker) unpark(at int32) []uint32 {
	m := w.waiting[at]
	w.waiting[at] = nil
	w.pending--
	if w.pending == 0 {
		w.low = 1<<31 - 1
		return m
	}
	for at++; w.waiting[at] == nil; at++ {
	}
	w.low = at
	return m
}

// next makes the lanes that wait first the ones that run.
func (w *Worker) next() int32 {
	at := w.low
	w.mask = w.unpark(at)
	w.full = vec.All(w.mask)
	return at
}

// retire ends the lanes that run.
func (w *Worker) retire() {
	w.giveMask(w.mask)
	w.mask = nil
	w.full = false
}
