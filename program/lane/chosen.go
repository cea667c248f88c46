package lane

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// Pointers that are chosen when the program runs. One is a place, in 64 bits:
//
//	63…56  the memory: 0 none, 1 + a binding, or from firstShared on a shared variable
//	55     it is out of range, whatever the memory's length
//	54…0   the offset in bytes from the memory's start
//
// The memory is never computed but from an index that was compared with the length of
// an array of buffers; so a place leads into one that the program has, or nowhere. Each
// access compares the offset with the memory's end.
const (
	placeOut    = 1 << 55
	placeOff    = placeOut - 1
	firstShared = 1 + program.MaxBindings
)

// chosen is a pointer of a type that leads to a place.
func (l *lowerer) chosen(t *tinfo, place val) pointer {
	c := classBuffer
	if t.storage == spirv.StorageClassWorkgroup {
		c = classShared
	}
	return pointer{v: &variable{class: c, typ: t.elemID, binding: -1}, base: place, typ: t.elemID}
}

// memoryOf is the memory of a variable, in the bits of a place.
func (l *lowerer) memoryOf(v *variable) uint64 {
	if v.class == classBuffer && v.buffers == 0 {
		return uint64(1+v.binding) << 56
	}
	for k, s := range l.sharedVars() {
		if s == v {
			return uint64(firstShared+k) << 56
		}
	}
	fail(l.src, "SPV-2900", "a pointer to one of too many shared variables")
	return 0
}

// sharedVars are the shared variables that places can lead into.
func (l *lowerer) sharedVars() []*variable { return sharedOf(l.f.vars) }

func sharedOf(vars []*variable) (shared []*variable) {
	for _, v := range vars {
		if v.class == classShared && firstShared+len(shared) < 256 {
			shared = append(shared, v)
		}
	}
	return shared
}

// placeOf computes where a pointer leads.
func (l *lowerer) placeOf(p pointer) val {
	memory := p.base
	if p.base == 0 {
		memory = l.f.constant(l.memoryOf(p.v), true)
	}
	if p.base != 0 && p.off == 0 && len(p.terms) == 0 {
		return p.base
	}

	wide := func(o spirv.Opcode, a, b val) val { return l.spv(o, true, a, b) }
	c := func(n uint64) val { return l.f.constant(n, true) }
	sum, out := c(p.off), l.f.word(0)
	for _, t := range p.terms {
		if t.bound != 0 {
			out = l.spv(spirv.OpLogicalOr, false, out, l.spv(spirv.OpUGreaterThanEqual, false, t.v, l.f.word(t.bound)))
		}
		sum = wide(spirv.OpIAdd, sum, wide(spirv.OpIMul, l.convert(spirv.OpUConvert, t.v, 32, 64), c(uint64(t.stride))))
	}
	if p.base != 0 {
		out = l.spv(spirv.OpLogicalOr, false, out, l.isOut(p.base))
		sum = wide(spirv.OpIAdd, sum, wide(spirv.OpBitwiseAnd, p.base, c(placeOff)))
		memory = wide(spirv.OpBitwiseAnd, p.base, c(^uint64(placeOut|placeOff)))
	}

	// One index is not bounded; its product with the stride is below 2^62.
	far := l.spv(spirv.OpUGreaterThanEqual, false, l.emit(iHighHalf, false, 0, sum), l.f.word(placeOut>>32))
	flag := l.spv(spirv.OpSelect, true, l.spv(spirv.OpLogicalOr, false, out, far), c(placeOut), c(0))
	return wide(spirv.OpBitwiseOr, memory, wide(spirv.OpBitwiseOr, wide(spirv.OpBitwiseAnd, sum, c(placeOff)), flag))
}

// anyBuffer is one of an array of buffers, by an index that is known when the program
// runs: a pointer to nothing where there is no such buffer.
func (l *lowerer) anyBuffer(in *spirv.Inst, p pointer) pointer {
	i := l.index32(in.Arg(1), l.scalar(in.Arg(1)))
	number := l.convert(spirv.OpUConvert, l.spv(spirv.OpIAdd, false, i, l.f.word(uint32(1+p.v.binding))), 32, 64)
	place := l.spv(spirv.OpIMul, true, number, l.f.constant(1<<56, true))
	is := l.spv(spirv.OpULessThan, false, i, l.f.word(uint32(p.v.buffers)))
	elem := l.m.Def(p.v.typ).Arg(0)
	return pointer{v: &variable{class: classBuffer, typ: elem, binding: -1}, typ: elem,
		base: l.spv(spirv.OpSelect, true, is, place, l.f.constant(0, true))}
}

