package lane

import "capgpu/program/spirv"

// integerDot is a product of two vectors of integers, computed in the width of the
// result, and where an accumulator is added, without leaving its range.
func (l *lowerer) integerDot(in *spirv.Inst, t *tinfo) []val {
	signed := in.Op != spirv.OpUDot && in.Op != spirv.OpUDotAccSat
	operands := 2
	if in.Op >= spirv.OpSDotAccSat {
		operands = 3
	}
	unsignedSecond := in.Op == spirv.OpSUDot || in.Op == spirv.OpSUDotAccSat
	packed := len(in.Args) > operands
	a := l.dotPart(in.Arg(0), t, signed, packed)
	b := l.dotPart(in.Arg(1), t, signed && !unsignedSecond, packed)
	l.same(a, b)

	mul := func(k int) val { return l.spv(spirv.OpIMul, t.wide, a[k], b[k]) }
	sum := mul(0)
	for k := 1; k < len(a); k++ {
		sum = l.spv(spirv.OpIAdd, t.wide, sum, mul(k))
	}
	if operands == 3 {
		sum = l.saturated(sum, l.cut(l.operand(in.Arg(2), signed), 0, 1)[0], t, signed)
	}
	return l.result(t, []val{sum})
}

// dotPart is the components of a vector, in 64 bits or 32, as the result is.
func (l *lowerer) dotPart(id spirv.ID, t *tinfo, signed, packed bool) []val {
	if packed {
		field := spirv.OpBitFieldUExtract
		if signed {
			field = spirv.OpBitFieldSExtract
		}
		word, parts := l.scalar(id), make([]val, 4)
		for k := range parts {
			parts[k] = l.widened(l.spv(field, false, word, l.f.word(uint32(8*k)), l.f.word(8)), t, signed)
		}
		return parts
	}

	from := scalarOf(l.typ(l.typeOf(id)))
	return l.each(l.operand(id, signed), func(_ int, x val) val {
		if from.wide {
			return x
		}
		return l.widened(x, t, signed)
	})
}

// widened is 32 bits as 64, where t is.
func (l *lowerer) widened(x val, t *tinfo, signed bool) val {
	switch {
	case !t.wide:
		return x
	case signed:
		return l.convert(spirv.OpSConvert, x, 32, 64)
	}
	return l.convert(spirv.OpUConvert, x, 32, 64)
}

// saturated is a + b, or the nearest number of the type.
func (l *lowerer) saturated(a, b val, t *tinfo, signed bool) val {
	sum := l.spv(spirv.OpIAdd, t.wide, a, b)
	if t.width < 32 { // no sum leaves 32 bits; the dot product is in the type's range
		if signed {
			a = l.emit(iExtend, false, uint64(t.width), a)
		} else {
			a = l.spv(spirv.OpBitwiseAnd, false, a, l.f.word(1<<t.width-1))
		}
		return l.clamp(l.spv(spirv.OpIAdd, false, a, b), t.width, signed)
	}

	top := l.f.constant(1<<(t.width-1), t.wide)
	if !signed {
		return l.spv(spirv.OpSelect, t.wide, l.spv(spirv.OpULessThan, false, sum, a), l.f.constant(1<<64-1, t.wide), sum)
	}
	crossed := l.spv(spirv.OpBitwiseAnd, t.wide, l.spv(spirv.OpBitwiseXor, t.wide, a, sum), l.spv(spirv.OpBitwiseXor, t.wide, b, sum))
	shift := l.f.word(uint32(t.width - 1))
	if t.wide {
		shift = l.f.constant(uint64(t.width-1), true)
	}
	most := l.spv(spirv.OpBitwiseXor, t.wide, l.spv(spirv.OpShiftRightArithmetic, t.wide, a, shift), l.f.constant(1<<(t.width-1)-1, t.wide))
	out := l.spv(spirv.OpINotEqual, false, l.spv(spirv.OpBitwiseAnd, t.wide, crossed, top), l.f.constant(0, t.wide))
	return l.spv(spirv.OpSelect, t.wide, out, most, sum)
}
