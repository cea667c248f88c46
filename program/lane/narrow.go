package lane

import "capgpu/program/spirv"

// Numbers of 8 and 16 bits lie in registers of 32 bits, with zeros above. An
// instruction that computes with them takes them as 32 bits (a half as f32), and its
// result is cut, or rounded to a half: once for each instruction, also for those that
// have several steps, such as OpDot. A sum, product, quotient or root of halves that
// is rounded to f32 first is the same as one that is rounded at once.

// scalarOf is the type of the components of a vector or matrix, or the type itself.
func scalarOf(t *tinfo) *tinfo {
	if t.matrix {
		t = t.elem
	}
	if t.kind == typeVector {
		return t.elem
	}
	return t
}

func (t *tinfo) narrowInt() bool { return t.kind == typeInt && t.width < 32 }
func (t *tinfo) half() bool      { return t.kind == typeFloat && t.width == 16 }

// operand is a value for an instruction that computes.
func (l *lowerer) operand(id spirv.ID, signed bool) []val {
	v := l.value(id)
	d := l.typeOf(id)
	if d == 0 {
		return v
	}

	switch t := scalarOf(l.typ(d)); {
	case t.half():
		return l.each(v, func(_ int, x val) val { return l.convert(spirv.OpFConvert, x, 16, 32) })
	case t.narrowInt() && signed:
		return l.each(v, func(_ int, x val) val { return l.emit(iExtend, false, uint64(t.width), x) })
	}

	return v
}

// result cuts what was computed to the type's numbers.
func (l *lowerer) result(t *tinfo, v []val) []val {
	switch t = scalarOf(t); {
	case t.half():
		return l.each(v, func(_ int, x val) val { return l.convert(spirv.OpFConvert, x, 32, 16) })
	case t.narrowInt():
		return l.each(v, func(_ int, x val) val { return l.spv(spirv.OpBitwiseAnd, false, x, l.f.word(1<<t.width-1)) })
	}
	return v
}

// signedOp reports whether an instruction takes its operands with their sign.
func signedOp(o spirv.Opcode) bool {
	switch o {
	case spirv.OpSDiv, spirv.OpSRem, spirv.OpSMod, spirv.OpShiftRightArithmetic,
		spirv.OpSLessThan, spirv.OpSLessThanEqual, spirv.OpSGreaterThan, spirv.OpSGreaterThanEqual,
		spirv.OpGroupNonUniformSMin, spirv.OpGroupNonUniformSMax:
		return true
	}
	return false
}

func signedGLSL(g spirv.GLSL) bool {
	switch g {
	case spirv.GLSLSAbs, spirv.GLSLSSign, spirv.GLSLSMin, spirv.GLSLSMax, spirv.GLSLSClamp, spirv.GLSLLdexp:
		return true
	}
	return false
}

// number converts between numbers of any kind and width.
func (l *lowerer) number(o spirv.Opcode, x val, from, to int) val {
	switch o {
	case spirv.OpConvertFToS, spirv.OpConvertFToU:
		if from == 16 {
			x, from = l.convert(spirv.OpFConvert, x, 16, 32), 32
		}
		if to >= 32 {
			return l.convert(o, x, from, to)
		}
		return l.clamp(l.convert(o, x, from, 32), to, o == spirv.OpConvertFToS)

	case spirv.OpConvertSToF, spirv.OpConvertUToF:
		if from < 32 {
			if o == spirv.OpConvertSToF {
				x = l.emit(iExtend, false, uint64(from), x)
			}
			from = 32
		}
		if to != 16 {
			return l.convert(o, x, from, to)
		}
		// An integer that f32 rounds is an infinity as a half.
		return l.convert(spirv.OpFConvert, l.convert(o, x, from, 32), 32, 16)
	}
	return l.convert(o, x, from, to)
}

// clamp cuts 32 bits to the range of width bits.
func (l *lowerer) clamp(x val, width int, signed bool) val {
	if !signed {
		return l.emit(glslOp(spirv.GLSLUMin), false, 0, x, l.f.word(1<<width-1))
	}
	most := uint32(1)<<(width-1) - 1
	x = l.emit(glslOp(spirv.GLSLSMin), false, 0, x, l.f.word(most))
	x = l.emit(glslOp(spirv.GLSLSMax), false, 0, x, l.f.word(^most))
	return l.spv(spirv.OpBitwiseAnd, false, x, l.f.word(1<<width-1))
}
