package lane

import "capgpu/program/spirv"

// inst lowers one instruction of a block.
func (l *lowerer) inst(in *spirv.Inst) {
	fr := l.fr
	switch in.Op {
	case spirv.OpNop, spirv.OpLine, spirv.OpNoLine, spirv.OpUndef, spirv.OpName:
		if in.Op == spirv.OpUndef {
			l.setResult(in, l.zero(in.Type))
		}

	case spirv.OpVariable:
		typ, _ := l.pointee(in.Type)
		v := &variable{id: in.Result, typ: typ, binding: -1}
		fr.ptrs[in.Result] = pointer{v: v, typ: typ}
		l.local(v, in)

	case spirv.OpAccessChain, spirv.OpInBoundsAccessChain:
		fr.ptrs[in.Result] = l.chain(in)
	case spirv.OpPtrAccessChain:
		fr.ptrs[in.Result] = l.step64(in)
	case spirv.OpPtrEqual, spirv.OpPtrNotEqual:
		same := map[spirv.Opcode]spirv.Opcode{spirv.OpPtrEqual: spirv.OpIEqual, spirv.OpPtrNotEqual: spirv.OpINotEqual}[in.Op]
		fr.vals[in.Result] = []val{l.spv(same, false, l.placeOf(l.pointer(in.Arg(0))), l.placeOf(l.pointer(in.Arg(1))))}
	case spirv.OpLoad:
		l.setResult(in, l.load(l.pointer(in.Arg(0))))

	case spirv.OpStore:
		l.store(l.pointer(in.Arg(0)), l.value(in.Arg(1)))
	case spirv.OpCopyMemory:
		l.store(l.pointer(in.Arg(0)), l.load(l.pointer(in.Arg(1))))

	case spirv.OpCopyObject:
		if l.typ(in.Type).kind == typePointer {
			fr.ptrs[in.Result] = l.pointer(in.Arg(0))
			return
		}
		fr.vals[in.Result] = l.value(in.Arg(0))

	case spirv.OpFunctionCall:
		l.call(in)
	case spirv.OpArrayLength:
		fr.vals[in.Result] = []val{l.arrayLength(in)}

	case spirv.OpControlBarrier:
		i := ins{op: iFence, void: true, imm: fenceSubgroup}
		if scope, _ := l.constantBits(in.Arg(0)); spirv.Scope(scope) != spirv.ScopeSubgroup {
			i = ins{op: iBarrier, void: true}
		}
		l.effect(i)

	case spirv.OpMemoryBarrier:
		i := ins{op: iFence, void: true}
		if s, _ := l.constantBits(in.Arg(1)); spirv.MemorySemantics(s)&spirv.MemorySemanticsUniformMemory != 0 {
			i.imm = fenceBuffers
		}
		l.effect(i)

	case spirv.OpExtInst:
		l.extended(in)
	default:
		switch {
		case isAtomic(in.Op):
			l.atomic(in)
		case in.Op >= spirv.OpGroupNonUniformElect && in.Op <= spirv.OpGroupNonUniformQuadSwap:
			fr.vals[in.Result] = l.subgroup(in)
		default:
			l.setResult(in, l.compute(in))
		}
	}
}

func (l *lowerer) arrayLength(in *spirv.Inst) val {
	p := l.pointer(in.Arg(0))
	t := l.typ(p.typ)
	member := int(in.Args[1])
	if p.base != 0 || t.kind != typeStruct || member >= t.n || p.v.class != classBuffer || l.part(t, member).kind != typeRuntime {
		fail(in, "SPV-2901", "OpArrayLength of what is not a runtime array")
	}
	off := p.off + uint64(l.memberOff(p.v.class, t, member))
	return l.emit(iArrLen, false, off<<32|uint64(l.stride(p.v.class, l.part(t, member))), l.f.word(uint32(p.v.binding)))
}

