package lanetest

import (
	"math"
	"math/big"
	"math/bits"

	"capgpu/program/spirv"
)

// signed reads n as a two's complement number of this many bits.
func signed(n, width uint64) int64 { return int64(n<<(64-width)) >> (64 - width) }

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// compute is an instruction with a result that depends only on its operands. bad is
// the component with a division by zero, or -1.
func (m *machine) compute(in *spirv.Inst, get func(spirv.ID) value) (v value, bad int) {
	t := m.typ(in.Type)
	arg := func(i int) value { return get(in.Arg(i)) }
	argType := func(i int) *typ { return m.typ(m.module.Def(in.Arg(i)).Type) }
	switch in.Op {
	case spirv.OpUndef:
		return zero(t), -1

	case spirv.OpCopyObject, spirv.OpCopyLogical:
		return arg(0), -1
	case spirv.OpCompositeConstruct:
		var parts []value
		for i := range in.Args {
			if t.op == spirv.OpTypeVector && argType(i).op == spirv.OpTypeVector {
				parts = append(parts, arg(i).parts...)
				continue
			}
			parts = append(parts, arg(i))
		}
		return value{parts: parts}, -1

	case spirv.OpCompositeExtract:
		v := arg(0)
		for _, i := range in.Args[1:] {
			v = v.parts[i]
		}
		return v, -1

	case spirv.OpCompositeInsert:
		return arg(1).with(in.Args[2:], arg(0)), -1
	case spirv.OpVectorShuffle:
		both := append(append([]value(nil), arg(0).parts...), arg(1).parts...)
		parts := make([]value, t.n)
		for k, i := range in.Args[2:] {
			if i == math.MaxUint32 {
				i = 0
			}
			parts[k] = both[i]
		}
		return value{parts: parts}, -1

	case spirv.OpVectorExtractDynamic:
		v, i := arg(0), arg(1).bits
		if i >= uint64(len(v.parts)) {
			i = 0
		}
		return v.parts[i], -1

	case spirv.OpVectorInsertDynamic:
		v, i := arg(0), arg(2).bits
		if i >= uint64(len(v.parts)) {
			return v, -1
		}
		return v.with([]uint32{uint32(i)}, arg(1)), -1

	case spirv.OpSelect:
		c, a, b := arg(0), arg(1), arg(2)
		if c.parts == nil {
			if c.bits != 0 {
				return a, -1
			}
			return b, -1
		}
		parts := make([]value, t.n)
		for i := range parts {
			if parts[i] = b.parts[i]; c.parts[i].bits != 0 {
				parts[i] = a.parts[i]
			}
		}
		return value{parts: parts}, -1

	case spirv.OpBitcast:
		return bitcast(argType(0), t, arg(0)), -1
	case spirv.OpAny, spirv.OpAll:
		n := uint64(0)
		for _, c := range arg(0).components() {
			n += c
		}
		return value{bits: truth(n == uint64(len(arg(0).parts)) || in.Op == spirv.OpAny && n > 0)}, -1

	case spirv.OpSDot, spirv.OpUDot, spirv.OpSUDot, spirv.OpSDotAccSat, spirv.OpUDotAccSat, spirv.OpSUDotAccSat:
		return value{bits: integerDot(in, t, argType, arg)}, -1

	case spirv.OpDot:
		if t.half() {
			a, b := recast(arg(0), 16, 32), recast(arg(1), 16, 32)
			return recast(value{bits: dot(a.components(), b.components(), 32)}, 32, 16), -1
		}
		return value{bits: dot(arg(0).components(), arg(1).components(), t.width)}, -1
	case spirv.OpVectorTimesScalar:
		out := arg(0).components()
		for i := range out {
			out[i] = arithmetic(spirv.OpFMul, t.elem.width, out[i], arg(1).bits)
		}
		return of(t, out), -1

	case spirv.OpIAddCarry, spirv.OpISubBorrow, spirv.OpUMulExtended, spirv.OpSMulExtended:
		low, high := arg(0).components(), arg(1).components()
		for i := range low {
			low[i], high[i] = extended(in.Op, low[i], high[i], t.members[0].scalar().width)
		}
		return value{parts: []value{of(t.members[0], low), of(t.members[1], high)}}, -1

	case spirv.OpBitFieldInsert:
		base, insert := arg(0).components(), arg(1).components()
		field := (mask(max(1, min(arg(3).bits, 32))) * truth(arg(3).bits > 0)) << arg(2).bits & mask(32)
		for i := range base {
			base[i] = base[i]&^field | insert[i]<<arg(2).bits&field
		}
		return of(t, base), -1

	case spirv.OpBitFieldSExtract, spirv.OpBitFieldUExtract:
		base, off, count := arg(0).components(), arg(1).bits, arg(2).bits
		for i := range base {
			field := base[i] >> off
			switch {
			case count == 0:
				field = 0
			case in.Op == spirv.OpBitFieldSExtract:
				field = uint64(signed(field, count)) & mask(32)
			default:
				field &= mask(count)
			}
			base[i] = field
		}
		return of(t, base), -1

	case spirv.OpUConvert, spirv.OpSConvert, spirv.OpFConvert, spirv.OpConvertFToS, spirv.OpConvertFToU, spirv.OpConvertSToF, spirv.OpConvertUToF:
		out, from, to := arg(0).components(), argType(0).scalar().width, t.scalar().width
		for i := range out {
			out[i] = convert(in.Op, out[i], from, to)
		}
		return of(t, out), -1
	}

	switch in.Op {
	case spirv.OpMatrixTimesScalar, spirv.OpVectorTimesMatrix, spirv.OpMatrixTimesVector, spirv.OpMatrixTimesMatrix, spirv.OpOuterProduct:
		return matrix(in.Op, t, arg(0), arg(1)), -1
	case spirv.OpTranspose:
		return matrix(in.Op, t, arg(0), value{}), -1
	}

	if in.Op == spirv.OpQuantizeToF16 {
		out := arg(0).components()
		for i := range out {
			out[i] = fromFloat(toFloat(fromFloat(toFloat(out[i], 32), 16), 16), 32)
		}
		return of(t, out), -1
	}

	// All others work on each component.
	width := argType(0).scalar().width
	args := make([][]uint64, len(in.Args))
	for i := range in.Args {
		args[i] = arg(i).components()
	}

	out := make([]uint64, len(args[0]))
	for i := range out {
		y := uint64(0)
		if len(args) > 1 {
			y = args[1][i]
		}
		switch in.Op {
		case spirv.OpUDiv, spirv.OpUMod, spirv.OpSDiv, spirv.OpSRem, spirv.OpSMod:
			if y == 0 {
				return value{}, i
			}
		}
		out[i] = arithmetic(in.Op, width, args[0][i], y) & mask(t.scalar().width)
	}

	return of(t, out), -1
}

