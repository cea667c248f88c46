package lane

import "capgpu/program/spirv"

// chain follows an access chain: constant indices go into the offset, others
// become terms.
func (l *lowerer) chain(in *spirv.Inst) pointer {
	p := l.pointer(in.Arg(0))
	first := 1
	if p.v.buffers > 0 && len(in.Args) > 1 {
		p = l.buffer(in, p)
		first++
	}

	return l.walk(in, p, first)
}

// walk follows the indexes of a chain from argument first on.
func (l *lowerer) walk(in *spirv.Inst, p pointer, first int) pointer {
	t := l.typ(p.typ)
	p.terms = p.terms[:len(p.terms):len(p.terms)]
	for k := first; k < len(in.Args); k++ {
		idx := l.scalar(in.Arg(k))
		c, isConst := l.f.isConst(idx)
		switch t.kind {
		case typeStruct:
			if !isConst || c >= uint64(t.n) {
				fail(in, "SPV-2901", "no such member")
			}
			p.off += uint64(l.memberOff(p.v.class, t, int(c)))
			if p.v.class == classPrivate {
				p.bytes += uint64(l.memberOff(classShared, t, int(c)))
			}
			p.in = l.spreadOf(p.v.class, t, int(c))
			t = l.typ(t.members[c])

		case typeVector, typeArray, typeRuntime:
			stride, bytes := l.strideIn(p.v.class, t, p.in), uint32(0)
			if p.v.class == classPrivate {
				bytes = l.stride(classShared, t)
			}
			switch {
			case isConst && t.kind != typeRuntime && c < uint64(t.n):
				p.off += c * uint64(stride)
				p.bytes += c * uint64(bytes)
			case t.kind == typeRuntime:
				p.terms = append(p.terms, index{l.index32(in.Arg(k), idx), stride, 0, bytes})
			default:
				// A length of 0 admits no index, nor does 1 with the greatest
				// index.
				if t.n == 0 {
					idx = l.f.word(1<<32 - 1)
				}
				p.terms = append(p.terms, index{l.index32(in.Arg(k), idx), stride, uint32(max(1, t.n)), bytes})
			}
			t = t.elem

		default:
			fail(in, "SPV-2901", "an index into a scalar")
		}
	}

	p.typ = t.id
	if want, _ := l.pointee(in.Type); want != t.id && l.typ(want).kind != t.kind {
		fail(in, "SPV-2901", "an access chain that does not lead to its type")
	}

	return p
}

// buffer is one of an array of buffers: the first index of a chain.
func (l *lowerer) buffer(in *spirv.Inst, p pointer) pointer {
	n, ok := l.f.isConst(l.scalar(in.Arg(1)))
	if !ok || n >= uint64(p.v.buffers) {
		return l.anyBuffer(in, p)
	}

	d := l.m.Def(p.v.typ)
	one := *p.v
	one.typ, one.binding, one.buffers = d.Arg(0), p.v.binding+int(n), 0
	return pointer{v: &one, typ: one.typ}
}

// index32 is an index as 32 bits; an index that does not fit becomes the greatest
// one, which is out of range everywhere.
func (l *lowerer) index32(id spirv.ID, v val) val {
	t := l.typ(l.typeOf(id))
	switch {
	case t.wide:
		low := l.emit(iLow, false, 0, v)
		fits := l.spv(spirv.OpIEqual, false, l.emit(iHighHalf, false, 0, v), l.f.word(0))
		return l.spv(spirv.OpSelect, false, fits, low, l.f.word(1<<32-1))
	case t.width < 32 && t.signed:
		return l.emit(iExtend, false, uint64(t.width), v)
	}
	return v
}

func (l *lowerer) typeOf(id spirv.ID) spirv.ID {
	if d := l.m.Def(id); d != nil {
		return d.Type
	}
	return 0
}

// access makes the address of one scalar for an instruction with operands after the
// terms.
func (l *lowerer) access(p pointer, t *tinfo, off uint64, write bool, operands ...val) (aux int32, args []val) {
	m := mem{v: p.v, off: off, bytes: p.bytes, size: t.size, write: write}
	if p.v.class == classPrivate {
		m.size = 1
	}
	for _, x := range p.terms {
		m.terms = append(m.terms, term{stride: x.stride, bound: x.bound, bytes: x.bytes, at: int32(len(args))})
		args = append(args, x.v)
	}
	m.args = int32(len(args))
	l.f.mems = append(l.f.mems, m)
	return int32(len(l.f.mems) - 1), append(args, operands...)
}

// load is the leaves of a pointer's target.
func (l *lowerer) load(p pointer) []val {
	t := l.typ(p.typ)
	if t.leaves > maxLeaves {
		fail(l.src, "SPV-2900", "a load of %d scalars", t.leaves)
	}

	out := make([]val, 0, t.leaves)
	switch {
	case p.base != 0:
		return l.loadChosen(p, t)
	case p.v.class == classInput:
		return l.builtin(p, t)
	case p.v.promoted:
		if len(p.terms) > 0 {
			fail(l.src, "SPV-2901", "an index that was not foreseen")
		}
		for k := range t.leaves {
			out = append(out, l.read(p.v.first+int32(p.off)+int32(k), l.cur))
		}
		return out
	case p.v.class == classPush && len(p.terms) == 0:
		l.leafVisitIn(classPush, t, p.off, p.in, func(t *tinfo, off uint64) {
			out = append(out, l.effect(ins{op: iPush, wide: t.wide, imm: off, aux: int32(t.size)}))
		})
		return out
	}

	l.leafVisitIn(p.v.class, t, p.off, p.in, func(t *tinfo, off uint64) {
		aux, args := l.access(p, t, off, false)
		v := l.effect(ins{op: iLoad, wide: t.wide, aux: aux, args: args})
		if t.kind == typeBool && p.v.class == classShared {
			// The memory may be unwritten, and a lane takes only one way.
			v = l.spv(spirv.OpINotEqual, false, v, l.f.word(0))
		}
		out = append(out, v)
	})

	return out
}

