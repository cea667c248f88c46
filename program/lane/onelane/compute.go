package onelane

import (
	"fmt"
	"math"
	"math/bits"

	"capgpu/outcome"
	"capgpu/program/spirv"
)

// compute is an instruction that depends on its operands only.
func (fr *frame) compute(in *spirv.Inst) value {
	g := fr.ln.g
	arg := func(k int) value { return fr.value(in.Arg(k)) }
	switch in.Op {
	case spirv.OpUndef:
		return g.fill(in.Type, 0)
	case spirv.OpCopyObject, spirv.OpCopyLogical:
		return arg(0)
	case spirv.OpCompositeConstruct:
		var v value
		vector := g.def(in.Type).Op == spirv.OpTypeVector
		for i := range in.Args {
			if p := arg(i); vector && p.parts != nil {
				v.parts = append(v.parts, p.parts...)
			} else {
				v.parts = append(v.parts, p)
			}
		}
		return v
	case spirv.OpCompositeExtract:
		v := arg(0)
		for _, k := range in.Args[1:] {
			v = v.parts[k]
		}
		return v
	case spirv.OpCompositeInsert:
		v := arg(1).copy()
		at := &v
		for _, k := range in.Args[2:] {
			at = &at.parts[k]
		}
		*at = arg(0)
		return v
	case spirv.OpVectorShuffle:
		all := append(append([]value{}, arg(0).parts...), arg(1).parts...)
		var v value
		for _, k := range in.Args[2:] {
			v.parts = append(v.parts, all[k])
		}
		return v
	case spirv.OpVectorExtractDynamic:
		return arg(0).parts[arg(1).bits]
	case spirv.OpVectorInsertDynamic:
		v := arg(0).copy()
		v.parts[arg(2).bits] = arg(1)
		return v
	case spirv.OpSelect:
		c, a, b := arg(0), arg(1), arg(2)
		if c.parts == nil {
			if c.bits != 0 {
				return a
			}
			return b
		}
		v := b.copy()
		for i := range c.parts {
			if c.parts[i].bits != 0 {
				v.parts[i] = a.parts[i]
			}
		}
		return v
	case spirv.OpAny, spirv.OpAll:
		n := 0
		for _, p := range arg(0).parts {
			n += int(p.bits)
		}
		return truth(in.Op == spirv.OpAny && n > 0 || n == len(arg(0).parts))
	case spirv.OpDot:
		a, b, w := arg(0).parts, arg(1).parts, g.width(in.Type)
		sum := float(spirv.OpFMul, a[0].bits, b[0].bits, w)
		for i := 1; i < len(a); i++ {
			sum = float(spirv.OpFAdd, sum, float(spirv.OpFMul, a[i].bits, b[i].bits, w), w)
		}
		return value{bits: sum}
	case spirv.OpVectorTimesScalar:
		v := arg(0).copy()
		for i := range v.parts {
			v.parts[i].bits = float(spirv.OpFMul, v.parts[i].bits, arg(1).bits, g.width(in.Type))
		}
		return v
	case spirv.OpUMulExtended, spirv.OpSMulExtended, spirv.OpIAddCarry, spirv.OpISubBorrow:
		return fr.pair(in, arg(0), arg(1))
	case spirv.OpExtInst:
		args := make([]value, len(in.Args)-2)
		for i := range args {
			args[i] = arg(i + 2)
		}
		return each(args, func(x []uint64) uint64 { return glsl(spirv.GLSL(in.Args[1]), x, g.width(in.Type)) })
	}
	from := in.Type
	if d := g.m.Def(in.Arg(0)); d != nil {
		from = d.Type
	}
	args := make([]value, len(in.Args))
	for i := range args {
		args[i] = arg(i)
	}
	return each(args, func(x []uint64) uint64 {
		return cut(fr.scalar(in.Op, x, g.width(from), g.width(in.Type), g.signed(from)), g.width(in.Type))
	})
}

func truth(b bool) value {
	if b {
		return value{bits: 1}
	}
	return value{}
}

