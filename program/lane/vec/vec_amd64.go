package vec

import (
	"golang.org/x/sys/cpu"

	"capgpu/program/spirv"
)

// The assembly is for processors with AVX2, and with fused multiply-add and half
// conversion, which all of them have.
var (
	hasFast     = cpu.X86.HasAVX2 && cpu.X86.HasFMA && cpu.X86.HasF16C
	accelerated = hasFast
)

// The instructions that are in assembly.
var (
	unaryFast = map[spirv.Opcode]Op1{
		spirv.OpNot: notAVX2, spirv.OpSNegate: snegateAVX2, spirv.OpFNegate: fnegateAVX2,
		spirv.OpIsNan: isNanAVX2, spirv.OpIsInf: isInfAVX2,
		spirv.OpConvertFToS: fToSAVX2, spirv.OpConvertFToU: fToUAVX2,
		spirv.OpConvertSToF: sToFAVX2, spirv.OpConvertUToF: uToFAVX2,
	}
	unaryFastGLSL = map[spirv.GLSL]Op1{
		spirv.GLSLFAbs: fabsAVX2, spirv.GLSLSAbs: sabsAVX2, spirv.GLSLFSign: fsignAVX2,
		spirv.GLSLRoundEven: roundEvenAVX2, spirv.GLSLTrunc: truncAVX2, spirv.GLSLFloor: floorAVX2,
		spirv.GLSLCeil: ceilAVX2, spirv.GLSLFract: fractAVX2, spirv.GLSLSqrt: sqrtAVX2,
		spirv.GLSLExp: expAVX2, spirv.GLSLExp2: exp2AVX2, spirv.GLSLInverseSqrt: inverseSqrtAVX2,
	}
	ternaryFastGLSL = map[spirv.GLSL]Op3{
		spirv.GLSLFClamp: fclampAVX2, spirv.GLSLFMix: fmixAVX2, spirv.GLSLFma: ffmaAVX2,
	}
	binaryFast = map[spirv.Opcode]forms{
		spirv.OpIAdd:                 {iaddAVX2, iaddVSAVX2, iaddSVAVX2},
		spirv.OpISub:                 {isubAVX2, isubVSAVX2, isubSVAVX2},
		spirv.OpIMul:                 {imulAVX2, imulVSAVX2, imulSVAVX2},
		spirv.OpBitwiseAnd:           {andAVX2, andVSAVX2, andSVAVX2},
		spirv.OpBitwiseOr:            {orAVX2, orVSAVX2, orSVAVX2},
		spirv.OpBitwiseXor:           {xorAVX2, xorVSAVX2, xorSVAVX2},
		spirv.OpShiftLeftLogical:     {shlAVX2, shlVSAVX2, shlSVAVX2},
		spirv.OpShiftRightLogical:    {shrAVX2, shrVSAVX2, shrSVAVX2},
		spirv.OpShiftRightArithmetic: {sarAVX2, sarVSAVX2, sarSVAVX2},
		spirv.OpFAdd:                 {faddAVX2, faddVSAVX2, faddSVAVX2},
		spirv.OpFSub:                 {fsubAVX2, fsubVSAVX2, fsubSVAVX2},
		spirv.OpFMul:                 {fmulAVX2, fmulVSAVX2, fmulSVAVX2},
		spirv.OpFDiv:                 {fdivAVX2, fdivVSAVX2, fdivSVAVX2},
	}
	binaryFastGLSL = map[spirv.GLSL]forms{
		spirv.GLSLUMin: {uminAVX2, uminVSAVX2, uminSVAVX2},
		spirv.GLSLUMax: {umaxAVX2, umaxVSAVX2, umaxSVAVX2},
		spirv.GLSLSMin: {sminAVX2, sminVSAVX2, sminSVAVX2},
		spirv.GLSLSMax: {smaxAVX2, smaxVSAVX2, smaxSVAVX2},
		spirv.GLSLFMin: {fminAVX2, fminVSAVX2, fminSVAVX2},
		spirv.GLSLFMax: {fmaxAVX2, fmaxVSAVX2, fmaxSVAVX2},
		spirv.GLSLNMin: {nminAVX2, nminVSAVX2, nminSVAVX2},
		spirv.GLSLNMax: {nmaxAVX2, nmaxVSAVX2, nmaxSVAVX2},
	}
	compareFast = map[spirv.Opcode]forms{
		spirv.OpIEqual:                 {ieqAVX2, ieqVSAVX2, ieqSVAVX2},
		spirv.OpINotEqual:              {ineAVX2, ineVSAVX2, ineSVAVX2},
		spirv.OpUGreaterThan:           {ugtAVX2, ugtVSAVX2, ugtSVAVX2},
		spirv.OpSGreaterThan:           {sgtAVX2, sgtVSAVX2, sgtSVAVX2},
		spirv.OpUGreaterThanEqual:      {ugeAVX2, ugeVSAVX2, ugeSVAVX2},
		spirv.OpSGreaterThanEqual:      {sgeAVX2, sgeVSAVX2, sgeSVAVX2},
		spirv.OpULessThan:              {ultAVX2, ultVSAVX2, ultSVAVX2},
		spirv.OpSLessThan:              {sltAVX2, sltVSAVX2, sltSVAVX2},
		spirv.OpULessThanEqual:         {uleAVX2, uleVSAVX2, uleSVAVX2},
		spirv.OpSLessThanEqual:         {sleAVX2, sleVSAVX2, sleSVAVX2},
		spirv.OpFOrdEqual:              {foeqAVX2, foeqVSAVX2, foeqSVAVX2},
		spirv.OpFUnordEqual:            {fueqAVX2, fueqVSAVX2, fueqSVAVX2},
		spirv.OpFOrdNotEqual:           {foneAVX2, foneVSAVX2, foneSVAVX2},
		spirv.OpFUnordNotEqual:         {funeAVX2, funeVSAVX2, funeSVAVX2},
		spirv.OpFOrdLessThan:           {foltAVX2, foltVSAVX2, foltSVAVX2},
		spirv.OpFUnordLessThan:         {fultAVX2, fultVSAVX2, fultSVAVX2},
		spirv.OpFOrdGreaterThan:        {fogtAVX2, fogtVSAVX2, fogtSVAVX2},
		spirv.OpFUnordGreaterThan:      {fugtAVX2, fugtVSAVX2, fugtSVAVX2},
		spirv.OpFOrdLessThanEqual:      {foleAVX2, foleVSAVX2, foleSVAVX2},
		spirv.OpFUnordLessThanEqual:    {fuleAVX2, fuleVSAVX2, fuleSVAVX2},
		spirv.OpFOrdGreaterThanEqual:   {fogeAVX2, fogeVSAVX2, fogeSVAVX2},
		spirv.OpFUnordGreaterThanEqual: {fugeAVX2, fugeVSAVX2, fugeSVAVX2},
	}
	binaryLFast = map[spirv.Opcode]formsL{
		spirv.OpIAdd:              {iaddLAVX2, iaddLVSAVX2, iaddLSVAVX2},
		spirv.OpISub:              {isubLAVX2, isubLVSAVX2, isubLSVAVX2},
		spirv.OpBitwiseAnd:        {andLAVX2, andLVSAVX2, andLSVAVX2},
		spirv.OpBitwiseOr:         {orLAVX2, orLVSAVX2, orLSVAVX2},
		spirv.OpBitwiseXor:        {xorLAVX2, xorLVSAVX2, xorLSVAVX2},
		spirv.OpShiftLeftLogical:  {shlLAVX2, shlLVSAVX2, shlLSVAVX2},
		spirv.OpShiftRightLogical: {shrLAVX2, shrLVSAVX2, shrLSVAVX2},
		spirv.OpFAdd:              {faddLAVX2, faddLVSAVX2, faddLSVAVX2},
		spirv.OpFSub:              {fsubLAVX2, fsubLVSAVX2, fsubLSVAVX2},
		spirv.OpFMul:              {fmulLAVX2, fmulLVSAVX2, fmulLSVAVX2},
		spirv.OpFDiv:              {fdivLAVX2, fdivLVSAVX2, fdivLSVAVX2},
	}
)
