package lanetest

import "capgpu/program/spirv"

func (g *generator) truthOf(t shape, sub func(shape) spirv.ID) spirv.ID {
	k := g.kind()
	x := shape{k, t.n}
	switch c := g.n(8); {
	case c < 4 && k.float():
		return g.op(floatCompares[g.n(len(floatCompares))], t, sub(x), sub(x))
	case c < 4:
		return g.op(intCompares[g.n(len(intCompares))], t, sub(x), sub(x))
	case c == 4:
		return g.op(spirv.OpLogicalNot, t, sub(t))
	case c == 5 && t.n == 1:
		v := shape{boolean, 2 + g.n(3)}
		return g.op([]spirv.Opcode{spirv.OpAny, spirv.OpAll}[g.n(2)], t, sub(v))
	case c == 6 && k.float():
		return g.op([]spirv.Opcode{spirv.OpIsNan, spirv.OpIsInf}[g.n(2)], t, sub(x))
	}

	ops := []spirv.Opcode{spirv.OpLogicalAnd, spirv.OpLogicalOr, spirv.OpLogicalEqual, spirv.OpLogicalNotEqual}
	return g.op(ops[g.n(4)], t, sub(t), sub(t))
}

func (g *generator) intOf(t shape, sub func(shape) spirv.ID) spirv.ID {
	like := t // of the other signedness, at times
	if g.n(4) == 3 {
		like.k = otherSign[t.k]
	}

	if g.dots && t.n == 1 && g.n(6) == 5 {
		return g.integerDot(t, sub)
	}

	unsigned := t.k.unsigned()
	word := shape{u32, 1}
	switch g.n(12) {
	default:
		return g.op(intBinary[g.n(len(intBinary))], t, sub(t), sub(like))

	case 4:
		return g.op([]spirv.Opcode{spirv.OpNot, spirv.OpSNegate}[g.n(2)], t, sub(t))
	case 5: // a division
		ops := divisions[:3]
		if unsigned {
			ops = divisions
		}
		d := sub(t)
		if !g.wild || g.n(4) > 0 {
			d = g.op(spirv.OpBitwiseOr, t, d, g.splat(t, 1+g.n(3)))
		}
		if g.n(3) == 2 {
			d = g.splat(t, 1+g.n(20))
		}
		return g.op(ops[g.n(len(ops))], t, sub(t), d)

	case 6:
		return g.fromOther(t, sub)
	case 7: // 32 bits only
		if t.k.long() || t.k.narrow() {
			break
		}
		from, count := g.U32(uint32(g.n(16))), g.U32(uint32(g.n(17)))
		switch g.n(5) {
		case 0:
			return g.op(spirv.OpBitCount, t, sub(like))
		case 1:
			return g.op(spirv.OpBitReverse, t, sub(t))
		case 2:
			return g.op(spirv.OpBitFieldInsert, t, sub(t), sub(t), from, count)
		case 3:
			return g.op([]spirv.Opcode{spirv.OpBitFieldSExtract, spirv.OpBitFieldUExtract}[g.n(2)], t, sub(t), from, count)
		}
		return g.Ext([]spirv.GLSL{spirv.GLSLFindILsb, spirv.GLSLFindSMsb, spirv.GLSLFindUMsb}[g.n(3)], g.typ(t), sub(like))

	case 8:
		switch g.n(3) {
		case 0:
			return g.Ext([]spirv.GLSL{spirv.GLSLSAbs, spirv.GLSLSSign}[g.n(2)], g.typ(t), sub(t))
		case 1:
			return g.Ext([]spirv.GLSL{spirv.GLSLUMin, spirv.GLSLSMin, spirv.GLSLUMax, spirv.GLSLSMax}[g.n(4)], g.typ(t), sub(t), sub(t))
		}
		low, high := g.splat(t, g.n(10)-5*map[bool]int{false: 1}[unsigned]), g.splat(t, 10+g.n(100))
		return g.Ext([]spirv.GLSL{spirv.GLSLUClamp, spirv.GLSLSClamp}[g.n(2)], g.typ(t), sub(t), low, high)

	case 9: // two results
		if t.k.narrow() {
			break
		}
		o := spirv.OpSMulExtended
		if unsigned {
			o = []spirv.Opcode{spirv.OpIAddCarry, spirv.OpISubBorrow, spirv.OpUMulExtended, spirv.OpSMulExtended}[g.n(4)]
		}
		pair := g.pair(t, t)
		return g.op(spirv.OpCompositeExtract, t, g.Op(o, pair, sub(t), sub(t)), g.n(2))

	case 10:
		if t != word {
			break
		}
		p := g.n(len(packs))
		return g.Ext(packs[p], g.typ(t), g.clean(shape{f32, 2 + p/3*2}, sub(shape{f32, 2 + p/3*2})))

	case 11: // shift by another width
		s := shape{u32, t.n}
		if g.long {
			s.k = u64
		}
		return g.op(intBinary[6+g.n(3)], t, sub(t), sub(s))
	}

	return g.op(spirv.OpIAdd, t, sub(t), sub(t))
}

