package lanetest

import "capgpu/program/spirv"

// Expressions. uniform asks for one that is the same on all lanes.

func (g *generator) op(o spirv.Opcode, t shape, args ...any) spirv.ID {
	return g.Op(o, g.typ(t), args...)
}

// leaf is a value that is there, or a constant.
func (g *generator) leaf(t shape, uniform bool) spirv.ID {
	switch c := g.n(8); {
	case c == 0:
		return g.odd(t)
	case c < 5:
		var fit []val
		for _, v := range append(g.f.scope, g.specs...) {
			if v.t == t && (v.uniform || !uniform) {
				fit = append(fit, v)
			}
		}
		if len(fit) > 0 {
			return fit[len(fit)-1-g.n(len(fit))].id
		}
	case c == 5 && !uniform:
		if v, ok := g.variable(t); ok {
			return v
		}
	}
	if t == (shape{u32, 1}) || t == (shape{f32, 1}) {
		return g.source(t, uniform)
	}
	return g.odd(t)
}

// variable loads a part of type t from a variable, if there is one.
func (g *generator) variable(t shape) (spirv.ID, bool) {
	for range 3 {
		if len(g.f.vars) == 0 {
			break
		}
		v := g.f.vars[g.n(len(g.f.vars))]
		if p, got := g.part(v.class, v.id, v.t, nil); got == t {
			return g.Load(g.typ(t), p), true
		}
	}
	return 0, false
}

// source is a value from outside: an input or a read-only buffer.
func (g *generator) source(t shape, uniform bool) spirv.ID {
	u := g.Uint(32)
	if t.k == f32 {
		at := g.U32(uint32(g.n(32)))
		if !uniform && g.n(3) > 0 {
			at = g.near()
		}
		return g.Load(g.Float(32), g.Access(spirv.StorageClassStorageBuffer, g.Float(32), g.buffers[inFloats], g.U32(0), at))
	}
	vec := func(b spirv.BuiltIn, n int) spirv.ID {
		p := g.Access(spirv.StorageClassInput, u, g.inputs[b], g.U32(uint32(g.n(n))))
		return g.Load(u, p)
	}
	if uniform {
		switch g.n(6) {
		case 4:
			if !g.long {
				break
			}
			v := g.Load(g.Uint(64), g.Access(spirv.StorageClassPushConstant, g.Uint(64), g.push, g.U32(3)))
			return g.op(spirv.OpUConvert, t, v)
		case 5:
			f := g.Load(g.Float(32), g.Access(spirv.StorageClassPushConstant, g.Float(32), g.push, g.U32(1), g.U32(uint32(g.n(2)))))
			return g.op(spirv.OpConvertFToU, t, f)
		case 0:
			return g.Load(u, g.Access(spirv.StorageClassPushConstant, u, g.push, g.U32(0)))
		case 1:
			return g.Load(u, g.Access(spirv.StorageClassPushConstant, u, g.push, g.U32(2), g.U32(uint32(g.n(4)))))
		case 2:
			return vec(spirv.BuiltInWorkgroupId, 3)
		case 3:
			return g.op(spirv.OpArrayLength, t, g.buffers[outWords], 0)
		}
		return g.Load(u, g.Access(spirv.StorageClassStorageBuffer, u, g.buffers[inWords], g.U32(0), g.U32(uint32(g.n(32)))))
	}
	switch g.n(8) {
	case 0, 1:
		return g.Load(u, g.inputs[spirv.BuiltInLocalInvocationIndex])
	case 2:
		return g.Load(u, g.slot)
	case 3:
		return vec(spirv.BuiltInGlobalInvocationId, 3)
	case 4:
		return vec(spirv.BuiltInLocalInvocationId, 3)
	case 5:
		list := []spirv.BuiltIn{spirv.BuiltInSubgroupSize, spirv.BuiltInSubgroupLocalInvocationId, spirv.BuiltInNumSubgroups, spirv.BuiltInSubgroupId}
		return g.Load(u, g.inputs[list[g.n(len(list))]])
	case 6:
		return vec([]spirv.BuiltIn{spirv.BuiltInSubgroupGeMask, spirv.BuiltInSubgroupLtMask}[g.n(2)], 4)
	}
	return g.Load(u, g.Access(spirv.StorageClassStorageBuffer, u, g.buffers[inWords], g.U32(0), g.near()))
}

