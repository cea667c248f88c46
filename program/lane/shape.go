package lane

import "sort"

// arrange sorts the blocks into the order in which they were lowered, removes
// unreachable ones, and finds loops and dominators.
func (f *fn) arrange(order []int32) {
	reach := make([]bool, len(f.blocks))
	work := []int32{order[0]}
	reach[order[0]] = true
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		for _, s := range f.blocks[b].succs {
			if !reach[s] {
				reach[s] = true
				work = append(work, s)
			}
		}
	}

	number := make([]int32, len(f.blocks))
	var blocks []block
	for _, b := range order {
		if reach[b] {
			number[b] = int32(len(blocks))
			blocks = append(blocks, f.blocks[b])
		}
	}

	for n := range blocks {
		b := &blocks[n]
		for k := range b.succs {
			b.succs[k] = number[b.succs[k]]
		}

		var keep []int
		for k, p := range b.preds {
			if reach[p] {
				keep = append(keep, k)
			}
		}

		preds := make([]int32, len(keep))
		for k, at := range keep {
			preds[k] = number[b.preds[at]]
		}

		lost := len(keep) != len(b.preds)
		b.preds = preds
		var phis, rest []val
		for _, v := range b.ins {
			i := &f.ins[v]
			i.blk = int32(n)
			switch {
			case i.op == iCopy:
			case i.op == iPhi:
				if lost {
					args := make([]val, len(keep))
					for k, at := range keep {
						args[k] = i.args[at]
					}
					i.args = args
				}
				phis = append(phis, v)
			default:
				rest = append(rest, v)
			}
		}

		b.phis = len(phis)
		b.ins = append(phis, rest...)
	}

	f.blocks = blocks
	f.findLoops()
	f.dominators()
}

// findLoops takes the blocks between the target and the source of a back edge as a
// loop, which is right in structured order.
func (f *fn) findLoops() {
	for n := range f.blocks {
		b := int32(n)
		last := int32(-1)
		for _, p := range f.blocks[b].preds {
			if p >= b {
				last = max(last, p)
			}
		}
		if last >= 0 {
			f.loops = append(f.loops, loop{first: b, last: last, parent: -1})
		}
	}

	// By first block, so outer loops come before inner ones.
	sort.SliceStable(f.loops, func(i, j int) bool {
		a, b := f.loops[i], f.loops[j]
		return a.first < b.first || a.first == b.first && a.last > b.last
	})

	for k := range f.loops {
		l := &f.loops[k]
		up := f.blocks[l.first].loop
		if up >= 0 && f.loops[up].last < l.last {
			fail(f.blocks[l.first].src, "SPV-2902", "loops that are not nested in each other")
		}
		l.parent = up
		for b := l.first; b <= l.last; b++ {
			f.blocks[b].loop = int32(k)
		}
	}
}

// within reports that block b is in loop k.
func (f *fn) within(b, k int32) bool { return f.loops[k].first <= b && b <= f.loops[k].last }

// dominators uses the algorithm of Cooper, Harvey and Kennedy. In this order all
// edges but back edges go forward, so one more round is enough.
func (f *fn) dominators() {
	for b := range f.blocks {
		f.blocks[b].idom = -1
	}

	f.blocks[0].idom = 0
	for changed := true; changed; {
		changed = false
		for b := 1; b < len(f.blocks); b++ {
			d := int32(-1)
			steps := len(f.blocks[b].preds)
			for _, p := range f.blocks[b].preds {
				switch {
				case f.blocks[p].idom < 0:
				case d < 0:
					d = p
				default:
					x := p
					for x != d {
						steps++
						if x > d {
							x = f.blocks[x].idom
						} else {
							d = f.blocks[d].idom
						}
					}
				}
			}

			f.burn(f.blocks[b].src, 1+steps/8)
			if d != f.blocks[b].idom {
				f.blocks[b].idom = d
				changed = true
			}
		}
	}
}

// clean follows copies, replaces phis of one value by that value, and folds new
// constants. It takes few rounds; a remaining phi is harmless.
func (f *fn) clean() {
	changed := true
	for round := 0; changed && round < 8; round++ {
		f.burn(nil, len(f.ins)/16)
		changed = false
		for n := range f.blocks {
			b := &f.blocks[n]
			for _, v := range b.ins {
				i := &f.ins[v]
				if i.op == iCopy {
					continue
				}
				for k, a := range i.args {
					i.args[k] = f.resolve(a)
				}
				if i.op == iPhi {
					f.simplifyPhi(v)
				} else if c, ok := f.simplify(v); ok {
					i = &f.ins[v]
					i.op, i.args = iCopy, f.take([]val{c})
				}
				changed = changed || f.ins[v].op == iCopy
			}

			f.sweep(b)
			b.cond = f.resolve(b.cond)
		}
	}

	f.settle()
}

// settle follows the remaining copies.
func (f *fn) settle() {
	for n := range f.blocks {
		b := &f.blocks[n]
		for _, v := range b.ins {
			i := &f.ins[v]
			if i.op == iCopy {
				continue
			}
			for k, a := range i.args {
				i.args[k] = f.resolve(a)
			}
		}
		b.cond = f.resolve(b.cond)
		f.sweep(b)
	}
}

// sweep drops copies and dead instructions from a block's list.
func (f *fn) sweep(b *block) {
	keep := b.ins[:0]
	phis := 0
	for _, v := range b.ins {
		if i := &f.ins[v]; i.op != iCopy && !i.dead {
			if i.op == iPhi {
				phis++
			}
			keep = append(keep, v)
		}
	}
	b.ins, b.phis = keep, phis
}

// drop removes unused instructions.
func (f *fn) drop() {
	live := make([]bool, len(f.ins))
	var work []val
	mark := func(v val) {
		if v != 0 && !live[v] {
			live[v] = true
			work = append(work, v)
		}
	}

	for n := range f.blocks {
		b := &f.blocks[n]
		mark(b.cond)
		for _, v := range b.ins {
			if effects(&f.ins[v]) {
				mark(v)
			}
		}
	}

	for len(work) > 0 {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		for _, a := range f.ins[v].args {
			mark(a)
		}
	}

	for n := range f.blocks {
		b := &f.blocks[n]
		for _, v := range b.ins {
			f.ins[v].dead = !live[v]
		}
		f.sweep(b)
	}
}