// each applies f component by component.
func each(args []value, f func(x []uint64) uint64) value {
	x := make([]uint64, len(args))
	if args[0].parts == nil {
		for i, a := range args {
			x[i] = a.bits
		}
		return value{bits: f(x)}
	}
	v := value{parts: make([]value, len(args[0].parts))}
	for k := range v.parts {
		for i, a := range args {
			if a.parts == nil {
				x[i] = a.bits
			} else {
				x[i] = a.parts[k].bits
			}
		}
		v.parts[k].bits = f(x)
	}
	return v
}

func (fr *frame) pair(in *spirv.Inst, a, b value) value {
	w := fr.ln.g.width(fr.ln.g.def(in.Type).Arg(0))
	low := each([]value{a, b}, func(x []uint64) uint64 {
		switch in.Op {
		case spirv.OpIAddCarry:
			return cut(x[0]+x[1], w)
		case spirv.OpISubBorrow:
			return cut(x[0]-x[1], w)
		}
		return cut(x[0]*x[1], w)
	})
	high := each([]value{a, b}, func(x []uint64) uint64 {
		switch in.Op {
		case spirv.OpIAddCarry:
			if w == 64 {
				_, c := bits.Add64(x[0], x[1], 0)
				return c
			}
			return (x[0] + x[1]) >> w
		case spirv.OpISubBorrow:
			if x[0] < x[1] {
				return 1
			}
			return 0
		case spirv.OpUMulExtended:
			hi, lo := bits.Mul64(x[0], x[1])
			if w == 64 {
				return hi
			}
			return lo >> w
		}
		return cut(uint64(int64(extend(x[0], w))*int64(extend(x[1], w))>>w), w) // 32 bits
	})
	return value{parts: []value{low, high}}
}

// scalar is one instruction on scalars of from bits with a result of to bits.
func (fr *frame) scalar(op spirv.Opcode, x []uint64, from, to int, _ bool) uint64 {
	a := x[0]
	b := uint64(0)
	if len(x) > 1 {
		b = x[1]
	}
	sa, sb := int64(extend(a, from)), int64(extend(b, from))
	is := func(v bool) uint64 { return truth(v).bits }
	switch op {
	case spirv.OpSNegate:
		return -a
	case spirv.OpNot:
		return ^a
	case spirv.OpLogicalNot:
		return a ^ 1
	case spirv.OpBitCount:
		return uint64(bits.OnesCount64(a))
	case spirv.OpBitReverse:
		return bits.Reverse64(a) >> (64 - from)
	case spirv.OpIAdd:
		return a + b
	case spirv.OpISub:
		return a - b
	case spirv.OpIMul:
		return a * b
	case spirv.OpUDiv, spirv.OpUMod, spirv.OpSDiv, spirv.OpSRem, spirv.OpSMod:
		if b == 0 {
			fr.ln.trap(outcome.DivideByZero, -1, 0)
		}
		return divide(op, a, b, sa, sb)
	case spirv.OpShiftLeftLogical:
		return a << (b % uint64(from))
	case spirv.OpShiftRightLogical:
		return a >> (b % uint64(from))
	case spirv.OpShiftRightArithmetic:
		return uint64(sa >> (b % uint64(from)))
	case spirv.OpBitwiseAnd, spirv.OpLogicalAnd:
		return a & b
	case spirv.OpBitwiseOr, spirv.OpLogicalOr:
		return a | b
	case spirv.OpBitwiseXor, spirv.OpLogicalNotEqual:
		return a ^ b
	case spirv.OpLogicalEqual, spirv.OpIEqual:
		return is(a == b)
	case spirv.OpINotEqual:
		return is(a != b)
	case spirv.OpUGreaterThan:
		return is(a > b)
	case spirv.OpUGreaterThanEqual:
		return is(a >= b)
	case spirv.OpULessThan:
		return is(a < b)
	case spirv.OpULessThanEqual:
		return is(a <= b)
	case spirv.OpSGreaterThan:
		return is(sa > sb)
	case spirv.OpSGreaterThanEqual:
		return is(sa >= sb)
	case spirv.OpSLessThan:
		return is(sa < sb)
	case spirv.OpSLessThanEqual:
		return is(sa <= sb)
	case spirv.OpBitFieldUExtract, spirv.OpBitFieldSExtract:
		off, n := uint(b), uint(x[2])
		if n == 0 {
			return 0
		}
		v := a >> off & (1<<n - 1)
		if op == spirv.OpBitFieldSExtract {
			return extend(v, int(n))
		}
		return v
	case spirv.OpBitFieldInsert:
		mask := uint64(1<<x[3]-1) << x[2]
		return a&^mask | b<<x[2]&mask
	case spirv.OpUConvert:
		return a
	case spirv.OpSConvert:
		return extend(a, from)
	case spirv.OpBitcast:
		return a
	case spirv.OpConvertSToF:
		if to == 64 {
			return math.Float64bits(float64(sa))
		}
		return uint64(math.Float32bits(float32(sa)))
	case spirv.OpConvertUToF:
		if to == 64 {
			return math.Float64bits(float64(a))
		}
		return uint64(math.Float32bits(float32(a)))
	case spirv.OpConvertFToS, spirv.OpConvertFToU:
		return toInt(number(a, from), op == spirv.OpConvertFToS, to)
	case spirv.OpFConvert:
		if from == to {
			return a
		}
		return pack(number(a, from), to)
	}
	return floatScalar(op, a, b, from)
}

