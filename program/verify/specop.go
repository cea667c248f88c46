package verify

import (
	"math/bits"

	"capgpu/program"
	"capgpu/program/spirv"
)

// specOps are the operations of OpSpecConstantOp: those of the profile that compute
// on integers and bools, that convert floats to floats, or that put together and take
// apart. No integer can be computed from a float, so that only engines need the
// values of floats.
var specOps = map[spirv.Opcode]bool{
	spirv.OpSConvert: true, spirv.OpUConvert: true, spirv.OpFConvert: true, spirv.OpQuantizeToF16: true, spirv.OpSNegate: true, spirv.OpNot: true,
	spirv.OpIAdd: true, spirv.OpISub: true, spirv.OpIMul: true,
	spirv.OpUDiv: true, spirv.OpSDiv: true, spirv.OpUMod: true, spirv.OpSRem: true, spirv.OpSMod: true,
	spirv.OpShiftRightLogical: true, spirv.OpShiftRightArithmetic: true, spirv.OpShiftLeftLogical: true,
	spirv.OpBitwiseOr: true, spirv.OpBitwiseXor: true, spirv.OpBitwiseAnd: true,
	spirv.OpLogicalOr: true, spirv.OpLogicalAnd: true, spirv.OpLogicalNot: true,
	spirv.OpLogicalEqual: true, spirv.OpLogicalNotEqual: true, spirv.OpSelect: true,
	spirv.OpIEqual: true, spirv.OpINotEqual: true,
	spirv.OpULessThan: true, spirv.OpSLessThan: true, spirv.OpUGreaterThan: true, spirv.OpSGreaterThan: true,
	spirv.OpULessThanEqual: true, spirv.OpSLessThanEqual: true, spirv.OpUGreaterThanEqual: true, spirv.OpSGreaterThanEqual: true,
	spirv.OpCompositeExtract: true, spirv.OpCompositeInsert: true, spirv.OpVectorShuffle: true,
}

// specOp checks an OpSpecConstantOp like the instruction that it names, and
// computes it.
func (v *verifier) specOp(in *spirv.Inst, t *typ, c *constant) *program.Refusal {
	op := spirv.Opcode(in.Arg(0))
	if !specOps[op] || in.Args[0] > 0xFFFF {
		return v.refuse(CodeSpecOp, in, "the operation %v is outside the profile", op)
	}
	if t.lanes() == 0 {
		return v.refuse(CodeSpecOp, in, "a result that is no scalar or vector")
	}

	as := *in
	as.Op, as.Args = op, in.Args[1:]
	operands := len(as.Args)
	switch op {
	case spirv.OpCompositeExtract:
		operands = 1
	case spirv.OpCompositeInsert, spirv.OpVectorShuffle:
		operands = 2
	}

	for i := range min(operands, len(as.Args)) {
		p := v.info(as.Arg(i))
		if p.what != isConstant {
			return v.refuse(CodeConstant, in, "operand %%%d is no constant", as.Arg(i))
		}
		c.deps |= v.consts[p.num].deps
	}

	if r := v.typed(&as, t); r != nil {
		r.Op = in.Op.String()
		return r
	}

	if t.scalar().kind == kFloat {
		c.form = laterForm
		return nil
	}

	if t.lanes() == 1 {
		value, ok := v.specPart(&as, t, 0)
		if c.form, c.bits = scalarForm, value; !ok {
			return v.refuse(CodeSpecOp, in, "%v has no value: a division by zero, or a part of something that is not known", op)
		}
		return nil
	}

	c.form, c.parts = vectorForm, make([]uint64, t.n)
	for i := range c.parts {
		value, ok := v.specPart(&as, t, uint32(i))
		if c.parts[i] = value; !ok {
			return v.refuse(CodeSpecOp, in, "%v has no value: a division by zero, or a part of something that is not known", op)
		}
	}

	return nil
}

