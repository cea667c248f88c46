package lane

// Values of promoted variables, by leaf and block.

func key(leaf, blk int32) uint64 { return uint64(uint32(leaf))<<32 | uint64(uint32(blk)) }

func (l *lowerer) write(leaf, blk int32, v val) {
	l.f.burn(l.src, 2)
	l.defs[key(leaf, blk)] = v
}

func (l *lowerer) read(leaf, blk int32) val {
	if v, ok := l.defs[key(leaf, blk)]; ok {
		return l.f.resolve(v)
	}

	at := blk
	for b := &l.f.blocks[blk]; b.sealed && len(b.preds) == 1; b = &l.f.blocks[blk] {
		l.f.burn(l.src, 1)
		blk = b.preds[0]
		if v, ok := l.defs[key(leaf, blk)]; ok {
			v = l.f.resolve(v)
			l.write(leaf, at, v)
			return v
		}
	}

	b := &l.f.blocks[blk]
	var v val
	switch {
	case !b.sealed:
		v = l.newPhi(leaf, blk)
		l.incomplete[blk] = append(l.incomplete[blk], openPhi{leaf, v})
	case len(b.preds) == 0:
		v = l.f.constant(0, l.leafWide[leaf])
	default:
		v = l.newPhi(leaf, blk)
		l.write(leaf, blk, v)
		v = l.fillPhi(leaf, v)
	}

	l.write(leaf, blk, v)
	if at != blk {
		l.write(leaf, at, v)
	}

	return v
}

func (l *lowerer) newPhi(leaf, blk int32) val {
	v := l.f.add(ins{op: iPhi, wide: l.leafWide[leaf], blk: blk, src: l.src})
	b := &l.f.blocks[blk]
	b.ins = append(b.ins, v)
	return v
}

func (l *lowerer) fillPhi(leaf int32, phi val) val {
	blk := l.f.ins[phi].blk
	l.f.burn(l.src, len(l.f.blocks[blk].preds))
	args := make([]val, 0, len(l.f.blocks[blk].preds))
	for _, p := range l.f.blocks[blk].preds {
		args = append(args, l.read(leaf, p))
	}
	l.f.ins[phi].args = args
	return l.f.simplifyPhi(phi)
}

// simplifyPhi replaces a phi of one value by that value.
func (f *fn) simplifyPhi(phi val) val {
	same := val(0)
	for _, a := range f.ins[phi].args {
		a = f.resolve(a)
		if a == same || a == phi {
			continue
		}
		if same != 0 {
			return phi
		}
		same = a
	}

	if same == 0 {
		same = f.constant(0, f.ins[phi].wide)
	}

	i := &f.ins[phi]
	i.op, i.args = iCopy, f.take([]val{same})
	return same
}

// resolve follows copies.
func (f *fn) resolve(v val) val {
	for f.ins[v].op == iCopy {
		v = f.ins[v].args[0]
	}
	return v
}

// seal records that all predecessors of a block are known.
func (l *lowerer) seal(blk int32) {
	l.f.blocks[blk].sealed = true
	open := l.incomplete[blk]
	delete(l.incomplete, blk)
	for _, o := range open {
		l.fillPhi(o.leaf, o.phi)
	}
}

// edge ends the current block with one more way out.
func (l *lowerer) edge(to int32) int32 {
	b := &l.f.blocks[l.cur]
	for i, s := range b.succs {
		if s == to {
			return int32(i)
		}
	}
	b.succs = append(b.succs, to)
	t := &l.f.blocks[to]
	t.preds = append(t.preds, l.cur)
	return int32(len(b.succs) - 1)
}