// near is an index of a read-only buffer that is linear in the lane's number and
// in what is the same for all, or any other.
func (g *generator) near() spirv.ID {
	u := shape{u32, 1}
	if g.n(3) == 0 {
		return g.index(32)
	}
	lane := g.Load(g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationIndex])
	if g.n(3) == 2 { // by rows
		part := func(i uint32) spirv.ID {
			return g.Load(g.Uint(32), g.Access(spirv.StorageClassInput, g.Uint(32), g.inputs[spirv.BuiltInLocalInvocationId], g.U32(i)))
		}
		lane = g.op(spirv.OpIAdd, u, part(uint32(g.n(2))), g.op(spirv.OpIMul, u, part(1), g.number(u32, g.n(9))))
	}
	by := g.number(u32, g.n(9))
	if g.n(3) == 2 {
		by = g.op(spirv.OpBitwiseAnd, u, g.expr(u, 1, true), g.U32(7))
	}
	at := g.op(spirv.OpIMul, u, lane, by)
	if g.n(2) == 1 {
		more := g.op(spirv.OpBitwiseAnd, u, g.expr(u, 1, true), g.U32(31))
		if g.n(2) == 1 {
			more = g.U32(uint32(g.n(32)))
		}
		at = g.op(spirv.OpIAdd, u, at, more)
	}
	return at
}

// word is an index below n of 32 bits without sign.
func (g *generator) word(n int) spirv.ID {
	if g.n(2) == 1 {
		return g.U32(uint32(g.n(n)))
	}
	u := shape{u32, 1}
	return g.op(spirv.OpUMod, u, g.expr(u, 1, false), g.U32(uint32(n)))
}

// index is an index below n, or, where the program may trap, at times another.
func (g *generator) index(n int) spirv.ID {
	u := shape{u32, 1}
	switch c := g.n(12); {
	case c < 4:
		return g.U32(uint32(g.n(n)))
	case c == 11 && g.wild:
		return g.op(spirv.OpBitwiseAnd, u, g.expr(u, 1, false), g.U32(uint32(2*n-1)))
	case c == 10 && g.wild && g.n(4) == 3:
		if g.long && g.n(2) == 1 {
			return g.expr(shape{i64, 1}, 1, false)
		}
		return g.I32(int32(g.n(3*n) - n))
	case c == 9 && g.long:
		return g.op(spirv.OpUMod, shape{u64, 1}, g.expr(shape{u64, 1}, 1, false), g.U64(uint64(n)))
	case n&(n-1) == 0 && c < 8:
		return g.op(spirv.OpBitwiseAnd, u, g.expr(u, 1, false), g.U32(uint32(n-1)))
	}
	return g.op(spirv.OpUMod, u, g.expr(u, 1, false), g.U32(uint32(n)))
}

// part is a pointer to a scalar or vector somewhere in a variable.
func (g *generator) part(class spirv.StorageClass, base spirv.ID, t *tree, path []spirv.ID) (spirv.ID, shape) {
	for t.parts != nil {
		if t.n > 0 {
			path, t = append(path, g.index(t.n)), t.parts[0]
			continue
		}
		i := g.n(len(t.parts))
		path, t = append(path, g.U32(uint32(i))), t.parts[i]
	}
	got := t.t
	if got.n > 1 && g.n(3) == 2 {
		path, got = append(path, g.index(got.n)), shape{got.k, 1}
	}
	if len(path) == 0 {
		return base, got
	}
	return g.Access(class, g.typ(got), base, path...), got
}