// bitcast goes through bytes, the lowest first.
func bitcast(from, to *typ, v value) value {
	var data []byte
	for _, n := range v.components() {
		for k := range from.scalar().width / 8 {
			data = append(data, byte(n>>(8*k)))
		}
	}
	size := int(to.scalar().width / 8)
	out := make([]uint64, len(data)/size)
	for i := range data {
		out[i/size] |= uint64(data[i]) << (8 * (i % size))
	}
	return of(to, out)
}

// extended are the two results of an operation with twice the bits in its result.
func extended(op spirv.Opcode, a, b, w uint64) (low, high uint64) {
	x, y, z := new(big.Int), new(big.Int), new(big.Int)
	x.SetUint64(a)
	y.SetUint64(b)
	switch op {
	case spirv.OpIAddCarry:
		z.Add(x, y)
	case spirv.OpISubBorrow:
		return (a - b) & mask(w), truth(a < b)
	case spirv.OpSMulExtended:
		z.Mul(big.NewInt(signed(a, w)), big.NewInt(signed(b, w)))
	default:
		z.Mul(x, y)
	}

	all := new(big.Int).SetUint64(mask(w))
	low = new(big.Int).And(z, all).Uint64()
	high = new(big.Int).And(z.Rsh(z, uint(w)), all).Uint64()
	return low, high
}