// compute is an instruction that depends only on its operands.
func (l *lowerer) compute(in *spirv.Inst) []val {
	l.src = in
	t := l.typ(in.Type)
	switch in.Op {
	case spirv.OpCopyLogical, spirv.OpCopyObject:
		return l.value(in.Arg(0))

	case spirv.OpCompositeConstruct:
		var v []val
		for i := range in.Args {
			v = append(v, l.value(in.Arg(i))...)
		}
		return v

	case spirv.OpCompositeExtract:
		v, t := l.value(in.Arg(0)), l.typ(l.typeOf(in.Arg(0)))
		lo := 0
		for _, k := range in.Args[1:] {
			lo, t = l.step(t, lo, k)
		}
		return l.cut(v, lo, t.leaves)

	case spirv.OpCompositeInsert:
		part, v, t := l.value(in.Arg(0)), l.value(in.Arg(1)), t
		lo := 0
		for _, k := range in.Args[2:] {
			lo, t = l.step(t, lo, k)
		}
		out := append([]val(nil), v...)
		copy(l.cut(out, lo, len(part)), part)
		return out

	case spirv.OpVectorShuffle:
		v := append(append([]val(nil), l.value(in.Arg(0))...), l.value(in.Arg(1))...)
		var out []val
		for _, k := range in.Args[2:] {
			if k == 1<<32-1 {
				k = 0
			}
			out = append(out, l.cut(v, int(k), 1)...)
		}
		return out

	case spirv.OpVectorExtractDynamic:
		v, n := l.value(in.Arg(0)), l.index32(in.Arg(1), l.scalar(in.Arg(1)))
		l.checkIndex(n, len(v), t.size)
		return []val{l.pick(v, n)}
	case spirv.OpVectorInsertDynamic:
		v, x := l.value(in.Arg(0)), l.scalar(in.Arg(1))
		n := l.index32(in.Arg(2), l.scalar(in.Arg(2)))
		l.checkIndex(n, len(v), scalarOf(t).size)
		out := make([]val, len(v))
		for k := range v {
			is := l.spv(spirv.OpIEqual, false, n, l.f.word(uint32(k)))
			out[k] = l.spv(spirv.OpSelect, t.wide, is, x, v[k])
		}
		return out

	case spirv.OpSelect:
		c, a, b := l.value(in.Arg(0)), l.value(in.Arg(1)), l.value(in.Arg(2))
		l.same(a, b)
		out := make([]val, len(a))
		for k := range a {
			x := c[0]
			if len(c) > 1 {
				x = l.cut(c, k, 1)[0]
			}
			out[k] = l.spv(spirv.OpSelect, l.f.ins[a[k]].wide, x, a[k], b[k])
		}
		return out

	case spirv.OpAny, spirv.OpAll:
		op := spirv.OpLogicalOr
		if in.Op == spirv.OpAll {
			op = spirv.OpLogicalAnd
		}
		return []val{l.chainOf(op, l.value(in.Arg(0)))}

	case spirv.OpDot:
		a, b := l.operand(in.Arg(0), false), l.operand(in.Arg(1), false)
		l.same(a, b)
		return l.result(t, []val{l.dot(a, b)})

	case spirv.OpSDot, spirv.OpUDot, spirv.OpSUDot, spirv.OpSDotAccSat, spirv.OpUDotAccSat, spirv.OpSUDotAccSat:
		return l.integerDot(in, t)

	case spirv.OpVectorTimesScalar:
		s := l.cut(l.operand(in.Arg(1), false), 0, 1)[0]
		return l.result(t, l.each(l.operand(in.Arg(0), false), func(_ int, x val) val { return l.spv(spirv.OpFMul, t.wide, x, s) }))

	case spirv.OpMatrixTimesScalar, spirv.OpVectorTimesMatrix, spirv.OpMatrixTimesVector, spirv.OpMatrixTimesMatrix, spirv.OpOuterProduct, spirv.OpTranspose:
		return l.matrix(in, t)
	case spirv.OpIAddCarry, spirv.OpISubBorrow, spirv.OpUMulExtended, spirv.OpSMulExtended:
		a, b := l.value(in.Arg(0)), l.value(in.Arg(1))
		l.same(a, b)
		low := map[spirv.Opcode]spirv.Opcode{spirv.OpIAddCarry: spirv.OpIAdd, spirv.OpISubBorrow: spirv.OpISub,
			spirv.OpUMulExtended: spirv.OpIMul, spirv.OpSMulExtended: spirv.OpIMul}[in.Op]
		wide := t.wide
		lo := l.each(a, func(k int, x val) val { return l.spv(low, wide, x, b[k]) })
		return append(lo, l.each(a, func(k int, x val) val { return l.emit(iHigh, wide, uint64(in.Op), x, b[k]) })...)

	case spirv.OpBitFieldInsert, spirv.OpBitFieldSExtract, spirv.OpBitFieldUExtract:
		n := 1 // operands that are vectors
		if in.Op == spirv.OpBitFieldInsert {
			n = 2
		}
		off, count := l.to32(in.Arg(n)), l.to32(in.Arg(n+1))
		a := l.value(in.Arg(0))
		if n == 1 {
			return l.each(a, func(_ int, x val) val { return l.spv(in.Op, false, x, off, count) })
		}
		b := l.value(in.Arg(1))
		l.same(a, b)
		return l.each(a, func(k int, x val) val { return l.spv(in.Op, false, x, b[k], off, count) })

	case spirv.OpBitcast:
		return l.bitcast(in)
	case spirv.OpUConvert, spirv.OpSConvert, spirv.OpFConvert, spirv.OpConvertFToS, spirv.OpConvertFToU, spirv.OpConvertSToF, spirv.OpConvertUToF:
		from := l.typ(l.typeOf(in.Arg(0)))
		return l.each(l.value(in.Arg(0)), func(_ int, x val) val { return l.number(in.Op, x, l.width(from), l.width(t)) })

	case spirv.OpQuantizeToF16:
		return l.each(l.value(in.Arg(0)), func(_ int, x val) val {
			return l.convert(spirv.OpFConvert, l.convert(spirv.OpFConvert, x, 32, 16), 16, 32)
		})

	case spirv.OpOrdered, spirv.OpUnordered, spirv.OpLessOrGreater:
		return l.ordered(in)
	case spirv.OpShiftLeftLogical, spirv.OpShiftRightLogical, spirv.OpShiftRightArithmetic:
		a, b := l.operand(in.Arg(0), signedOp(in.Op)), l.value(in.Arg(1))
		l.same(a, b)
		return l.result(t, l.each(a, func(k int, x val) val {
			n := b[k]
			switch wide := l.f.ins[x].wide; {
			case wide && !l.f.ins[n].wide:
				n = l.convert(spirv.OpUConvert, n, 32, 64)
			case !wide && l.f.ins[n].wide:
				n = l.convert(spirv.OpUConvert, n, 64, 32)
			}
			if w := l.width(t); w < 32 {
				n = l.spv(spirv.OpBitwiseAnd, false, n, l.f.word(uint32(w-1)))
			}
			return l.spv(in.Op, l.f.ins[x].wide, x, n)
		}))

	case spirv.OpUDiv, spirv.OpSDiv, spirv.OpUMod, spirv.OpSRem, spirv.OpSMod:
		a, b := l.operand(in.Arg(0), signedOp(in.Op)), l.operand(in.Arg(1), signedOp(in.Op))
		l.same(a, b)
		l.checkZero(b)
		return l.result(t, l.each(a, func(k int, x val) val { return l.spv(in.Op, t.wide, x, b[k]) }))
	}

	// All others work component by component.
	switch len(in.Args) {
	case 1:
		return l.result(t, l.each(l.operand(in.Arg(0), false), func(_ int, x val) val { return l.spv(in.Op, t.wide, x) }))
	case 2:
		signed := signedOp(in.Op)
		a, b := l.operand(in.Arg(0), signed), l.operand(in.Arg(1), signed)
		l.same(a, b)
		return l.result(t, l.each(a, func(k int, x val) val { return l.spv(in.Op, t.wide, x, b[k]) }))
	}

	fail(in, "SPV-2901", "the lane engine does not know this instruction")
	return nil
}