// expr is a value of type t.
func (g *generator) expr(t shape, depth int, uniform bool) spirv.ID {
	if g.budget--; depth == 0 || g.budget < 0 {
		return g.leaf(t, uniform)
	}
	sub := func(t shape) spirv.ID { return g.expr(t, depth-1, uniform) }
	one := shape{t.k, 1}
	switch c := g.n(16); {
	case c < 3:
		return g.leaf(t, uniform)
	case c == 3:
		return g.op(spirv.OpSelect, t, sub(shape{boolean, t.n}), sub(t), sub(t))
	case c == 4 && t.n == 1: // a part of a vector
		from := shape{t.k, 2 + g.n(3)}
		v := sub(from)
		if g.n(2) == 1 {
			at := g.U32(uint32(g.n(from.n)))
			if !uniform {
				at = g.op(spirv.OpUMod, shape{u32, 1}, g.expr(shape{u32, 1}, 1, false), g.U32(uint32(from.n)))
			}
			return g.op(spirv.OpVectorExtractDynamic, t, v, at)
		}
		return g.op(spirv.OpCompositeExtract, t, v, g.n(from.n))
	case c == 4 || c == 5 && t.n > 1:
		switch g.n(5) {
		case 0:
			a, b := shape{t.k, 2 + g.n(3)}, shape{t.k, 2 + g.n(3)}
			args := []any{sub(a), sub(b)}
			for range t.n {
				args = append(args, g.n(a.n+b.n))
			}
			return g.op(spirv.OpVectorShuffle, t, args...)
		case 1:
			if t.n > 2 {
				return g.op(spirv.OpCompositeConstruct, t, sub(shape{t.k, t.n - 1}), sub(one))
			}
		case 2:
			return g.op(spirv.OpCompositeInsert, t, sub(one), sub(t), g.n(t.n))
		case 3:
			if uniform {
				break
			}
			at := g.op(spirv.OpUMod, shape{u32, 1}, g.expr(shape{u32, 1}, 1, false), g.U32(uint32(t.n)))
			return g.op(spirv.OpVectorInsertDynamic, t, sub(t), sub(one), at)
		}
		args := []any{}
		for range t.n {
			args = append(args, sub(one))
		}
		return g.op(spirv.OpCompositeConstruct, t, args...)
	case c == 6:
		if g.n(4) == 3 {
			return g.op(spirv.OpUndef, t)
		}
		return g.op(spirv.OpCopyObject, t, sub(t))
	}
	switch {
	case t.k == boolean:
		return g.truthOf(t, sub)
	case t.k.float():
		return g.floatOf(t, sub)
	}
	return g.intOf(t, sub)
}

