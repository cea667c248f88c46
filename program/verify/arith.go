package verify

import (
	"capgpu/program"
	"capgpu/program/spirv"
)

// The checks of arithmetic, logic and conversions. An operand of an integer
// instruction may have either signedness, unless the instruction requires one.

func (v *verifier) badResult(in *spirv.Inst, want string) *program.Refusal {
	return v.refuse(CodeResult, in, "the result type is not %s", want)
}

func (v *verifier) badOperand(in *spirv.Inst, i int, want string) *program.Refusal {
	return v.refuse(CodeOperand, in, "operand %%%d is not %s", in.Arg(i), want)
}

// likeInt reports whether a is an integer type with the shape of t.
func likeInt(a, t *typ) bool {
	return a.is(kInt) && a.lanes() == t.lanes() && a.scalar().width == t.scalar().width
}

func intOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kInt) {
		return v.badResult(in, "of integers")
	}
	for i := range in.Args {
		if !likeInt(v.arg(in, i), t) {
			return v.badOperand(in, i, "of integers like the result")
		}
	}
	return nil
}

func unsignedOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kInt) || t.scalar().signed {
		return v.badResult(in, "of unsigned integers")
	}
	return v.same(in, t)
}

// same checks that every operand has the result's type.
func (v *verifier) same(in *spirv.Inst, t *typ) *program.Refusal {
	for i := range in.Args {
		if v.arg(in, i) != t {
			return v.badOperand(in, i, "of the result's type")
		}
	}
	return nil
}

func shiftOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kInt) {
		return v.badResult(in, "of integers")
	}
	if !likeInt(v.arg(in, 0), t) {
		return v.badOperand(in, 0, "of integers like the result")
	}
	if s := v.arg(in, 1); !s.is(kInt) || s.lanes() != t.lanes() {
		return v.badOperand(in, 1, "as many integers as the result")
	}
	return nil
}

func carryOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if t == nil || t.kind != kStruct || len(t.members) != 2 || t.members[0] != t.members[1] || !t.members[0].is(kInt) {
		return v.badResult(in, "a struct of two like integers")
	}
	m := t.members[0]
	if in.Op != spirv.OpSMulExtended && m.scalar().signed {
		return v.badResult(in, "of unsigned integers")
	}
	if m.scalar().width < 32 {
		return v.refuse(CodeSmall, in, "a result of %d bits", m.scalar().width)
	}
	return v.same(in, m)
}

func bitField(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kInt) || t.scalar().width != 32 {
		return v.badResult(in, "of 32-bit integers")
	}
	last := len(in.Args) - 2
	for i := range in.Args {
		a := v.arg(in, i)
		if i < last && a != t {
			return v.badOperand(in, i, "of the result's type")
		}
		if i >= last && !a.isScalar(kInt) {
			return v.badOperand(in, i, "an integer")
		}
	}
	return nil
}

func bitOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kInt) || t.scalar().width != 32 {
		return v.badResult(in, "of 32-bit integers")
	}
	if a := v.arg(in, 0); !likeInt(a, t) || in.Op == spirv.OpBitReverse && a != t {
		return v.badOperand(in, 0, "of 32-bit integers like the result")
	}
	return nil
}

func floatOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kFloat) {
		return v.badResult(in, "of floats")
	}
	return v.same(in, t)
}

func vectorTimesScalar(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.isVector(kFloat) {
		return v.badResult(in, "a vector of floats")
	}
	if v.arg(in, 0) != t {
		return v.badOperand(in, 0, "of the result's type")
	}
	if v.arg(in, 1) != t.elem {
		return v.badOperand(in, 1, "a component of the result's type")
	}
	return nil
}

func dotOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.isScalar(kFloat) {
		return v.badResult(in, "a float")
	}
	a, b := v.arg(in, 0), v.arg(in, 1)
	if a.kind != kVector || a.elem != t {
		return v.badOperand(in, 0, "a vector of the result's type")
	}
	if b != a {
		return v.badOperand(in, 1, "of the first operand's type")
	}
	return nil
}

