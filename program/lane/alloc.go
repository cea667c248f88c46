package lane

import (
	"container/heap"
	"sort"
)

// Registers. The blocks run in their order, and lanes on another path wait in later
// ones. A value therefore owns its register from the first to the last place, in
// that order, that writes or reads it. A value that is alive when a loop is
// entered, or is used after it, owns its register throughout the loop.

// bank is a file of registers: scalars and vectors of 32 and of 64 bits.
type bank int

const (
	bankS bank = iota
	bankV
	bankSL
	bankVL
	banks
)

func (i *ins) bank() bank {
	switch {
	case i.wide && i.vary:
		return bankVL
	case i.wide:
		return bankSL
	case i.vary:
		return bankV
	}
	return bankS
}

type span struct {
	v            val
	lo, hi       int32
	loBlk, hiBlk int32
}

type alloc struct {
	f          *fn
	reg        []int32 // by value: number in its bank; -1 none
	count      [banks]int32
	pos        []int32
	start, end []int32 // of blocks
	spans      []span  // by value; lo > hi: none
	same       []val   // the value with which a value shares a register
}

// allocate gives each value a register. Constants and inputs have fixed ones, the
// first of their banks.
func (f *fn) allocate() *alloc {
	zero := f.word(0) // for missing factors of an affine address
	a := &alloc{
		f: f, reg: make([]int32, len(f.ins)), pos: make([]int32, len(f.ins)),
		start: make([]int32, len(f.blocks)), end: make([]int32, len(f.blocks)),
		spans: make([]span, len(f.ins)), same: make([]val, len(f.ins)),
	}

	at := int32(0)
	for n := range f.blocks {
		at += 2
		a.start[n] = at
		for _, v := range f.blocks[n].ins {
			if f.ins[v].op != iPhi {
				at += 2
			}
			a.pos[v] = at
		}
		at += 2
		a.end[n] = at
	}

	for v := range a.spans {
		a.spans[v] = span{v: val(v), lo: 1 << 30, hi: -1}
		a.reg[v] = -1
		a.same[v] = val(v)
	}

	a.touch(zero, 0, 0)
	for _, v := range f.launch {
		a.touch(v, 0, 0)
		for _, x := range f.ins[v].args {
			a.touch(x, 0, 0)
		}
	}

	a.measure()
	a.coalesce()
	a.scan()
	return a
}

func (a *alloc) touch(v val, pos, blk int32) {
	s := &a.spans[v]
	if pos < s.lo {
		s.lo, s.loBlk = pos, blk
	}
	if pos > s.hi {
		s.hi, s.hiBlk = pos, blk
	}
}

// fixed reports that a value has a fixed register.
func (f *fn) fixed(v val) bool {
	i := &f.ins[v]
	return i.op == iConst || i.op == iInput || i.once
}

func (a *alloc) measure() {
	f := a.f
	for n := range f.blocks {
		b := &f.blocks[n]
		blk := int32(n)
		for _, v := range b.ins {
			i := &f.ins[v]
			if !i.void {
				a.touch(v, a.pos[v], blk)
			}

			if i.op == iPhi {
				a.touch(v, a.start[n], blk)
				for k, x := range i.args {
					p := b.preds[k]
					a.touch(v, a.end[p], p)
					// It is read after the phis of another edge may have been
					// written.
					a.touch(x, a.end[p]+1, p)
				}
				continue
			}

			pos := a.pos[v]
			if late(i.op) {
				pos++
			}

			for _, x := range i.args {
				a.touch(x, pos, blk)
			}
		}

		if b.cond != 0 {
			a.touch(b.cond, a.end[n], blk)
		}
	}
}

// late operations may fail half way or read other lanes: they must not overwrite
// their operands.
func late(o op) bool {
	return o == iLoad || o == iAtomic || o == iLoadAt || o == iAtomicAt || o == iSubgroup
}