func divide(op spirv.Opcode, a, b uint64, sa, sb int64) uint64 {
	switch op {
	case spirv.OpUDiv:
		return a / b
	case spirv.OpUMod:
		return a % b
	case spirv.OpSDiv:
		return uint64(sa / sb)
	case spirv.OpSRem:
		return uint64(sa % sb)
	}
	r := sa % sb
	if r != 0 && (r < 0) != (sb < 0) {
		r += sb
	}
	return uint64(r)
}

// number is a float of width bits.
func number(x uint64, width int) float64 {
	switch width {
	case 16:
		sign, e, f := 1.0, int(x>>10&31), float64(x&0x3FF)
		if x>>15 != 0 {
			sign = -1
		}
		switch e {
		case 0:
			return math.Copysign(math.Ldexp(f, -24), sign)
		case 31:
			if f != 0 {
				return math.NaN()
			}
			return math.Inf(int(sign))
		}
		return sign * math.Ldexp(1024+f, e-25)
	case 32:
		return float64(math.Float32frombits(uint32(x)))
	}
	return math.Float64frombits(x)
}

// pack rounds to nearest even.
func pack(x float64, width int) uint64 {
	switch width {
	case 32:
		return uint64(math.Float32bits(float32(x)))
	case 64:
		return math.Float64bits(x)
	}
	sign := uint64(0)
	if math.Signbit(x) {
		sign = 1 << 15
	}
	x = math.Abs(x)
	switch {
	case x != x:
		return sign | 0x7E00
	case x >= 65520:
		return sign | 0x7C00
	case x < math.Ldexp(1, -14):
		return sign | uint64(math.RoundToEven(math.Ldexp(x, 24)))
	}
	f, e := math.Frexp(x)
	m := uint64(math.RoundToEven(math.Ldexp(f, 11)))
	return sign | (uint64(e+14)<<10 + m - 1024)
}

func toInt(x float64, signed bool, width int) uint64 {
	if x != x {
		return 0
	}
	x = math.Trunc(x)
	if signed {
		top := math.Ldexp(1, width-1)
		switch {
		case x >= top:
			return 1<<(width-1) - 1
		case x < -top:
			return 1 << (width - 1)
		}
		return uint64(int64(x))
	}
	switch {
	case x >= math.Ldexp(1, width):
		return cut(1<<64-1, width)
	case x < 0:
		return 0
	}
	return uint64(x)
}

