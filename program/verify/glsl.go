package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

type glslCheck func(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal

// glslRule is the requirement for an extended instruction of GLSL.std.450.
type glslRule struct {
	n     int
	check glslCheck
}

var glslRules = func() map[spirv.GLSL]glslRule {
	rules := map[spirv.GLSL]glslRule{}
	add := func(n int, c glslCheck, gs ...spirv.GLSL) {
		for _, g := range gs {
			rules[g] = glslRule{n, c}
		}
	}

	add(1, glslFloats, spirv.GLSLRound, spirv.GLSLRoundEven, spirv.GLSLTrunc, spirv.GLSLFAbs, spirv.GLSLFSign, spirv.GLSLFloor,
		spirv.GLSLCeil, spirv.GLSLFract, spirv.GLSLSqrt, spirv.GLSLInverseSqrt, spirv.GLSLNormalize)
	add(2, glslFloats, spirv.GLSLFMin, spirv.GLSLFMax, spirv.GLSLNMin, spirv.GLSLNMax, spirv.GLSLStep, spirv.GLSLReflect)
	add(3, glslFloats, spirv.GLSLFClamp, spirv.GLSLNClamp, spirv.GLSLFMix, spirv.GLSLSmoothStep, spirv.GLSLFma, spirv.GLSLFaceForward)
	add(1, glslSingles, spirv.GLSLRadians, spirv.GLSLDegrees, spirv.GLSLSin, spirv.GLSLCos, spirv.GLSLTan, spirv.GLSLAsin, spirv.GLSLAcos,
		spirv.GLSLAtan, spirv.GLSLSinh, spirv.GLSLCosh, spirv.GLSLTanh, spirv.GLSLAsinh, spirv.GLSLAcosh, spirv.GLSLAtanh,
		spirv.GLSLExp, spirv.GLSLLog, spirv.GLSLExp2, spirv.GLSLLog2)

	add(2, glslSingles, spirv.GLSLAtan2, spirv.GLSLPow)
	add(1, glslInts, spirv.GLSLSAbs, spirv.GLSLSSign, spirv.GLSLFindILsb, spirv.GLSLFindSMsb, spirv.GLSLFindUMsb)
	add(2, glslInts, spirv.GLSLUMin, spirv.GLSLSMin, spirv.GLSLUMax, spirv.GLSLSMax)
	add(3, glslInts, spirv.GLSLUClamp, spirv.GLSLSClamp)
	add(1, glslLength, spirv.GLSLLength)
	add(2, glslLength, spirv.GLSLDistance)
	add(2, glslCross, spirv.GLSLCross)
	add(3, glslRefract, spirv.GLSLRefract)
	add(2, glslLdexp, spirv.GLSLLdexp)
	add(1, glslParts, spirv.GLSLModfStruct, spirv.GLSLFrexpStruct)
	add(2, glslInto, spirv.GLSLModf, spirv.GLSLFrexp)
	add(1, glslPack, spirv.GLSLPackSnorm4x8, spirv.GLSLPackUnorm4x8, spirv.GLSLPackSnorm2x16, spirv.GLSLPackUnorm2x16, spirv.GLSLPackHalf2x16)
	add(1, glslUnpack, spirv.GLSLUnpackSnorm4x8, spirv.GLSLUnpackUnorm4x8, spirv.GLSLUnpackSnorm2x16, spirv.GLSLUnpackUnorm2x16, spirv.GLSLUnpackHalf2x16)
	add(1, glslMatrix, spirv.GLSLDeterminant, spirv.GLSLMatrixInverse)
	add(1, glslDouble, spirv.GLSLPackDouble2x32, spirv.GLSLUnpackDouble2x32)
	return rules
}()

// extended checks an extended instruction. Instructions of sets other than
// GLSL.std.450 mean nothing: any set that is not "NonSemantic." was refused with
// its import.
func extended(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if s := v.info(in.Arg(0)); s.what != isImport {
		return v.refuse(CodeID, in, "%%%d is no import", in.Arg(0))
	}
	if in.Arg(0) != v.glsl {
		return nil
	}

	v.cur.small = false
	if t != nil {
		if r := v.computes(in, t); r != nil {
			return r
		}
	}

	g := spirv.GLSL(in.Arg(1))
	r, ok := glslRules[g]
	if !ok {
		return v.refuse(CodeExtended, in, "%v is outside the profile", g)
	}
	if len(in.Args) != r.n+2 {
		return v.refuse(CodeOperand, in, "%v with %d operands; it has %d", g, len(in.Args)-2, r.n)
	}

	var types [3]*typ
	for i := range r.n {
		types[i] = v.arg(in, i+2)
	}

	return r.check(v, in, t, types[:r.n])
}

func glslFloats(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if !t.is(kFloat) {
		return v.badResult(in, "of floats")
	}
	for i, a := range args {
		if a != t {
			return v.badOperand(in, i+2, "of the result's type")
		}
	}
	return nil
}

func glslSingles(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if !t.is(kFloat) || t.scalar().width > 32 {
		return v.badResult(in, "of floats of 16 or 32 bits")
	}
	return glslFloats(v, in, t, args)
}

func glslInts(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if !t.is(kInt) {
		return v.badResult(in, "of integers")
	}
	switch spirv.GLSL(in.Arg(1)) {
	case spirv.GLSLFindILsb, spirv.GLSLFindSMsb, spirv.GLSLFindUMsb:
		if t.scalar().width != 32 {
			return v.badResult(in, "of 32-bit integers")
		}
	}
	for i, a := range args {
		if !likeInt(a, t) {
			return v.badOperand(in, i+2, "of integers like the result")
		}
	}
	return nil
}

func glslLength(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if !t.isScalar(kFloat) {
		return v.badResult(in, "a float")
	}
	for i, a := range args {
		if !a.is(kFloat) || a.scalar() != t || a != args[0] {
			return v.badOperand(in, i+2, "of floats like the result")
		}
	}
	return nil
}

func glslCross(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if !t.isVector(kFloat) || t.n != 3 {
		return v.badResult(in, "a vector of three floats")
	}
	return glslFloats(v, in, t, args)
}

func glslRefract(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if e := args[2]; !e.isScalar(kFloat) || e.width != 32 && (e.width != 16 || e != t.scalar()) || t.is(kFloat) && t.scalar().width == 16 && e.width != 16 {
		return v.badOperand(in, 4, "a 32-bit float, or for halves a half")
	}
	return glslFloats(v, in, t, args[:2])
}

func glslLdexp(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if e := args[1]; !e.is(kInt) || e.lanes() != t.lanes() {
		return v.badOperand(in, 3, "as many integers as the result")
	}
	return glslFloats(v, in, t, args[:1])
}

// glslExponent checks the second result of frexp and modf.
func glslExponent(g spirv.GLSL, second, x *typ) bool {
	if g == spirv.GLSLModf || g == spirv.GLSLModfStruct {
		return second == x
	}
	return second.is(kInt) && second.lanes() == x.lanes() && second.scalar().width == 32
}

func glslParts(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if t.kind != kStruct || len(t.members) != 2 || !t.members[0].is(kFloat) || !glslExponent(spirv.GLSL(in.Arg(1)), t.members[1], t.members[0]) {
		return v.badResult(in, "a struct of the two parts")
	}
	if args[0] != t.members[0] {
		return v.badOperand(in, 2, "of the first part's type")
	}
	return nil
}

func glslInto(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if r := glslFloats(v, in, t, args[:1]); r != nil {
		return r
	}
	p := args[1]
	if p.kind != kPointer || !glslExponent(spirv.GLSL(in.Arg(1)), p.elem, t) {
		return v.badOperand(in, 3, "a pointer to the second part")
	}
	return v.touch(in, in.Arg(3), p, program.Write)
}

// glslVector is the unpacked type of a packed word.
func glslVector(g spirv.GLSL, t *typ) bool {
	n := uint32(2)
	switch g {
	case spirv.GLSLPackSnorm4x8, spirv.GLSLPackUnorm4x8, spirv.GLSLUnpackSnorm4x8, spirv.GLSLUnpackUnorm4x8:
		n = 4
	}
	return t.isVector(kFloat) && t.width == 32 && t.n == n
}

func glslPack(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if !t.isScalar(kInt) || t.width != 32 {
		return v.badResult(in, "a 32-bit integer")
	}
	if !glslVector(spirv.GLSL(in.Arg(1)), args[0]) {
		return v.badOperand(in, 2, "the vector that is packed")
	}
	return nil
}

func glslUnpack(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	if !glslVector(spirv.GLSL(in.Arg(1)), t) {
		return v.badResult(in, "the vector that was packed")
	}
	if !args[0].isScalar(kInt) || args[0].width != 32 {
		return v.badOperand(in, 2, "a 32-bit integer")
	}
	return nil
}

// glslDouble checks the packing of two words as a double, and back.
func glslDouble(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	words := func(t *typ) bool { return t.isVector(kInt) && t.n == 2 && t.width == 32 }
	double := func(t *typ) bool { return t.isScalar(kFloat) && t.width == 64 }
	from, to := words, double
	if spirv.GLSL(in.Arg(1)) == spirv.GLSLUnpackDouble2x32 {
		from, to = double, words
	}
	if !to(t) {
		return v.badResult(in, "a double, or two 32-bit integers")
	}
	if !from(args[0]) {
		return v.badOperand(in, 2, "two 32-bit integers, or a double")
	}
	return nil
}
