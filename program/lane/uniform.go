package lane

// Uniformity. A value is uniform if all lanes that run its instruction together get
// the same value; it is then computed once. Lanes that leave a loop in different
// iterations take different values out of it, so a value from such a loop is not
// uniform outside (see keepValues).

// uniformity marks values that may vary. It starts with none and adds until nothing
// changes.
func (f *fn) uniformity() {
	u := &uniformity{
		f: f, joins: make([]bool, len(f.blocks)),
		labels: make([]label, len(f.blocks)), users: make([][]val, len(f.ins)),
	}

	for n := range f.blocks {
		for _, v := range f.blocks[n].ins {
			for _, a := range f.ins[v].args {
				u.users[a] = append(u.users[a], v)
			}
		}
	}

	divergent := make([]bool, len(f.blocks)) // ends in a branch on which lanes may differ
	for changed := true; changed; {
		changed = false
		f.burn(nil, len(f.ins)/16)
		for n := range f.blocks {
			b := &f.blocks[n]
			for _, v := range b.ins {
				if i := &f.ins[v]; !i.vary && f.varies(i, u.joins[n]) {
					u.mark(v)
					changed = true
				}
			}
			if !divergent[n] && len(b.succs) > 1 && f.variesAt(b.cond, int32(n)) {
				divergent[n] = true
				u.spread(int32(n), b.succs, b.loop)
				changed = true
			}
		}
	}
}

// uniformity is the state of the search.
type uniformity struct {
	f      *fn
	joins  []bool // lanes may come together here from different ways
	labels []label
	stamp  int32
	users  [][]val
}

// label is the label of a block in the spread with the number stamp.
type label struct{ label, stamp int32 }

// mark marks a value, and the values derived from it that vary because of it.
func (u *uniformity) mark(v val) {
	f := u.f
	f.ins[v].vary = true
	work := []val{v}
	for len(work) > 0 {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		for _, w := range u.users[v] {
			if i := &f.ins[w]; !i.vary && f.varies(i, u.joins[i.blk]) {
				i.vary = true
				work = append(work, w)
			}
		}
	}
}

func (f *fn) varies(i *ins, join bool) bool {
	switch i.op {
	case iConst, iPush, iArrLen, iStore, iStoreAt, iBarrier, iFence, iCheckZero, iCheckIndex, iClearVar:
		return false

	case iInput:
		return i.imm >= inUniforms
	case iAtomic, iAtomicAt, iSubgroup, iKeep, iSplat:
		return true

	case iLoad:
		if f.mems[i.aux].v.class == classPrivate {
			return true
		}

	case iPhi:
		if join {
			// Different ways with one value are no difference, but clean has
			// already replaced such phis by the value.
			return true
		}
		// Each operand is used on its edge, inside the loops of its origin.
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

// variesAt reports whether v may vary when used in block b.
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

// keepValues makes values usable outside of loops that lanes leave one after the
// other. A varying value is written on active lanes only, so that lanes keep the
// value with which they left. For a uniform value each lane keeps its own copy.
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

// leaves reports that the way from block a to block b leaves a loop that lanes may
// leave in different iterations.
func (f *fn) leaves(a, b int32) bool {
	for k := f.blocks[a].loop; k >= 0; k = f.loops[k].parent {
		if f.loops[k].divergent && !f.within(b, k) {
			return true
		}
	}
	return false
}

// spread finds where lanes that diverge at block b may converge again. Each way out
// of b has its own label, which is carried along forward edges; a block that two
// labels reach is a join and has its own. Loops that are left on one way and not on
// another become divergent, and diverge their lanes themselves.
func (u *uniformity) spread(b int32, ways []int32, inner int32) {
	f := u.f
	end := int32(len(f.blocks))
	u.stamp++
	stamp := u.stamp
	last := b // the farthest block that a labelled one leads to
	give := func(to, way int32) {
		switch x := &u.labels[to]; {
		case x.stamp != stamp:
			*x = label{way, stamp}
		case x.label != way:
			x.label = to
			u.joins[to] = true
		}
		last = max(last, to)
	}

	type exit struct{ loop, label, to int32 }
	var exits []exit // and back edges, with to -1
	edge := func(from, to, way int32) {
		for k := f.blocks[from].loop; k >= 0; k = f.loops[k].parent {
			if to == f.loops[k].first && to <= from {
				exits = append(exits, exit{k, way, -1})
			} else if !f.within(to, k) {
				exits = append(exits, exit{k, way, to})
			}
		}
		if to > from {
			give(to, way)
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
		f.burn(nil, 1)
		if u.labels[n].stamp != stamp {
			continue
		}
		if n == last {
			// All running lanes are here: had some left a loop around it, or stayed
			// in one, they would be in a later block.
			break
		}
		way := u.labels[n].label
		for _, to := range f.blocks[n].succs {
			edge(n, to, way)
		}
	}

	// A way that ends in a return takes its lanes out of all loops, but nothing
	// comes after it.
	for k := inner; k >= 0; k = f.loops[k].parent {
		l := &f.loops[k]
		way, mixed, some := int32(0), false, false
		var out []int32
		for _, e := range exits {
			if e.loop != k {
				continue
			}
			if some && e.label != way {
				mixed = true
			}
			way, some = e.label, true
		}

		if !mixed || l.divergent {
			continue
		}

		l.divergent = true
		for n := l.first; n <= l.last; n++ {
			for _, to := range f.blocks[n].succs {
				if !f.within(to, k) {
					out = append(out, to)
					u.joins[to] = true
				}
			}
		}

		u.spread(l.last, out, l.parent)
		break
	}
}