func dot(a, b []uint64, w uint64) uint64 {
	sum := arithmetic(spirv.OpFMul, w, a[0], b[0])
	for i := 1; i < len(a); i++ {
		sum = arithmetic(spirv.OpFAdd, w, sum, arithmetic(spirv.OpFMul, w, a[i], b[i]))
	}
	return sum
}

// arithmetic is an operation on numbers of this width. The caller cuts results to
// their width.
func arithmetic(op spirv.Opcode, w, a, b uint64) uint64 {
	sa, sb := signed(a, w), signed(b, w)
	fa, fb := toFloat(a, w), toFloat(b, w)
	switch op {
	case spirv.OpSNegate:
		return -a & mask(w)

	case spirv.OpNot:
		return ^a & mask(w)
	case spirv.OpIAdd:
		return (a + b) & mask(w)

	case spirv.OpISub:
		return (a - b) & mask(w)
	case spirv.OpIMul:
		return a * b & mask(w)

	case spirv.OpUDiv:
		return a / b
	case spirv.OpUMod:
		return a % b

	case spirv.OpSDiv:
		return uint64(sa/sb) & mask(w)
	case spirv.OpSRem:
		return uint64(sa%sb) & mask(w)

	case spirv.OpSMod:
		r := sa % sb
		if r != 0 && r < 0 != (sb < 0) {
			r += sb
		}
		return uint64(r) & mask(w)

	case spirv.OpShiftLeftLogical:
		return a << (b % w) & mask(w)
	case spirv.OpShiftRightLogical:
		return a >> (b % w)

	case spirv.OpShiftRightArithmetic:
		return uint64(sa>>(b%w)) & mask(w)
	case spirv.OpBitwiseAnd, spirv.OpLogicalAnd:
		return a & b

	case spirv.OpBitwiseOr, spirv.OpLogicalOr:
		return a | b
	case spirv.OpBitwiseXor, spirv.OpLogicalNotEqual:
		return a ^ b

	case spirv.OpLogicalEqual, spirv.OpIEqual:
		return truth(a == b)
	case spirv.OpLogicalNot:
		return 1 - a

	case spirv.OpBitCount:
		return uint64(bits.OnesCount64(a))
	case spirv.OpBitReverse:
		return bits.Reverse64(a) >> (64 - w)

	case spirv.OpINotEqual:
		return truth(a != b)
	case spirv.OpULessThan:
		return truth(a < b)

	case spirv.OpULessThanEqual:
		return truth(a <= b)
	case spirv.OpUGreaterThan:
		return truth(a > b)

	case spirv.OpUGreaterThanEqual:
		return truth(a >= b)
	case spirv.OpSLessThan:
		return truth(sa < sb)

	case spirv.OpSLessThanEqual:
		return truth(sa <= sb)
	case spirv.OpSGreaterThan:
		return truth(sa > sb)

	case spirv.OpSGreaterThanEqual:
		return truth(sa >= sb)
	case spirv.OpFNegate:
		return a ^ 1<<(w-1)

	case spirv.OpFAdd:
		return fromFloat(fa+fb, w)
	case spirv.OpFSub:
		return fromFloat(fa-fb, w)

	case spirv.OpFMul:
		return fromFloat(fa*fb, w)
	case spirv.OpFDiv:
		return fromFloat(fa/fb, w)

	case spirv.OpFRem:
		return fromFloat(math.Mod(fa, fb), w)
	case spirv.OpFMod:
		r := math.Mod(fa, fb)
		if r == 0 {
			r = math.Copysign(0, fb)
		} else if math.Signbit(r) != math.Signbit(fb) {
			r += fb
		}
		return fromFloat(r, w)

	case spirv.OpIsNan:
		return truth(math.IsNaN(fa))
	case spirv.OpIsInf:
		return truth(math.IsInf(fa, 0))
	}

	return compare(op, fa, fb)
}