// step64 is OpPtrAccessChain: a step from an element to another, forward or back, and
// an access chain from there.
func (l *lowerer) step64(in *spirv.Inst) pointer {
	p := l.pointer(in.Arg(0))
	t := l.typ(p.typ)
	stride := uint64((t.size + t.align - 1) / t.align * t.align)
	if p.v.class == classBuffer {
		d, ok := l.m.Decoration(l.typeOf(in.Arg(0)), spirv.DecorationArrayStride)
		if !ok {
			fail(in, "SPV-2901", "a step of a pointer without ArrayStride")
		}
		stride = uint64(literal(d))
	}

	// An element is a number with a sign; one of more than 32 bits is out of range.
	element, out := l.scalar(in.Arg(1)), l.f.word(0)
	switch from := l.typ(l.typeOf(in.Arg(1))); {
	case from.wide:
		high := l.emit(iHighHalf, false, 0, l.spv(spirv.OpIAdd, true, element, l.f.constant(1<<31, true)))
		out = l.spv(spirv.OpINotEqual, false, high, l.f.word(0))
	case from.width < 32 && !from.signed:
		element = l.convert(spirv.OpUConvert, element, 32, 64)
	default:
		element = l.convert(spirv.OpSConvert, l.index32(in.Arg(1), element), 32, 64)
	}

	wide := func(o spirv.Opcode, a, b val) val { return l.spv(o, true, a, b) }
	c := func(n uint64) val { return l.f.constant(n, true) }
	from := l.placeOf(p)
	sum := wide(spirv.OpIAdd, wide(spirv.OpBitwiseAnd, from, c(placeOff)), wide(spirv.OpIMul, element, c(stride)))
	far := l.spv(spirv.OpUGreaterThanEqual, false, l.emit(iHighHalf, false, 0, sum), l.f.word(placeOut>>32))
	out = l.spv(spirv.OpLogicalOr, false, out, l.spv(spirv.OpLogicalOr, false, far, l.isOut(from)))
	place := wide(spirv.OpBitwiseOr, wide(spirv.OpBitwiseAnd, from, c(^uint64(placeOut|placeOff))),
		wide(spirv.OpBitwiseOr, wide(spirv.OpBitwiseAnd, sum, c(placeOff)), l.spv(spirv.OpSelect, true, out, c(placeOut), c(0))))
	return l.walk(in, l.chosen(l.typ(l.typeOf(in.Arg(0))), place), 2)
}

// isOut is whether a place is out of range.
func (l *lowerer) isOut(place val) val {
	bit := l.spv(spirv.OpBitwiseAnd, false, l.emit(iHighHalf, false, 0, place), l.f.word(placeOut>>32))
	return l.spv(spirv.OpINotEqual, false, bit, l.f.word(0))
}

// spot is an access by a place.
type spot struct {
	off  uint64 // of what is accessed, from the place
	size uint32 // in bytes
}

func (l *lowerer) spot(t *tinfo, off uint64) int32 {
	l.f.spots = append(l.f.spots, spot{off, t.size})
	return int32(len(l.f.spots) - 1)
}

// start is the place of a pointer without its constant offset, which a spot has.
func (l *lowerer) start(p pointer) val {
	p.off = 0
	return l.placeOf(p)
}

func (l *lowerer) loadChosen(p pointer, t *tinfo) (out []val) {
	start := l.start(p)
	l.leafVisitIn(p.v.class, t, p.off, p.in, func(t *tinfo, off uint64) {
		v := l.effect(ins{op: iLoadAt, wide: t.wide, aux: l.spot(t, off), args: l.f.take([]val{start})})
		if t.kind == typeBool {
			v = l.spv(spirv.OpINotEqual, false, v, l.f.word(0))
		}
		out = append(out, v)
	})
	return out
}

func (l *lowerer) storeChosen(p pointer, t *tinfo, v []val) {
	start, k := l.start(p), 0
	l.leafVisitIn(p.v.class, t, p.off, p.in, func(t *tinfo, off uint64) {
		l.effect(ins{op: iStoreAt, aux: l.spot(t, off), args: l.f.take([]val{start, v[k]}), void: true})
		k++
	})
}

// setResult keeps the value of an instruction: where a pointer leads, if it is one.
func (l *lowerer) setResult(in *spirv.Inst, v []val) {
	if t := l.typ(in.Type); t.kind == typePointer {
		if len(v) != 1 {
			fail(in, "SPV-2901", "a choice of pointers to storage class %v", t.storage)
		}
		l.fr.ptrs[in.Result] = l.chosen(t, v[0])
		return
	}
	l.fr.vals[in.Result] = v
}

// known is a pointer of this function, or a variable.
func (l *lowerer) known(id spirv.ID) (pointer, bool) {
	if l.fr != nil {
		if p, ok := l.fr.ptrs[id]; ok {
			return p, true
		}
	}
	if v := l.vars[id]; v != nil {
		return pointer{v: v, typ: v.typ}, true
	}
	return pointer{}, false
}