func floatScalar(op spirv.Opcode, a, b uint64, w int) uint64 {
	x, y := number(a, w), number(b, w)
	is := func(v bool) uint64 { return truth(v).bits }
	nan := x != x || y != y
	switch op {
	case spirv.OpFNegate:
		return a ^ 1<<(w-1)
	case spirv.OpFAdd, spirv.OpFSub, spirv.OpFMul, spirv.OpFDiv, spirv.OpFRem, spirv.OpFMod:
		return float(op, a, b, w)
	case spirv.OpIsNan:
		return is(x != x)
	case spirv.OpIsInf:
		return is(math.IsInf(x, 0))
	case spirv.OpFOrdEqual:
		return is(x == y)
	case spirv.OpFUnordEqual:
		return is(nan || x == y)
	case spirv.OpFOrdNotEqual:
		return is(!nan && x != y)
	case spirv.OpFUnordNotEqual:
		return is(x != y)
	case spirv.OpFOrdLessThan:
		return is(x < y)
	case spirv.OpFUnordLessThan:
		return is(nan || x < y)
	case spirv.OpFOrdGreaterThan:
		return is(x > y)
	case spirv.OpFUnordGreaterThan:
		return is(nan || x > y)
	case spirv.OpFOrdLessThanEqual:
		return is(x <= y)
	case spirv.OpFUnordLessThanEqual:
		return is(nan || x <= y)
	case spirv.OpFOrdGreaterThanEqual:
		return is(x >= y)
	case spirv.OpFUnordGreaterThanEqual:
		return is(nan || x >= y)
	}
	panic(fmt.Errorf("the model does not know %v", op))
}

// float is arithmetic on two floats; in float64 and rounded is right for 32 bits.
func float(op spirv.Opcode, a, b uint64, w int) uint64 {
	x, y := number(a, w), number(b, w)
	var r float64
	switch op {
	case spirv.OpFAdd:
		r = x + y
	case spirv.OpFSub:
		r = x - y
	case spirv.OpFMul:
		r = x * y
	case spirv.OpFDiv:
		r = x / y
	case spirv.OpFRem:
		r = math.Mod(x, y)
	case spirv.OpFMod:
		r = math.Mod(x, y)
		if r != 0 && (r < 0) != (y < 0) {
			r += y
		} else if r == 0 {
			r = math.Copysign(0, y)
		}
	}
	return pack(r, w)
}

func glsl(g spirv.GLSL, x []uint64, w int) uint64 {
	f := func(k int) float64 { return number(x[k], w) }
	s := func(k int) int64 { return int64(extend(x[k], w)) }
	less := func(a, b uint64) bool { return number(a, w) < number(b, w) }
	fmin := func(a, b uint64) uint64 {
		if less(b, a) {
			return b
		}
		return a
	}
	fmax := func(a, b uint64) uint64 {
		if less(a, b) {
			return b
		}
		return a
	}
	switch g {
	case spirv.GLSLFAbs:
		return x[0] &^ (1 << (w - 1))
	case spirv.GLSLSAbs:
		return cut(uint64(max(s(0), -s(0))), w)
	case spirv.GLSLFloor:
		return pack(math.Floor(f(0)), w)
	case spirv.GLSLCeil:
		return pack(math.Ceil(f(0)), w)
	case spirv.GLSLTrunc:
		return pack(math.Trunc(f(0)), w)
	case spirv.GLSLSqrt:
		return pack(math.Sqrt(f(0)), w)
	case spirv.GLSLFMin:
		return fmin(x[0], x[1])
	case spirv.GLSLFMax:
		return fmax(x[0], x[1])
	case spirv.GLSLFClamp:
		return fmin(fmax(x[0], x[1]), x[2])
	case spirv.GLSLUMin:
		return min(x[0], x[1])
	case spirv.GLSLUMax:
		return max(x[0], x[1])
	case spirv.GLSLSMin:
		return cut(uint64(min(s(0), s(1))), w)
	case spirv.GLSLSMax:
		return cut(uint64(max(s(0), s(1))), w)
	case spirv.GLSLExp:
		return pack(math.Exp(f(0)), w)
	case spirv.GLSLLog:
		return pack(math.Log(f(0)), w)
	case spirv.GLSLSin:
		return pack(math.Sin(f(0)), w)
	case spirv.GLSLCos:
		return pack(math.Cos(f(0)), w)
	case spirv.GLSLPow:
		return pack(math.Pow(f(0), f(1)), w)
	case spirv.GLSLFma:
		if w == 64 {
			return pack(math.FMA(f(0), f(1), f(2)), w)
		}
	}
	panic(fmt.Errorf("the model does not know %v", g))
}
