package lane

// Which values are the same on all lanes. A value is called uniform when all
// lanes that run its instruction together get the same; it is then computed once.
// Lanes that leave a loop in different iterations take different values out of it,
// so a value from such a loop is not uniform outside (see keepValues).

// uniformity marks what may vary. It starts from nothing and adds until it holds.
func (f *fn) uniformity() {
	divergent := make([]bool, len(f.blocks)) // ends in a branch on which lanes may differ
	joins := make([]bool, len(f.blocks))     // lanes may come together here from different ways
	labels := make([]int32, len(f.blocks))
	for k := range f.loops {
		f.loops[k].divergent = false
	}
	for changed := true; changed; {
		changed = false
		for n := range f.blocks {
			b := &f.blocks[n]
			for _, v := range b.ins {
				i := &f.ins[v]
				if !i.vary && f.varies(i, joins[n]) {
					i.vary = true
					changed = true
				}
			}
		}
		for n := range f.blocks {
			b := &f.blocks[n]
			if !divergent[n] && len(b.succs) > 1 && f.variesAt(b.cond, int32(n)) {
				divergent[n] = true
				f.spread(int32(n), b.succs, b.loop, joins, labels)
				changed = true
			}
		}
	}
}

func (f *fn) varies(i *ins, join bool) bool {
	switch i.op {
	case iConst, iPush, iArrLen, iStore, iBarrier, iFence, iCheckZero, iClearVar:
		return false
	case iInput:
		return i.imm >= inUniforms
	case iAtomic, iSubgroup, iKeep, iSplat:
		return true
	case iLoad:
		if f.mems[i.aux].v.class == classPrivate {
			return true
		}
	case iPhi:
		if join {
			// Different ways with one value are no difference, but clean has
			// made such phis that value.
			return true
		}
		// Each operand is used on its edge, inside the loops it comes from.
		for k, a := range i.args {
			if f.variesAt(a, f.blocks[i.blk].preds[k]) {
				return true
			}
		}
		return false
	}
	for _, a := range i.args {
		if f.variesAt(a, i.blk) {
			return true
		}
	}
	return false
}

// variesAt says whether v may vary when used in block b.
func (f *fn) variesAt(v val, b int32) bool {
	i := &f.ins[v]
	if i.op == iInput {
		return i.imm >= inUniforms
	}
	switch i.op {
	case iConst, iPush, iArrLen:
		return false
	}
	return i.vary || f.leaves(i.blk, b)
}

// keepValues lets values be used outside of loops that lanes leave one after the
// other: what varies is written on active lanes only, so that lanes keep what they
// left with, and of what is uniform each lane keeps its own copy.
func (f *fn) keepValues() {
	kept := make(map[val]val)
	use := func(v val, b int32) val {
		i := &f.ins[v]
		switch {
		case i.op == iConst, i.op == iInput, i.op == iPush, i.op == iArrLen, !f.leaves(i.blk, b):
			return v
		case i.vary:
			i.mask = true
			return v
		}
		k, ok := kept[v]
		if !ok {
			k = f.add(ins{op: iKeep, wide: i.wide, vary: true, mask: true, blk: i.blk, args: f.take([]val{v}), src: i.src})
			kept[v] = k
		}
		return k
	}
	for n := range f.blocks {
		b := &f.blocks[n]
		for _, v := range b.ins {
			i := &f.ins[v]
			for k, a := range i.args {
				at := int32(n)
				if i.op == iPhi {
					at = b.preds[k]
				}
				i = &f.ins[v]
				i.args[k] = use(a, at)
			}
		}
		if b.cond != 0 {
			b.cond = use(b.cond, int32(n))
		}
	}
	if len(kept) == 0 {
		return
	}
	for n := range f.blocks {
		b := &f.blocks[n]
		list := append([]val(nil), b.ins[:b.phis]...)
		for k, v := range b.ins {
			if k >= b.phis {
				list = append(list, v)
			}
			if keep, ok := kept[v]; ok {
				list = append(list, keep)
			}
		}
		b.ins = list
	}
}

// leaves says that on the way from block a to block b a loop is left that lanes
// may leave in different iterations.
func (f *fn) leaves(a, b int32) bool {
	for k := f.blocks[a].loop; k >= 0; k = f.loops[k].parent {
		if f.loops[k].divergent && !f.within(b, k) {
			return true
		}
	}
	return false
}

// spread finds where lanes that part at block b may come together again: each way
// out of b has its own label, which is carried along forward edges; a block that
// two labels reach is a join and has its own. Loops that are left on one way and
// not on another become divergent, and part their lanes themselves.
func (f *fn) spread(b int32, ways []int32, inner int32, joins []bool, labels []int32) {
	const none = -1
	end := int32(len(f.blocks))
	for n := b; n < end; n++ {
		labels[n] = none
	}
	last := b // the farthest block that a labelled one leads to
	give := func(to, label int32) {
		switch {
		case labels[to] == none:
			labels[to] = label
		case labels[to] != label:
			labels[to] = to
			joins[to] = true
		}
		last = max(last, to)
	}
	type exit struct{ loop, label, to int32 }
	var exits []exit // and back edges, with to -1
	edge := func(from, to, label int32) {
		for k := f.blocks[from].loop; k >= 0; k = f.loops[k].parent {
			if to == f.loops[k].first && to <= from {
				exits = append(exits, exit{k, label, -1})
			} else if !f.within(to, k) {
				exits = append(exits, exit{k, label, to})
			}
		}
		if to > from {
			give(to, label)
		}
	}
	for _, to := range ways {
		// For the lanes that leave a loop, b is its last block.
		from := b
		for k := inner; k >= 0; k = f.loops[k].parent {
			if to == f.loops[k].first && to <= b {
				exits = append(exits, exit{k, to, -1})
			} else if !f.within(to, k) {
				exits = append(exits, exit{k, to, to})
			}
		}
		if to > from {
			give(to, to)
		}
	}
	for n := b + 1; n < end && n <= last; n++ {
		if labels[n] == none {
			continue
		}
		if n == last && joins[n] && labels[n] == n {
			// All have come together, unless some have left a loop.
			break
		}
		for _, to := range f.blocks[n].succs {
			edge(n, to, labels[n])
		}
	}
	// A way that ends in a return takes its lanes out of all loops, but nothing
	// comes after it.
	for k := inner; k >= 0; k = f.loops[k].parent {
		l := &f.loops[k]
		label, mixed, some := int32(0), false, false
		var out []int32
		for _, e := range exits {
			if e.loop != k {
				continue
			}
			if some && e.label != label {
				mixed = true
			}
			label, some = e.label, true
		}
		if !mixed || l.divergent {
			continue
		}
		l.divergent = true
		for n := l.first; n <= l.last; n++ {
			for _, to := range f.blocks[n].succs {
				if !f.within(to, k) {
					out = append(out, to)
					joins[to] = true
				}
			}
		}
		f.spread(l.last, out, l.parent, joins, labels)
		break
	}
}