func (l *lowerer) store(p pointer, v []val) {
	t := l.typ(p.typ)
	if len(v) != t.leaves {
		fail(l.src, "SPV-2901", "a store of a value of another type")
	}

	k := 0
	switch {
	case p.base != 0:
		l.storeChosen(p, t, v)
		return
	case p.v.class == classInput, p.v.class == classPush:
		fail(l.src, "SPV-2901", "a store to what cannot be written")
	case p.v.promoted:
		if len(p.terms) > 0 {
			fail(l.src, "SPV-2901", "an index that was not foreseen")
		}
		for k, x := range v {
			l.write(p.v.first+int32(p.off)+int32(k), l.cur, x)
		}
		return
	}

	l.leafVisitIn(p.v.class, t, p.off, p.in, func(t *tinfo, off uint64) {
		aux, args := l.access(p, t, off, true, v[k])
		k++
		l.effect(ins{op: iStore, wide: t.wide, aux: aux, args: args, void: true})
	})
}

// builtin is the value of an input variable, or of one component.
func (l *lowerer) builtin(p pointer, t *tinfo) []val {
	var all []val
	f := l.f
	ins3 := func(first int) []val { return []val{f.input(first), f.input(first + 1), f.input(first + 2)} }
	mask := func(lo, hi int) []val { return []val{f.input(lo), f.input(hi), f.word(0), f.word(0)} }
	b := l.o.Block
	switch p.v.builtin {
	case spirv.BuiltInNumWorkgroups:
		all = ins3(inGridX)

	case spirv.BuiltInWorkgroupSize:
		all = []val{f.word(b.X), f.word(b.Y), f.word(b.Z)}
	case spirv.BuiltInWorkgroupId:
		all = ins3(inGroupX)

	case spirv.BuiltInLocalInvocationId:
		all = ins3(inLaneX)
	case spirv.BuiltInGlobalInvocationId:
		for i, n := range []uint32{b.X, b.Y, b.Z} {
			base := l.spv(spirv.OpIMul, false, f.input(inGroupX+i), f.word(n))
			all = append(all, l.spv(spirv.OpIAdd, false, base, f.input(inLaneX+i)))
		}

	case spirv.BuiltInLocalInvocationIndex:
		all = []val{f.input(inLane)}
	case spirv.BuiltInSubgroupSize:
		all = []val{f.word(uint32(f.subs))}

	case spirv.BuiltInSubgroupLocalInvocationId:
		all = []val{f.input(inSubLane)}
	case spirv.BuiltInNumSubgroups:
		all = []val{f.word(uint32((f.lanes + f.subs - 1) / f.subs))}

	case spirv.BuiltInSubgroupId:
		all = []val{f.input(inSubID)}
	case spirv.BuiltInSubgroupEqMask:
		all = mask(inEq, inEqHi)

	case spirv.BuiltInSubgroupGeMask:
		all = mask(inGe, inGeHi)
	case spirv.BuiltInSubgroupGtMask:
		all = mask(inGt, inGtHi)

	case spirv.BuiltInSubgroupLeMask:
		all = mask(inLe, inLeHi)
	case spirv.BuiltInSubgroupLtMask:
		all = mask(inLt, inLtHi)

	default:
		fail(l.src, "SPV-2901", "the built-in %v", p.v.builtin)
	}

	// The chain counted in leaves or bytes, but a component is needed.
	first := 0
	if t.leaves == 1 && len(all) > 1 {
		first = int(p.off / 4)
		if len(p.terms) == 1 {
			l.checkIndex(p.terms[0].v, len(all), 4)
			return []val{l.pick(all, p.terms[0].v)}
		}
	}

	if first+t.leaves > len(all) {
		fail(l.src, "SPV-2901", "the built-in %v has not so many components", p.v.builtin)
	}

	return all[first : first+t.leaves]
}

// checkIndex traps where n is not below the number of components.
func (l *lowerer) checkIndex(n val, count int, bytes uint32) {
	if c, ok := l.f.isConst(n); ok && c < uint64(count) || l.fr == nil {
		return
	}
	l.effect(ins{op: iCheckIndex, void: true, imm: uint64(count), aux: int32(bytes), args: l.f.take([]val{n})})
}

// pick is the component with the number n; the first if there is none.
func (l *lowerer) pick(of []val, n val) val {
	v := of[0]
	for k := 1; k < len(of); k++ {
		is := l.spv(spirv.OpIEqual, false, n, l.f.word(uint32(k)))
		v = l.spv(spirv.OpSelect, l.f.ins[v].wide, is, of[k], v)
	}
	return v
}