var (
	intCompares = []spirv.Opcode{spirv.OpIEqual, spirv.OpINotEqual, spirv.OpULessThan, spirv.OpULessThanEqual, spirv.OpUGreaterThan,
		spirv.OpUGreaterThanEqual, spirv.OpSLessThan, spirv.OpSLessThanEqual, spirv.OpSGreaterThan, spirv.OpSGreaterThanEqual}
	floatCompares = []spirv.Opcode{spirv.OpFOrdEqual, spirv.OpFUnordEqual, spirv.OpFOrdNotEqual, spirv.OpFUnordNotEqual, spirv.OpFOrdLessThan,
		spirv.OpFUnordLessThan, spirv.OpFOrdGreaterThan, spirv.OpFUnordGreaterThan, spirv.OpFOrdLessThanEqual, spirv.OpFUnordLessThanEqual,
		spirv.OpFOrdGreaterThanEqual, spirv.OpFUnordGreaterThanEqual}
	intBinary = []spirv.Opcode{spirv.OpIAdd, spirv.OpISub, spirv.OpIMul, spirv.OpBitwiseAnd, spirv.OpBitwiseOr, spirv.OpBitwiseXor,
		spirv.OpShiftLeftLogical, spirv.OpShiftRightLogical, spirv.OpShiftRightArithmetic}
	floatBinary = []spirv.Opcode{spirv.OpFAdd, spirv.OpFSub, spirv.OpFMul, spirv.OpFDiv, spirv.OpFRem, spirv.OpFMod}
	floatGLSL1  = []spirv.GLSL{spirv.GLSLRound, spirv.GLSLRoundEven, spirv.GLSLTrunc, spirv.GLSLFAbs, spirv.GLSLFSign, spirv.GLSLFloor,
		spirv.GLSLCeil, spirv.GLSLFract, spirv.GLSLSqrt, spirv.GLSLInverseSqrt, spirv.GLSLNormalize}
	singleGLSL1 = []spirv.GLSL{spirv.GLSLRadians, spirv.GLSLDegrees, spirv.GLSLSin, spirv.GLSLCos, spirv.GLSLTan, spirv.GLSLAsin, spirv.GLSLAcos,
		spirv.GLSLAtan, spirv.GLSLSinh, spirv.GLSLCosh, spirv.GLSLTanh, spirv.GLSLAsinh, spirv.GLSLAcosh, spirv.GLSLAtanh,
		spirv.GLSLExp, spirv.GLSLLog, spirv.GLSLExp2, spirv.GLSLLog2}
	floatGLSL2 = []spirv.GLSL{spirv.GLSLFMin, spirv.GLSLFMax, spirv.GLSLNMin, spirv.GLSLNMax, spirv.GLSLStep, spirv.GLSLReflect}
	floatGLSL3 = []spirv.GLSL{spirv.GLSLFClamp, spirv.GLSLNClamp, spirv.GLSLFMix, spirv.GLSLSmoothStep, spirv.GLSLFma, spirv.GLSLFaceForward}
	divisions  = []spirv.Opcode{spirv.OpSDiv, spirv.OpSRem, spirv.OpSMod, spirv.OpUDiv, spirv.OpUMod}
	packs      = []spirv.GLSL{spirv.GLSLPackHalf2x16, spirv.GLSLPackSnorm2x16, spirv.GLSLPackUnorm2x16, spirv.GLSLPackSnorm4x8, spirv.GLSLPackUnorm4x8}
	unpacks    = []spirv.GLSL{spirv.GLSLUnpackHalf2x16, spirv.GLSLUnpackSnorm2x16, spirv.GLSLUnpackUnorm2x16, spirv.GLSLUnpackSnorm4x8, spirv.GLSLUnpackUnorm4x8}
)

// kind draws a number type.
func (g *generator) kind() kind {
	kinds := []kind{u32, i32, f32}
	if g.long {
		kinds = append(kinds, u64, i64, f64)
	}
	return kinds[g.n(len(kinds))]
}

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
		like.k = map[kind]kind{u32: i32, i32: u32, u64: i64, i64: u64}[t.k]
	}
	unsigned := t.k == u32 || t.k == u64
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
		if t.k.long() {
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

// pair is a struct of two values.
func (g *generator) pair(a, b shape) spirv.ID {
	key := pairKey{a, b}
	if g.pairs == nil {
		g.pairs = map[pairKey]spirv.ID{}
	}
	if g.pairs[key] == 0 {
		g.pairs[key] = g.Struct(g.typ(a), g.typ(b))
	}
	return g.pairs[key]
}

type pairKey struct{ a, b shape }

// clean is a float with 0 for NaN, whose bits are not fixed.
func (g *generator) clean(t shape, v spirv.ID) spirv.ID {
	nan := g.op(spirv.OpIsNan, shape{boolean, t.n}, v)
	return g.op(spirv.OpSelect, t, nan, g.splat(t, 0), v)
}

// fromOther converts from another type.
func (g *generator) fromOther(t shape, sub func(shape) spirv.ID) spirv.ID {
	from := shape{g.kind(), t.n}
	if from.k == t.k {
		return sub(t)
	}
	long := func(k kind) bool { return k.long() }
	unsigned := func(k kind) bool { return k == u32 || k == u64 }
	v := sub(from)
	sameWidth := long(from.k) == long(t.k)
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
	case from.k.float() && unsigned(t.k) && !signed:
		return g.op(spirv.OpConvertFToU, t, v)
	case from.k.float():
		return g.op(spirv.OpConvertFToS, t, v)
	case t.k.float() && signed:
		return g.op(spirv.OpConvertSToF, t, v)
	case t.k.float():
		return g.op(spirv.OpConvertUToF, t, v)
	case unsigned(t.k) && !signed:
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
	case c == 8 && t.k == f32 && g.n(2) == 1:
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