// coalesce computes the next value of a loop's phi in the phi's own register, if
// nothing reads the phi after that, in the order of blocks, and nothing outside the
// loop that could be reached after that.
func (a *alloc) coalesce() {
	f := a.f
	taken := make(map[val]bool)
	budget := 1 << 22 // of work, for programs that have thousands of phis in a long loop
	for k := range f.loops {
		l := &f.loops[k]
		h := &f.blocks[l.first]
		for _, p := range h.ins[:h.phis] {
			back := -1
			for j, from := range h.preds {
				if from >= l.first {
					if back >= 0 {
						back = -2
						break
					}
					back = j
				}
			}

			if back < 0 {
				break
			}

			v := f.ins[p].args[back]
			x, ph := &f.ins[v], &f.ins[p]
			if f.fixed(v) || x.op == iPhi || x.vary != ph.vary || taken[v] || !f.within(x.blk, int32(k)) {
				continue
			}
			if budget -= int(l.last-l.first) + int(a.end[l.last]-a.start[l.first])/2; budget < 0 {
				return
			}
			if !a.lastUse(p, v, int32(k)) {
				continue
			}

			taken[v] = true
			a.same[v] = p
			x.mask = x.vary
			s := a.spans[v]
			a.touch(p, s.lo, s.loBlk)
			a.touch(p, s.hi, s.hiBlk)
		}
	}
}

// lastUse reports that no use of p comes after the definition of v in loop k. The
// span of p ends with the back edge at most: its own operand is touched there.
func (a *alloc) lastUse(p, v val, k int32) bool {
	f := a.f
	l := &f.loops[k]
	at := a.pos[v]
	for n := l.first; n <= l.last; n++ {
		if a.end[n] < at {
			continue
		}

		b := &f.blocks[n]
		if b.cond == p {
			return false
		}

		for _, u := range b.ins {
			if f.ins[u].op == iPhi {
				continue
			}
			if (a.pos[u] > at || u == v && late(f.ins[u].op)) && uses(&f.ins[u], p) {
				return false
			}
		}

		// Consider edges that leave the loop from here on, and the operands of phis
		// along edges.
		for _, s := range b.succs {
			if !f.within(s, k) && a.spans[p].hiBlk > l.last {
				return false
			}
			t := &f.blocks[s]
			for _, u := range t.ins[:t.phis] {
				for j, from := range t.preds {
					if from == n && f.ins[u].args[j] == p {
						return false
					}
				}
			}
		}
	}

	return true
}

func uses(i *ins, v val) bool {
	for _, a := range i.args {
		if a == v {
			return true
		}
	}
	return false
}

// scan assigns registers to the spans in the order of their beginnings.
func (a *alloc) scan() {
	f := a.f
	for v := range f.ins {
		if i := &f.ins[v]; f.fixed(val(v)) && a.spans[v].hi >= 0 {
			b := i.bank()
			a.reg[v] = a.count[b]
			a.count[b]++
		}
	}

	var list []*span
	for v := range a.spans {
		s := &a.spans[v]
		if s.hi < 0 || f.fixed(s.v) || a.same[v] != val(v) || v == 0 {
			continue
		}
		for k := f.blocks[s.hiBlk].loop; k >= 0; k = f.loops[k].parent {
			if first := a.start[f.loops[k].first]; s.lo < first {
				s.hi = max(s.hi, a.end[f.loops[k].last]+1)
			}
		}
		for k := f.blocks[s.loBlk].loop; k >= 0; k = f.loops[k].parent {
			if s.hi > a.end[f.loops[k].last]+1 {
				s.lo = min(s.lo, a.start[f.loops[k].first])
			}
		}
		list = append(list, s)
	}

	sort.Slice(list, func(i, j int) bool {
		if list[i].lo != list[j].lo {
			return list[i].lo < list[j].lo
		}
		return list[i].v < list[j].v
	})

	var busy [banks]spanHeap
	var free [banks][]int32
	for _, s := range list {
		b := f.ins[s.v].bank()
		for len(busy[b]) > 0 && busy[b][0].hi <= s.lo {
			done := heap.Pop(&busy[b]).(busySpan)
			free[b] = append(free[b], done.reg)
		}
		var r int32
		if n := len(free[b]); n > 0 {
			r = free[b][n-1]
			free[b] = free[b][:n-1]
		} else {
			r = a.count[b]
			a.count[b]++
		}
		a.reg[s.v] = r
		heap.Push(&busy[b], busySpan{s.hi, r})
	}

	for v := range a.same {
		if p := a.same[v]; p != val(v) {
			a.reg[v] = a.reg[p]
		}
	}
}

type busySpan struct {
	hi, reg int32
}

type spanHeap []busySpan

func (h spanHeap) Len() int { return len(h) }
func (h spanHeap) Less(i, j int) bool {
	return h[i].hi < h[j].hi || h[i].hi == h[j].hi && h[i].reg < h[j].reg
}
func (h spanHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *spanHeap) Push(x any)   { *h = append(*h, x.(busySpan)) }
func (h *spanHeap) Pop() any {
	o := *h
	x := o[len(o)-1]
	*h = o[:len(o)-1]
	return x
}