// specPart is component i of the operation's result. The operands' types have
// been checked.
func (v *verifier) specPart(in *spirv.Inst, t *typ, i uint32) (uint64, bool) {
	a := v.constant(in.Arg(0))
	switch in.Op {
	case spirv.OpCompositeExtract:
		for j := 1; j < len(in.Args); j++ {
			if a.typ.kind == kVector {
				value, _ := v.part(a, in.Args[j])
				return value, true
			}
			if a.form == nullForm {
				return 0, true
			}
			if a = v.constant(a.in.Arg(int(in.Args[j]))); a == nil {
				return 0, true // of an OpUndef
			}
		}
		value, _ := v.part(a, i)
		return value, true

	case spirv.OpCompositeInsert:
		if len(in.Args) != 3 {
			return 0, false
		}
		if in.Args[2] == i {
			value, _ := v.part(a, 0)
			return value, true
		}
		value, _ := v.part(v.constant(in.Arg(1)), i)
		return value, true

	case spirv.OpVectorShuffle:
		b := v.constant(in.Arg(1))
		k := in.Args[2+i]
		if k >= a.typ.n {
			if k-a.typ.n >= b.typ.n {
				return 0, true // not defined
			}
			value, _ := v.part(b, k-a.typ.n)
			return value, true
		}
		value, _ := v.part(a, k)
		return value, true
	}

	var x [3]uint64
	for j := range min(len(x), len(in.Args)) {
		x[j], _ = v.part(v.constant(in.Arg(j)), i)
	}

	if in.Op == spirv.OpSelect && v.constant(in.Arg(0)).typ.lanes() == 1 {
		x[0], _ = v.part(a, 0)
	}

	value, ok := compute(in.Op, a.typ.scalar().width, x)
	return value & t.scalar().mask(), ok
}

// compute is an integer or logical operation on operands of width bits. Shifts
// are by the amount modulo the width, as docs/program-profile.md says.
func compute(op spirv.Opcode, width uint8, x [3]uint64) (uint64, bool) {
	width = max(width, 1)
	signed := func(n uint64) int64 { return int64(n<<(64-width)) >> (64 - width) }
	truth := func(b bool) (uint64, bool) {
		if b {
			return 1, true
		}
		return 0, true
	}

	a, b := x[0], x[1]
	sa, sb := signed(a), signed(b)
	shift := b & (uint64(1)<<(bits.Len8(width)-1) - 1)
	switch op {
	case spirv.OpSConvert:
		return uint64(sa), true

	case spirv.OpUConvert:
		return a, true
	case spirv.OpSNegate:
		return -a, true

	case spirv.OpNot:
		return ^a, true
	case spirv.OpIAdd:
		return a + b, true

	case spirv.OpISub:
		return a - b, true
	case spirv.OpIMul:
		return a * b, true

	case spirv.OpUDiv, spirv.OpUMod, spirv.OpSDiv, spirv.OpSRem, spirv.OpSMod:
		return divide(op, a, b, sa, sb)
	case spirv.OpShiftRightLogical:
		return a >> shift, true

	case spirv.OpShiftRightArithmetic:
		return uint64(sa >> shift), true
	case spirv.OpShiftLeftLogical:
		return a << shift, true

	case spirv.OpBitwiseOr, spirv.OpLogicalOr:
		return a | b, true
	case spirv.OpBitwiseXor, spirv.OpLogicalNotEqual:
		return a ^ b, true

	case spirv.OpBitwiseAnd, spirv.OpLogicalAnd:
		return a & b, true
	case spirv.OpLogicalNot:
		return a ^ 1, true

	case spirv.OpLogicalEqual, spirv.OpIEqual:
		return truth(a == b)
	case spirv.OpINotEqual:
		return truth(a != b)

	case spirv.OpSelect:
		if a != 0 {
			return b, true
		}
		return x[2], true

	case spirv.OpULessThan:
		return truth(a < b)
	case spirv.OpUGreaterThan:
		return truth(a > b)

	case spirv.OpULessThanEqual:
		return truth(a <= b)
	case spirv.OpUGreaterThanEqual:
		return truth(a >= b)

	case spirv.OpSLessThan:
		return truth(sa < sb)
	case spirv.OpSGreaterThan:
		return truth(sa > sb)

	case spirv.OpSLessThanEqual:
		return truth(sa <= sb)
	case spirv.OpSGreaterThanEqual:
		return truth(sa >= sb)
	}

	return 0, false
}

func divide(op spirv.Opcode, a, b uint64, sa, sb int64) (uint64, bool) {
	if b == 0 {
		return 0, false
	}

	switch op {
	case spirv.OpUDiv:
		return a / b, true
	case spirv.OpUMod:
		return a % b, true
	case spirv.OpSDiv:
		return uint64(sa / sb), true
	case spirv.OpSRem:
		return uint64(sa % sb), true
	}

	m := sa % sb
	if m != 0 && (m < 0) != (sb < 0) {
		m += sb
	}

	return uint64(m), true
}
