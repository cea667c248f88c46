package vec

import "capgpu/program/spirv"

//go:generate go run ./gen

// Shapes of operations. The suffix L is for lanes of 64 bits, S for a scalar
// operand that all lanes share.
type (
	Op1   func(dst, a []uint32)
	Op2   func(dst, a, b []uint32)
	Op2S  func(dst, a []uint32, s uint32)
	Op3   func(dst, a, b, c []uint32)
	Op4   func(dst, a, b, c, d []uint32)
	Op1L  func(dst, a []uint64)
	Op2L  func(dst, a, b []uint64)
	Op2SL func(dst, a []uint64, s uint64)
	Op3L  func(dst, a, b, c []uint64)

	OpCmpL   func(dst []uint32, a, b []uint64)
	OpCmpSL  func(dst []uint32, a []uint64, s uint64)
	OpNarrow func(dst []uint32, a []uint64)
	OpWiden  func(dst []uint64, a []uint32)
)

// forms are one operation on a and b, on a and s, and on s and a.
type forms struct {
	vv Op2
	vs Op2S
	sv Op2S
}

type formsL struct {
	vv Op2L
	vs Op2SL
	sv Op2SL
}

type compareL struct {
	vv OpCmpL
	vs OpCmpSL
	sv OpCmpSL
}

// logical are the instructions on bools that are also instructions on bits.
var logical = map[spirv.Opcode]spirv.Opcode{
	spirv.OpLogicalOr:       spirv.OpBitwiseOr,
	spirv.OpLogicalAnd:      spirv.OpBitwiseAnd,
	spirv.OpLogicalNotEqual: spirv.OpBitwiseXor,
	spirv.OpLogicalNot:      spirv.OpNot,
}

func asBits(op spirv.Opcode) spirv.Opcode {
	if b, ok := logical[op]; ok {
		return b
	}
	return op
}

// pick finds k in the assembly's table, if it may be used, or in Go's.
func pick[K comparable, V any](k K, fast, slow map[K]V) (V, bool) {
	if accelerated {
		if v, ok := fast[k]; ok {
			return v, true
		}
	}
	v, ok := slow[k]
	return v, ok
}

func pickBinary(op spirv.Opcode) (forms, bool) {
	op = asBits(op)
	if b, ok := pick(op, binaryFast, binaryGo); ok {
		if by, ok := divideBy[op]; ok {
			b.vs = by
		}
		return b, true
	}
	return pick(op, compareFast, compareGo)
}

// Unary is an instruction with one operand, 32 bits to 32 bits: SNegate, FNegate,
// Not, LogicalNot, BitCount, BitReverse, IsNan, IsInf and the conversions between
// int and float.
func Unary(op spirv.Opcode) (Op1, bool) { return pick(asBits(op), unaryFast, unaryGo) }

// Binary is an instruction with two operands of 32 bits: arithmetic, shifts,
// bits, comparisons and logic.
func Binary(op spirv.Opcode) (Op2, bool) {
	b, ok := pickBinary(op)
	return b.vv, ok
}

// BinaryS is Binary with a scalar: vs is a op s, sv is s op a.
func BinaryS(op spirv.Opcode) (vs, sv Op2S, ok bool) {
	b, ok := pickBinary(op)
	return b.vs, b.sv, ok
}

// High is the second member of the result of IAddCarry (the carry), ISubBorrow
// (the borrow), UMulExtended and SMulExtended (the high half). The first is that
// of IAdd, ISub and IMul.
func High(op spirv.Opcode) (Op2, bool) {
	b, ok := highGo[op]
	return b.vv, ok
}

// Ternary is BitFieldSExtract or BitFieldUExtract of base, offset and count.
func Ternary(op spirv.Opcode) (Op3, bool) { return pick(op, nil, ternaryGo) }

// UnaryL is Unary on 64 bits: SNegate, FNegate, Not, and conversions between int
// and double. IsNan and IsInf are Narrow's.
func UnaryL(op spirv.Opcode) (Op1L, bool) { return pick(op, nil, unaryLGo) }

// BinaryL is Binary on 64 bits, without comparisons.
func BinaryL(op spirv.Opcode) (Op2L, bool) {
	b, ok := pick(op, binaryLFast, binaryLGo)
	return b.vv, ok
}

// BinaryLS is BinaryL with a scalar.
func BinaryLS(op spirv.Opcode) (vs, sv Op2SL, ok bool) {
	b, ok := pick(op, binaryLFast, binaryLGo)
	return b.vs, b.sv, ok
}

// CompareL compares lanes of 64 bits.
func CompareL(op spirv.Opcode) (OpCmpL, bool) {
	b, ok := compareLGo[op]
	return b.vv, ok
}

// CompareLS is CompareL with a scalar.
func CompareLS(op spirv.Opcode) (vs, sv OpCmpSL, ok bool) {
	b, ok := compareLGo[op]
	return b.vs, b.sv, ok
}

// HighL is High on 64 bits.
func HighL(op spirv.Opcode) (Op2L, bool) {
	b, ok := highLGo[op]
	return b.vv, ok
}

// sameGLSL maps instructions to others with the same effect.
func sameGLSL(g spirv.GLSL) spirv.GLSL {
	if g == spirv.GLSLRound {
		return spirv.GLSLRoundEven
	}
	return g
}

// GLSL1 is an instruction of GLSL.std.450 with one operand. The instructions with
// two results are Modf and Frexp, those on vectors Pack4 and Unpack; Length and
// its kin are made of others.
func GLSL1(g spirv.GLSL) (Op1, bool) { return pick(sameGLSL(g), unaryFastGLSL, unaryGoGLSL) }

// GLSL2 has two operands. Ldexp takes the exponent second; PackHalf2x16,
// PackSnorm2x16 and PackUnorm2x16 take the components of their vector.
func GLSL2(g spirv.GLSL) (Op2, bool) {
	b, ok := pick(g, binaryFastGLSL, binaryGoGLSL)
	return b.vv, ok
}

// GLSL2S is GLSL2 with a scalar: vs is g(a, s), sv is g(s, a).
func GLSL2S(g spirv.GLSL) (vs, sv Op2S, ok bool) {
	b, ok := pick(g, binaryFastGLSL, binaryGoGLSL)
	return b.vs, b.sv, ok
}

// GLSL3 has three operands: FClamp, NClamp, UClamp, SClamp, FMix, SmoothStep, Fma.
func GLSL3(g spirv.GLSL) (Op3, bool) { return pick(g, ternaryFastGLSL, ternaryGoGLSL) }

// GLSL1L is GLSL1 on 64 bits. There is no Sin nor the like: GLSL.std.450 has them
// for 32 bits only.
func GLSL1L(g spirv.GLSL) (Op1L, bool) { return pick(sameGLSL(g), nil, unaryLGoGLSL) }

// GLSL2L is GLSL2 on 64 bits, without Ldexp, which is LdexpL.
func GLSL2L(g spirv.GLSL) (Op2L, bool) {
	b, ok := binaryLGoGLSL[g]
	return b.vv, ok
}

// GLSL3L is GLSL3 on 64 bits.
func GLSL3L(g spirv.GLSL) (Op3L, bool) { return pick(g, nil, ternaryLGoGLSL) }

// ForceGo makes the loops in Go the ones in use, or ends that, and returns the old
// setting. It is for tests: functions that were returned before stay the same.
func ForceGo(force bool) (was bool) {
	was = !accelerated
	accelerated = hasFast && !force
	return was
}
