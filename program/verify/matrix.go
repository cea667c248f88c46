package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// matrixOp checks the shapes of an instruction on matrices. A matrix is columns, each
// a vector with a component for each row.
func matrixOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	a, b := v.arg(in, 0), noType
	if len(in.Args) > 1 {
		b = v.arg(in, 1)
	}

	isMatrix := func(t *typ) bool { return t.kind == kMatrix }
	vector := func(t *typ) bool { return t.isVector(kFloat) }
	ok := false
	switch in.Op {
	case spirv.OpMatrixTimesScalar:
		ok = isMatrix(t) && a == t && b == t.elem.elem
	case spirv.OpVectorTimesMatrix:
		ok = vector(t) && vector(a) && isMatrix(b) && b.elem == a && b.n == t.n && t.elem == a.elem
	case spirv.OpMatrixTimesVector:
		ok = vector(t) && isMatrix(a) && vector(b) && a.elem == t && a.n == b.n && b.elem == t.elem
	case spirv.OpMatrixTimesMatrix:
		ok = isMatrix(t) && isMatrix(a) && isMatrix(b) && a.elem == t.elem && b.n == t.n && a.n == b.elem.n && b.elem.elem == t.elem.elem
	case spirv.OpOuterProduct:
		ok = isMatrix(t) && vector(a) && vector(b) && t.elem == a && t.n == b.n && b.elem == a.elem
	case spirv.OpTranspose:
		ok = isMatrix(t) && isMatrix(a) && t.n == a.elem.n && t.elem.n == a.n && t.elem.elem == a.elem.elem
	}

	if !ok {
		return v.refuse(CodeOperand, in, "matrices and vectors that do not fit each other, or the result")
	}

	return nil
}

// glslMatrix checks Determinant and MatrixInverse.
func glslMatrix(v *verifier, in *spirv.Inst, t *typ, args []*typ) *program.Refusal {
	a := args[0]
	if a.kind != kMatrix || a.n != a.elem.n {
		return v.badOperand(in, 2, "a square matrix")
	}
	want := a
	if spirv.GLSL(in.Arg(1)) == spirv.GLSLDeterminant {
		want = a.elem.elem
	}
	if t != want {
		return v.badResult(in, "of the matrix, or its component")
	}
	return nil
}
