package lanetest

import "capgpu/program/spirv"

// Expressions. uniform requests a value that is the same on all lanes.

func (g *generator) op(o spirv.Opcode, t shape, args ...any) spirv.ID {
	return g.Op(o, g.typ(t), args...)
}

// leaf is an existing value, or a constant.
func (g *generator) leaf(t shape, uniform bool) spirv.ID {
	switch c := g.n(8); {
	case c == 0:
		return g.odd(t)

	case c < 5:
		var fit []val
		for _, v := range append(g.f.scope, g.made.specs...) {
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
		return g.Load(g.Float(32), g.Access(spirv.StorageClassStorageBuffer, g.Float(32), g.mem.buffers[inFloats], g.U32(0), at))
	}

	vec := func(b spirv.BuiltIn, n int) spirv.ID {
		p := g.Access(spirv.StorageClassInput, u, g.mem.inputs[b], g.U32(uint32(g.n(n))))
		return g.Load(u, p)
	}

	if uniform {
		switch g.n(6) {
		case 4:
			if !g.long {
				break
			}
			v := g.Load(g.Uint(64), g.Access(spirv.StorageClassPushConstant, g.Uint(64), g.mem.push, g.U32(3)))
			return g.op(spirv.OpUConvert, t, v)

		case 5:
			f := g.Load(g.Float(32), g.Access(spirv.StorageClassPushConstant, g.Float(32), g.mem.push, g.U32(1), g.U32(uint32(g.n(2)))))
			return g.op(spirv.OpConvertFToU, t, f)

		case 0:
			return g.Load(u, g.Access(spirv.StorageClassPushConstant, u, g.mem.push, g.U32(0)))
		case 1:
			return g.Load(u, g.Access(spirv.StorageClassPushConstant, u, g.mem.push, g.U32(2), g.U32(uint32(g.n(4)))))

		case 2:
			return vec(spirv.BuiltInWorkgroupId, 3)
		case 3:
			return g.op(spirv.OpArrayLength, t, g.mem.buffers[outWords], 0)
		}
		return g.Load(u, g.Access(spirv.StorageClassStorageBuffer, u, g.mem.buffers[inWords], g.U32(0), g.U32(uint32(g.n(32)))))
	}

	switch g.n(8) {
	case 0, 1:
		return g.Load(u, g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
	case 2:
		return g.Load(u, g.mem.slot)
	case 3:
		return vec(spirv.BuiltInGlobalInvocationId, 3)
	case 4:
		return vec(spirv.BuiltInLocalInvocationId, 3)
	case 5:
		list := []spirv.BuiltIn{spirv.BuiltInSubgroupSize, spirv.BuiltInSubgroupLocalInvocationId, spirv.BuiltInNumSubgroups, spirv.BuiltInSubgroupId}
		return g.Load(u, g.mem.inputs[list[g.n(len(list))]])
	case 6:
		return vec([]spirv.BuiltIn{spirv.BuiltInSubgroupGeMask, spirv.BuiltInSubgroupLtMask}[g.n(2)], 4)
	}

	return g.Load(u, g.Access(spirv.StorageClassStorageBuffer, u, g.mem.buffers[inWords], g.U32(0), g.near()))
}

// near is an index of a read-only buffer: linear in the lane's number and in
// uniform values, or any other.
func (g *generator) near() spirv.ID {
	u := shape{u32, 1}
	if g.n(3) == 0 {
		return g.index(32)
	}

	lane := g.Load(g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationIndex])
	if g.n(3) == 2 { // by rows
		part := func(i uint32) spirv.ID {
			return g.Load(g.Uint(32), g.Access(spirv.StorageClassInput, g.Uint(32), g.mem.inputs[spirv.BuiltInLocalInvocationId], g.U32(i)))
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

// index is an index below n, or, if the program may trap, sometimes another.
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
	kinds := g.numbers()
	return kinds[g.n(len(kinds))]
}

// pair is a struct of two values.
func (g *generator) pair(a, b shape) spirv.ID {
	key := pairKey{a, b}
	if g.made.pairs == nil {
		g.made.pairs = map[pairKey]spirv.ID{}
	}
	if g.made.pairs[key] == 0 {
		g.made.pairs[key] = g.Struct(g.typ(a), g.typ(b))
	}
	return g.made.pairs[key]
}

type pairKey struct{ a, b shape }