// checkZero traps on lanes with a divisor of zero.
func (l *lowerer) checkZero(divisors []val) {
	for _, d := range divisors {
		if c, ok := l.f.isConst(d); !ok {
			l.effect(ins{op: iCheckZero, void: true, args: l.f.take([]val{d})})
		} else if c == 0 {
			if l.fr == nil {
				fail(l.src, "SPV-2901", "a constant that is divided by zero")
			}
			l.effect(ins{op: iCheckZero, void: true, args: l.f.take([]val{d})})
		}
	}
}

func (l *lowerer) each(of []val, f func(k int, x val) val) []val {
	out := make([]val, len(of))
	for k, x := range of {
		out[k] = f(k, x)
	}
	return out
}

func (l *lowerer) same(a, b []val) {
	if len(a) != len(b) {
		fail(l.src, "SPV-2901", "operands of %d and %d components", len(a), len(b))
	}
}

func (l *lowerer) cut(v []val, lo, n int) []val {
	if lo < 0 || n < 0 || lo+n > len(v) {
		fail(l.src, "SPV-2901", "a component that is not there")
	}
	return v[lo : lo+n]
}

// step goes to part k of a composite with leaves from lo on.
func (l *lowerer) step(t *tinfo, lo int, k uint32) (int, *tinfo) {
	part := l.part(t, int(k))
	return lo + l.partLeaf(t, int(k)), part
}

// chainOf is v[0] op v[1] op …, from the left.
func (l *lowerer) chainOf(op spirv.Opcode, v []val) val {
	x := v[0]
	for _, y := range v[1:] {
		x = l.spv(op, l.f.ins[x].wide, x, y)
	}
	return x
}

func (l *lowerer) dot(a, b []val) val {
	wide := l.f.ins[a[0]].wide
	sum := l.spv(spirv.OpFMul, wide, a[0], b[0])
	for k := 1; k < len(a); k++ {
		sum = l.spv(spirv.OpFAdd, wide, sum, l.spv(spirv.OpFMul, wide, a[k], b[k]))
	}
	return sum
}

// width is that of a scalar, or of a vector's components.
func (l *lowerer) width(t *tinfo) int {
	if t.kind == typeVector {
		return t.elem.width
	}
	return t.width
}

func (l *lowerer) to32(id spirv.ID) val {
	v := l.scalar(id)
	if l.f.ins[v].wide {
		return l.emit(iLow, false, 0, v)
	}
	return v
}

func (l *lowerer) ordered(in *spirv.Inst) []val {
	a, b := l.operand(in.Arg(0), false), l.operand(in.Arg(1), false)
	l.same(a, b)
	return l.each(a, func(k int, x val) val {
		if in.Op == spirv.OpLessOrGreater {
			return l.spv(spirv.OpFOrdNotEqual, false, x, b[k])
		}
		nan := l.spv(spirv.OpLogicalOr, false, l.spv(spirv.OpIsNan, false, x), l.spv(spirv.OpIsNan, false, b[k]))
		if in.Op == spirv.OpOrdered {
			return l.spv(spirv.OpLogicalNot, false, nan)
		}
		return nan
	})
}
