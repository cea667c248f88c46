package lane

import (
	"capgpu/program/spirv"
	"math"
)

// extended lowers OpExtInst of GLSL.std.450; other sets do not affect results.
func (l *lowerer) extended(in *spirv.Inst) {
	fr := l.fr
	if !l.m.IsGLSL(in.Arg(0)) {
		if in.Result != 0 && l.typ(in.Type).kind != typeVoid {
			fr.vals[in.Result] = l.zero(in.Type)
		}
		return
	}

	g := spirv.GLSL(in.Args[1])
	switch g {
	case spirv.GLSLModf, spirv.GLSLFrexp: // second result through a pointer
		first, second := l.split(g, l.operand(in.Arg(2), false))
		p := l.pointer(in.Arg(3))
		l.store(p, l.result(l.typ(p.typ), second))
		fr.vals[in.Result] = l.result(l.typ(in.Type), first)

	case spirv.GLSLModfStruct, spirv.GLSLFrexpStruct:
		first, second := l.split(g-1, l.operand(in.Arg(2), false))
		t := l.typ(in.Type)
		fr.vals[in.Result] = append(l.result(l.part(t, 0), first), l.result(l.part(t, 1), second)...)

	default:
		var args [][]val
		for k := 2; k < len(in.Args); k++ {
			args = append(args, l.operand(in.Arg(k), signedGLSL(g)))
		}
		if len(args) == 0 {
			fail(in, "SPV-2901", "GLSL.std.450 %v without operands", g)
		}
		fr.vals[in.Result] = l.result(l.typ(in.Type), l.glsl(in, g, args))
	}
}

// split is Modf or Frexp.
func (l *lowerer) split(g spirv.GLSL, a []val) (first, second []val) {
	op := iModf
	if g == spirv.GLSLFrexp {
		op = iFrexp
	}
	first = l.each(a, func(_ int, x val) val { return l.emit(op, l.f.ins[x].wide, 0, x) })
	second = l.each(a, func(_ int, x val) val { return l.emit(op, op == iModf && l.f.ins[x].wide, 1, x) })
	return first, second
}

func (l *lowerer) glsl(in *spirv.Inst, g spirv.GLSL, args [][]val) []val {
	a := args[0]
	wide := l.f.ins[a[0]].wide
	mul := func(x, y val) val { return l.spv(spirv.OpFMul, wide, x, y) }
	sub := func(x, y val) val { return l.spv(spirv.OpFSub, wide, x, y) }
	one := func(g spirv.GLSL, x val) val { return l.emit(glslOp(g), wide, 0, x) }
	need := func(n int) {
		if len(args) < n {
			fail(in, "SPV-2901", "GLSL.std.450 %v with %d operands", g, len(args))
		}
		for _, x := range args[1:n] {
			l.same(a, x)
		}
	}

	length := func(v []val) val {
		if len(v) == 1 {
			return one(spirv.GLSLFAbs, v[0])
		}
		return one(spirv.GLSLSqrt, l.dot(v, v))
	}

	number := func(x float32) val { return l.float(x, wide) }
	switch g {
	case spirv.GLSLPackHalf2x16, spirv.GLSLPackSnorm2x16, spirv.GLSLPackUnorm2x16:
		l.cut(a, 0, 2)
		return []val{l.emit(glslOp(g), false, 0, a[0], a[1])}

	case spirv.GLSLPackSnorm4x8, spirv.GLSLPackUnorm4x8:
		return []val{l.emit(iPack4, false, uint64(g), l.cut(a, 0, 4)...)}
	case spirv.GLSLUnpackHalf2x16, spirv.GLSLUnpackSnorm2x16, spirv.GLSLUnpackUnorm2x16,
		spirv.GLSLUnpackSnorm4x8, spirv.GLSLUnpackUnorm4x8:
		out := make([]val, l.typ(in.Type).leaves)
		for c := range out {
			out[c] = l.emit(iUnpack, false, uint64(g)<<8|uint64(c), a[0])
		}
		return out

	case spirv.GLSLPackDouble2x32:
		l.cut(a, 0, 2)
		return []val{l.emit(iJoin, true, 0, a[0], a[1])}

	case spirv.GLSLUnpackDouble2x32:
		return []val{l.emit(iLow, false, 0, a[0]), l.emit(iHighHalf, false, 0, a[0])}
	case spirv.GLSLDeterminant:
		return []val{l.determinant(l.columns(l.typ(l.typeOf(in.Arg(2))), a))}
	case spirv.GLSLMatrixInverse:
		return l.inverse(l.columns(l.typ(l.typeOf(in.Arg(2))), a))
	case spirv.GLSLLength:
		return []val{length(a)}

	case spirv.GLSLDistance:
		need(2)
		return []val{length(l.each(a, func(k int, x val) val { return sub(x, args[1][k]) }))}

	case spirv.GLSLNormalize:
		n := length(a)
		return l.each(a, func(_ int, x val) val { return l.spv(spirv.OpFDiv, wide, x, n) })

	case spirv.GLSLCross:
		need(2)
		l.cut(a, 0, 3)
		b := args[1]
		return l.each(a[:3], func(k int, _ val) val {
			i, j := (k+1)%3, (k+2)%3
			return sub(mul(a[i], b[j]), mul(a[j], b[i]))
		})

	case spirv.GLSLFaceForward: // N, I, Nref
		need(3)
		less := l.spv(spirv.OpFOrdLessThan, false, l.dot(args[2], args[1]), number(0))
		return l.each(a, func(_ int, x val) val {
			return l.spv(spirv.OpSelect, wide, less, x, l.spv(spirv.OpFNegate, wide, x))
		})

	case spirv.GLSLReflect: // I - 2 * dot(N, I) * N
		need(2)
		d := mul(number(2), l.dot(args[1], a))
		return l.each(a, func(k int, x val) val { return sub(x, mul(d, args[1][k])) })

	case spirv.GLSLRefract: // I, N, eta
		if len(args) < 3 {
			need(3)
		}
		l.same(a, args[1])
		eta, d := args[2][0], l.dot(args[1], a)
		k := sub(number(1), mul(mul(eta, eta), sub(number(1), mul(d, d))))
		below := l.spv(spirv.OpFOrdLessThan, false, k, number(0))
		f := l.spv(spirv.OpFAdd, wide, mul(eta, d), one(spirv.GLSLSqrt, k))
		return l.each(a, func(i int, x val) val {
			return l.spv(spirv.OpSelect, wide, below, number(0), sub(mul(eta, x), mul(f, args[1][i])))
		})

	case spirv.GLSLLdexp:
		if len(args) < 2 || len(args[1]) != len(a) {
			need(2)
		}
		args[1] = l.each(args[1], func(_ int, x val) val {
			if !l.f.ins[x].wide {
				return x
			}
			// Far beyond any exponent, and within 32 bits.
			x = l.emit(glslOp(spirv.GLSLSMin), true, 0, x, l.f.constant(1<<20, true))
			return l.emit(iLow, false, 0, l.emit(glslOp(spirv.GLSLSMax), true, 0, x, l.f.constant(1<<64-1<<20, true)))
		})
	}

	n := len(args)
	need(n)
	return l.each(a, func(k int, _ val) val {
		operands := make([]val, n)
		for i := range args {
			operands[i] = args[i][k]
		}
		return l.emit(glslOp(g), l.typ(in.Type).wide, 0, operands...)
	})
}