// fromOther converts from another type.
func (g *generator) fromOther(t shape, sub func(shape) spirv.ID) spirv.ID {
	from := shape{g.kind(), t.n}
	if from.k == t.k {
		return sub(t)
	}

	v := sub(from)
	sameWidth := from.k.bytes() == t.k.bytes()
	if sameWidth && g.n(2) == 1 || sameWidth && from.k.int() && t.k.int() {
		if from.k.float() {
			v = g.clean(from, v)
		}
		return g.op(spirv.OpBitcast, t, v)
	}

	signed := g.n(2) == 1
	switch {
	case from.k.float() && t.k.float():
		return g.op(spirv.OpFConvert, t, v)
	case from.k.float() && t.k.unsigned() && !signed:
		return g.op(spirv.OpConvertFToU, t, v)
	case from.k.float():
		return g.op(spirv.OpConvertFToS, t, v)
	case t.k.float() && signed:
		return g.op(spirv.OpConvertSToF, t, v)
	case t.k.float():
		return g.op(spirv.OpConvertUToF, t, v)
	case t.k.unsigned() && !signed:
		return g.op(spirv.OpUConvert, t, v)
	}

	return g.op(spirv.OpSConvert, t, v)
}

func (g *generator) floatOf(t shape, sub func(shape) spirv.ID) spirv.ID {
	id := g.typ(t)
	switch c := g.n(12); {
	case c < 4:
		return g.op(floatBinary[g.n(len(floatBinary))], t, sub(t), sub(t))

	case c == 4: // a sum of products
		return g.op(spirv.OpFAdd, t, g.op(spirv.OpFMul, t, sub(t), sub(t)), sub(t))
	case c == 5:
		return g.op(spirv.OpFNegate, t, sub(t))

	case c == 6:
		return g.fromOther(t, sub)
	case c == 7 && t.n > 1:
		if t.n == 3 && g.n(2) == 1 {
			return g.Ext(spirv.GLSLCross, id, sub(t), sub(t))
		}
		if t.k == f32 && g.n(3) == 2 {
			return g.Ext(spirv.GLSLRefract, id, sub(t), sub(t), sub(shape{f32, 1}))
		}
		if t.k == f32 && t.n != 3 && g.n(2) == 1 {
			u := 3*(t.n/2-1) + g.n(3)
			return g.Ext(unpacks[min(u, 2+t.n/2*2-2)], id, sub(shape{u32, 1}))
		}
		return g.op(spirv.OpVectorTimesScalar, t, sub(t), sub(shape{t.k, 1}))

	case c == 7:
		v := shape{t.k, 2 + g.n(3)}
		switch g.n(3) {
		case 0:
			return g.op(spirv.OpDot, t, sub(v), sub(v))
		case 1:
			return g.Ext(spirv.GLSLLength, id, sub(v))
		}
		v.n = 1 + g.n(4)
		return g.Ext(spirv.GLSLDistance, id, sub(v), sub(v))

	case c == 8 && t.k != f64 && g.n(2) == 1:
		if g.n(4) == 3 {
			return g.Ext([]spirv.GLSL{spirv.GLSLAtan2, spirv.GLSLPow}[g.n(2)], id, sub(t), sub(t))
		}
		return g.Ext(singleGLSL1[g.n(len(singleGLSL1))], id, sub(t))

	case c == 8:
		return g.Ext(floatGLSL1[g.n(len(floatGLSL1))], id, sub(t))
	case c == 9:
		return g.Ext(floatGLSL2[g.n(len(floatGLSL2))], id, sub(t), sub(t))

	case c == 10:
		return g.Ext(floatGLSL3[g.n(len(floatGLSL3))], id, sub(t), sub(t), sub(t))
	}

	i := shape{i32, t.n}
	switch g.n(3) {
	case 0:
		return g.Ext(spirv.GLSLLdexp, id, sub(t), sub(i))
	case 1:
		return g.op(spirv.OpCompositeExtract, t, g.Ext(spirv.GLSLModfStruct, g.pair(t, t), sub(t)), g.n(2))
	}

	return g.op(spirv.OpCompositeExtract, t, g.Ext(spirv.GLSLFrexpStruct, g.pair(t, i), sub(t)), 0)
}

// clean is a float with 0 instead of NaN, because a NaN's bits are not fixed.
func (g *generator) clean(t shape, v spirv.ID) spirv.ID {
	nan := g.op(spirv.OpIsNan, shape{boolean, t.n}, v)
	return g.op(spirv.OpSelect, t, nan, g.splat(t, 0), v)
}