func intCompare(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kBool) {
		return v.badResult(in, "of bools")
	}
	a, b := v.arg(in, 0), v.arg(in, 1)
	if !a.is(kInt) || a.lanes() != t.lanes() {
		return v.badOperand(in, 0, "as many integers as the result")
	}
	if !likeInt(b, a) {
		return v.badOperand(in, 1, "of integers like the first")
	}
	return nil
}

func floatCompare(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kBool) {
		return v.badResult(in, "of bools")
	}
	a := v.arg(in, 0)
	if !a.is(kFloat) || a.lanes() != t.lanes() {
		return v.badOperand(in, 0, "as many floats as the result")
	}
	if len(in.Args) > 1 && v.arg(in, 1) != a {
		return v.badOperand(in, 1, "of the first operand's type")
	}
	return nil
}

func logicalOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kBool) {
		return v.badResult(in, "of bools")
	}
	return v.same(in, t)
}

func anyAll(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.isScalar(kBool) {
		return v.badResult(in, "a bool")
	}
	if !v.arg(in, 0).isVector(kBool) {
		return v.badOperand(in, 0, "a vector of bools")
	}
	return nil
}

func selectOp(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	c := v.arg(in, 0)
	switch newer := v.m.Version >= version14; {
	case t.kind == kPointer && c.isScalar(kBool):
	case t.lanes() == 0 && !newer:
		return v.badResult(in, "a scalar or vector, as it is to be before SPIR-V 1.4")
	case !c.is(kBool) || c.lanes() != t.lanes() && (c.lanes() != 1 || !newer):
		return v.badOperand(in, 0, "a bool, or one for each component")
	}

	for i := 1; i < 3; i++ {
		if v.arg(in, i) != t {
			return v.badOperand(in, i, "of the result's type")
		}
		if t.kind == kPointer && v.cur.bad == nil {
			if r := v.becomes(in, in.Result, in.Arg(i)); r != nil {
				return r
			}
		}
	}

	return nil
}

func convertNumber(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	from, to := kFloat, kInt
	if in.Op == spirv.OpConvertSToF || in.Op == spirv.OpConvertUToF {
		from, to = kInt, kFloat
	}
	if !t.is(to) || in.Op == spirv.OpConvertFToU && t.scalar().signed {
		return v.badResult(in, "what the conversion gives")
	}
	if a := v.arg(in, 0); !a.is(from) || a.lanes() != t.lanes() {
		return v.badOperand(in, 0, "what the conversion takes")
	}
	return nil
}

func convertWidth(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	of := kInt
	if in.Op == spirv.OpFConvert {
		of = kFloat
	}
	if !t.is(of) || in.Op == spirv.OpUConvert && t.scalar().signed {
		return v.badResult(in, "what the conversion gives")
	}
	if a := v.arg(in, 0); !a.is(of) || a.lanes() != t.lanes() || a.scalar().width == t.scalar().width {
		return v.badOperand(in, 0, "of the same kind as the result and of another width")
	}
	return nil
}

func quantize(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if !t.is(kFloat) || t.scalar().width != 32 {
		return v.badResult(in, "of 32-bit floats")
	}
	return v.same(in, t)
}

func bitcast(v *verifier, in *spirv.Inst, t *typ) *program.Refusal {
	if t.kind == kPointer {
		return v.refuse(CodePointer, in, "a pointer from bits")
	}
	if !t.is(kInt) && !t.is(kFloat) {
		return v.badResult(in, "of integers or floats")
	}
	a := v.arg(in, 0)
	if a.kind == kPointer {
		return v.refuse(CodePointer, in, "bits of a pointer")
	}
	if !a.is(kInt) && !a.is(kFloat) || a.bytes != t.bytes {
		return v.badOperand(in, 0, "as many bits as the result")
	}
	return nil
}