func (l *lowerer) float(x float32, wide bool) val {
	if wide {
		return l.f.constant(math.Float64bits(float64(x)), true)
	}
	return l.f.constant(uint64(math.Float32bits(x)), false)
}

// subgroup lowers the OpGroupNonUniform instructions. The part that depends on
// other lanes becomes iSubgroup; ordinary instructions compute the rest.
func (l *lowerer) subgroup(in *spirv.Inst) []val {
	f := l.f
	sub := func(wide bool, operation uint32, args ...val) val {
		return l.effect(ins{op: iSubgroup, wide: wide, imm: uint64(in.Op) | uint64(operation)<<16, args: f.take(args)})
	}

	var a []val
	if len(in.Args) > 1 && (in.Op < spirv.OpGroupNonUniformIAdd || in.Op > spirv.OpGroupNonUniformLogicalXor) && in.Op != spirv.OpGroupNonUniformBallotBitCount {
		a = l.value(in.Arg(1))
	}

	bit := func(v []val, n val) val { // bit n of a ballot
		high := l.spv(spirv.OpUGreaterThanEqual, false, n, f.word(32))
		w := l.spv(spirv.OpSelect, false, high, v[1], v[0])
		low := l.spv(spirv.OpBitwiseAnd, false, l.spv(spirv.OpShiftRightLogical, false, w, n), f.word(1))
		return l.spv(spirv.OpINotEqual, false, low, f.word(0))
	}

	valid := func(v []val) (lo, hi val) { // the bits that are lanes
		if f.subs >= 64 {
			return v[0], v[1]
		}
		return l.spv(spirv.OpBitwiseAnd, false, v[0], f.word(uint32(1<<f.subs-1))), f.word(0)
	}

	switch in.Op {
	case spirv.OpGroupNonUniformElect:
		return []val{sub(false, 0)}

	case spirv.OpGroupNonUniformAll, spirv.OpGroupNonUniformAny:
		return []val{sub(false, 0, a[0])}
	case spirv.OpGroupNonUniformAllEqual:
		return []val{l.chainOf(spirv.OpLogicalAnd, l.each(a, func(_ int, x val) val { return sub(false, 0, x) }))}

	case spirv.OpGroupNonUniformBroadcast, spirv.OpGroupNonUniformShuffle, spirv.OpGroupNonUniformShuffleXor,
		spirv.OpGroupNonUniformShuffleUp, spirv.OpGroupNonUniformShuffleDown:
		n := l.to32(in.Arg(2))
		return l.each(a, func(_ int, x val) val { return sub(f.ins[x].wide, 0, x, n) })

	case spirv.OpGroupNonUniformQuadBroadcast, spirv.OpGroupNonUniformQuadSwap:
		// The same as a shuffle within four lanes.
		o, n := spirv.OpGroupNonUniformShuffle, l.spv(spirv.OpBitwiseAnd, false, l.to32(in.Arg(2)), f.word(3))
		if in.Op == spirv.OpGroupNonUniformQuadSwap {
			o, n = spirv.OpGroupNonUniformShuffleXor, l.spv(spirv.OpIAdd, false, n, f.word(1))
		} else {
			n = l.spv(spirv.OpBitwiseOr, false, n, l.spv(spirv.OpBitwiseAnd, false, f.input(inSubLane), f.word(^uint32(3))))
		}
		return l.each(a, func(_ int, x val) val {
			return l.effect(ins{op: iSubgroup, wide: f.ins[x].wide, imm: uint64(o), args: f.take([]val{x, n})})
		})

	case spirv.OpGroupNonUniformBroadcastFirst:
		return l.each(a, func(_ int, x val) val { return sub(f.ins[x].wide, 0, x) })
	case spirv.OpGroupNonUniformBallot:
		return []val{sub(false, 0, a[0]), sub(false, 1, a[0]), f.word(0), f.word(0)}

	case spirv.OpGroupNonUniformInverseBallot:
		return []val{bit(l.cut(a, 0, 4), f.input(inSubLane))}
	case spirv.OpGroupNonUniformBallotBitExtract:
		return []val{bit(l.cut(a, 0, 4), l.to32(in.Arg(2)))}

	case spirv.OpGroupNonUniformBallotBitCount:
		a = l.cut(l.value(in.Arg(2)), 0, 4)
		lo, hi := valid(a)
		switch spirv.GroupOperation(in.Args[1]) {
		case spirv.GroupOperationInclusiveScan:
			lo, hi = l.spv(spirv.OpBitwiseAnd, false, lo, f.input(inLe)), l.spv(spirv.OpBitwiseAnd, false, hi, f.input(inLeHi))
		case spirv.GroupOperationExclusiveScan:
			lo, hi = l.spv(spirv.OpBitwiseAnd, false, lo, f.input(inLt)), l.spv(spirv.OpBitwiseAnd, false, hi, f.input(inLtHi))
		}
		return []val{l.spv(spirv.OpIAdd, false, l.spv(spirv.OpBitCount, false, lo), l.spv(spirv.OpBitCount, false, hi))}

	case spirv.OpGroupNonUniformBallotFindLSB, spirv.OpGroupNonUniformBallotFindMSB:
		lo, hi := valid(l.cut(a, 0, 4))
		g, first, second, up := spirv.GLSLFindILsb, lo, hi, [2]uint32{0, 32}
		if in.Op == spirv.OpGroupNonUniformBallotFindMSB {
			g, first, second, up = spirv.GLSLFindUMsb, hi, lo, [2]uint32{32, 0}
		}
		find := func(x val, k int) val {
			return l.spv(spirv.OpIAdd, false, l.emit(glslOp(g), false, 0, x), f.word(up[k]))
		}
		some := l.spv(spirv.OpINotEqual, false, first, f.word(0))
		if in.Op == spirv.OpGroupNonUniformBallotFindLSB { // without a bit it is -1
			some = l.spv(spirv.OpLogicalOr, false, some, l.spv(spirv.OpIEqual, false, second, f.word(0)))
		}
		return []val{l.spv(spirv.OpSelect, false, some, find(first, 0), find(second, 1))}
	}

	// Arithmetic: scope, operation, value.
	cluster := uint64(0)
	switch {
	case len(in.Args) == 4 && spirv.GroupOperation(in.Args[1]) == spirv.GroupOperationClusteredReduce:
		cluster, _ = l.constantBits(in.Arg(3))
	case len(in.Args) != 3 || in.Args[1] > uint32(spirv.GroupOperationExclusiveScan):
		fail(in, "SPV-2901", "a subgroup operation that the lane engine does not know")
	}

	t := l.typ(in.Type)
	v := l.each(l.operand(in.Arg(2), signedOp(in.Op)), func(_ int, x val) val {
		v := sub(f.ins[x].wide, in.Args[1], x)
		f.ins[v].aux = int32(min(cluster, uint64(f.subs)))
		return v
	})
	if s := scalarOf(t); s.narrowInt() && signedOp(in.Op) {
		// The first lane of an exclusive scan has the limit of 32 bits.
		return l.each(v, func(_ int, x val) val { return l.clamp(x, s.width, true) })
	}

	return l.result(t, v)
}
