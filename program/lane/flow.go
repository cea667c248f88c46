package lane

import (
	"sort"

	"capgpu/outcome"
	"capgpu/program/lane/vec"
)

// run runs one workgroup.
//
// All lanes begin in the first block. If they diverge at a branch, each part waits
// at its target, and the part with the first block continues. A merge block comes
// after all blocks of its construct, so by the time it is the first, all lanes that
// reach it are there, and continue together.
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
					if w.lanes.pending == 0 {
						return true // no lane is left
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
					if w.lanes.pending == 0 {
						return true
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
			if w.lanes.pending == 0 {
				return true
			}
			w.retire()
			at = w.next()
			continue

		case termUnreachable:
			return w.trap(outcome.Unreachable, b.inst, noBinding, 0, vec.First(w.lanes.mask))
		}

		for _, s := range e.copies {
			s(w)
		}

		if e.back && !checkStop(w) {
			return false
		}

		at = e.to
		if w.lanes.pending != 0 {
			if at > w.lanes.low {
				w.park(at, w.lanes.mask)
				w.lanes.mask = nil
				at = w.next()
			} else if at == w.lanes.low {
				m := w.unpark(at)
				vec.Or(w.lanes.mask, w.lanes.mask, m)
				w.giveMask(m)
				w.lanes.full = vec.All(w.lanes.mask)
			}
		}
	}
}

// part splits the lanes of a branch on which they differ. If all take one way, it
// returns that edge; otherwise both parts wait, and it returns -1.
func (w *Worker) part(b *xblock) int {
	c := w.r[b.cond]
	yes, no := w.takeMask(), w.takeMask()
	anyYes, anyNo := vec.Split(yes, no, c, w.lanes.mask)
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

	w.giveMask(w.lanes.mask)
	w.lanes.full = false
	w.lanes.pending++ // copies see that not all lanes take part
	first, second := 0, 1
	if b.edges[0].back {
		first, second = 1, 0
	}

	sides := [2][]uint32{yes, no}
	for _, n := range [2]int{first, second} {
		w.lanes.mask = sides[n]
		for _, s := range b.edges[n].copies {
			s(w)
		}
	}

	w.lanes.pending--
	w.lanes.mask = nil
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
	lanes := w.lanes.mask
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

	w.lanes.full = false
	w.lanes.pending++
	w.lanes.mask = nil

	// Back edges come last: their writes may be the others' reads.
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

			w.lanes.mask = m
			for _, s := range e.copies {
				s(w)
			}

			w.park(e.to, m)
		}
	}

	w.lanes.pending--
	w.lanes.mask = nil
	w.giveMask(lanes)
	return -1
}

// park makes lanes wait at a block, or ends them where nothing is left but to return.
func (w *Worker) park(at int32, m []uint32) {
	w.lanes.full = false
	if w.k.blocks[at].gone {
		w.giveMask(m)
		return
	}
	if have := w.lanes.waiting[at]; have != nil {
		vec.Or(have, have, m)
		w.giveMask(m)
		return
	}
	w.lanes.waiting[at] = m
	w.lanes.pending++
	w.lanes.low = min(w.lanes.low, at)
}

// unpark takes the lanes that wait at a block.
func (w *Worker) unpark(at int32) []uint32 {
	m := w.lanes.waiting[at]
	w.lanes.waiting[at] = nil
	w.lanes.pending--
	if w.lanes.pending == 0 {
		w.lanes.low = 1<<31 - 1
		return m
	}
	for at++; w.lanes.waiting[at] == nil; at++ {
	}
	w.lanes.low = at
	return m
}

// next runs the lanes that wait first.
func (w *Worker) next() int32 {
	at := w.lanes.low
	w.lanes.mask = w.unpark(at)
	w.lanes.full = vec.All(w.lanes.mask)
	return at
}

// retire ends the running lanes.
func (w *Worker) retire() {
	w.giveMask(w.lanes.mask)
	w.lanes.mask = nil
	w.lanes.full = false
}
