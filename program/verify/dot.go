package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// integerDot checks a product of two vectors of integers, with n operands and, where
// the vectors are packed in words, their format.
func integerDot(v *verifier, in *spirv.Inst, t *typ, n int) *program.Refusal {
	if len(in.Args) != n && len(in.Args) != n+1 {
		return v.refuse(CodeOperand, in, "%d operands; it has %d, and a format where the vectors are packed", len(in.Args), n)
	}
	if !t.isScalar(kInt) {
		return v.badResult(in, "an integer")
	}
	if (in.Op == spirv.OpUDot || in.Op == spirv.OpUDotAccSat) && t.signed {
		return v.badResult(in, "an unsigned integer")
	}

	a, b := v.arg(in, 0), v.arg(in, 1)
	packed := len(in.Args) > n
	mixed := in.Op == spirv.OpSUDot || in.Op == spirv.OpSUDotAccSat
	switch {
	case !mixed && a != b:
		return v.badOperand(in, 1, "of the first operand's type")
	case packed && (!a.isScalar(kInt) || a.width != 32 || !b.isScalar(kInt) || b.width != 32):
		return v.refuse(CodeOperand, in, "packed vectors that are no 32-bit integers")
	case packed && !v.caps[spirv.CapabilityDotProductInput4x8BitPacked]:
		return v.refuse(CodeNeeds, in, "packed vectors need capability DotProductInput4x8BitPacked")
	case packed:
	case !a.isVector(kInt) || !b.isVector(kInt) || a.n != b.n || a.width != b.width:
		return v.refuse(CodeOperand, in, "operands that are no like vectors of integers")
	case (a.n != 4 || a.width != 8 || !v.caps[spirv.CapabilityDotProductInput4x8Bit]) && !v.caps[spirv.CapabilityDotProductInputAll]:
		return v.refuse(CodeNeeds, in, "vectors of %d numbers of %d bits need capability DotProductInputAll", a.n, a.width)
	case t.width < a.width:
		return v.badResult(in, "as wide as the components")
	case (in.Op == spirv.OpUDot || in.Op == spirv.OpUDotAccSat) && (a.elem.signed || b.elem.signed):
		return v.refuse(CodeOperand, in, "components with a sign")
	}

	if packed && in.Args[n] != uint32(spirv.PackedVectorFormatPackedVectorFormat4x8Bit) {
		return v.refuse(CodeOperand, in, "the format %d", in.Args[n])
	}
	if n == 3 && v.arg(in, 2) != t {
		return v.badOperand(in, 2, "of the result's type")
	}
	return nil
}
