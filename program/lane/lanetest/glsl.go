package lanetest

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"

	"capgpu/program/spirv"
)

// glsl is an instruction of GLSL.std.450 on values. The second result of Modf and
// Frexp is second.
func glsl(g spirv.GLSL, t *typ, args []value) (result, second value) {
	if g == spirv.GLSLDeterminant || g == spirv.GLSLMatrixInverse {
		return square(g, t, args[0]), second
	}

	a := args[0].components()
	var b, c []uint64
	if len(args) > 1 {
		b = args[1].components()
	}
	if len(args) > 2 {
		c = args[2].components()
	}

	if g != spirv.GLSLModf && g != spirv.GLSLFrexp && t.op != spirv.OpTypeStruct && t.scalar().half() {
		return inSingles(g, t, args), second
	}

	w := t.scalar().width
	scale := func(v []uint64, s uint64) []uint64 {
		return each(v, func(i int) uint64 { return arithmetic(spirv.OpFMul, w, v[i], s) })
	}

	sub := func(v, u []uint64) []uint64 {
		return each(v, func(i int) uint64 { return arithmetic(spirv.OpFSub, w, v[i], u[i]) })
	}

	op := func(o spirv.Opcode, x, y uint64) uint64 { return arithmetic(o, w, x, y) }
	number := func(x float64) uint64 { return fromFloat(x, w) }
	switch g {
	case spirv.GLSLLength:
		return value{bits: length(a, w)}, second

	case spirv.GLSLDistance:
		return value{bits: length(sub(a, b), w)}, second
	case spirv.GLSLNormalize:
		n := length(a, w)
		return of(t, each(a, func(i int) uint64 { return op(spirv.OpFDiv, a[i], n) })), second

	case spirv.GLSLCross:
		return of(t, each(a, func(i int) uint64 {
			j, k := (i+1)%3, (i+2)%3
			return op(spirv.OpFSub, op(spirv.OpFMul, a[j], b[k]), op(spirv.OpFMul, a[k], b[j]))
		})), second

	case spirv.GLSLFaceForward:
		if toFloat(dot(c, b, w), w) < 0 {
			return args[0], second
		}
		return of(t, each(a, func(i int) uint64 { return op(spirv.OpFNegate, a[i], 0) })), second

	case spirv.GLSLReflect:
		return of(t, sub(a, scale(b, op(spirv.OpFMul, number(2), dot(b, a, w))))), second
	case spirv.GLSLRefract:
		eta, d := c[0], dot(b, a, w)
		if len(args[2].parts) == 0 && w == 64 {
			panic(fmt.Errorf("a refraction of doubles"))
		}
		k := op(spirv.OpFSub, number(1), op(spirv.OpFMul, op(spirv.OpFMul, eta, eta), op(spirv.OpFSub, number(1), op(spirv.OpFMul, d, d))))
		if toFloat(k, w) < 0 {
			return zero(t), second
		}
		f := op(spirv.OpFAdd, op(spirv.OpFMul, eta, d), number(math.Sqrt(toFloat(k, w))))
		return of(t, sub(scale(a, eta), scale(b, f))), second

	case spirv.GLSLPackHalf2x16, spirv.GLSLPackSnorm2x16, spirv.GLSLPackUnorm2x16, spirv.GLSLPackSnorm4x8, spirv.GLSLPackUnorm4x8:
		return value{bits: pack(g, a)}, second
	case spirv.GLSLPackDouble2x32:
		return value{bits: a[0] | a[1]<<32}, second
	case spirv.GLSLUnpackDouble2x32:
		return of(t, []uint64{a[0] & mask(32), a[0] >> 32}), second
	case spirv.GLSLUnpackHalf2x16, spirv.GLSLUnpackSnorm2x16, spirv.GLSLUnpackUnorm2x16, spirv.GLSLUnpackSnorm4x8, spirv.GLSLUnpackUnorm4x8:
		return of(t, unpack(g, a[0])), second

	case spirv.GLSLModf, spirv.GLSLModfStruct:
		frac, whole := make([]uint64, len(a)), make([]uint64, len(a))
		w = t.scalarOfPair().width
		for i := range a {
			x := toFloat(a[i], w)
			n := math.Trunc(x)
			f := math.Copysign(x-n, x)
			if math.IsInf(x, 0) {
				f = math.Copysign(0, x)
			}
			frac[i], whole[i] = fromFloat(f, w), fromFloat(n, w)
		}
		return t.pair(frac, whole)

	case spirv.GLSLFrexp, spirv.GLSLFrexpStruct:
		part, exponent := make([]uint64, len(a)), make([]uint64, len(a))
		w = t.scalarOfPair().width
		for i := range a {
			f, e := math.Frexp(toFloat(a[i], w))
			part[i], exponent[i] = fromFloat(f, w), uint64(e)&mask(32)
		}
		return t.pair(part, exponent)
	}

	return of(t, each(a, func(i int) uint64 {
		x := [3]uint64{a[i]}
		if b != nil {
			x[1] = b[i]
		}
		if c != nil {
			x[2] = c[i]
		}
		if t.scalar().op == spirv.OpTypeInt {
			return glslInt(g, w, x) & mask(w)
		}
		return glslFloat(g, w, x)
	})), second
}

func each(v []uint64, f func(i int) uint64) []uint64 {
	out := make([]uint64, len(v))
	for i := range v {
		out[i] = f(i)
	}
	return out
}

// scalarOfPair and pair are the result types of Modf and Frexp: two values, or a
// struct of both.
func (t *typ) scalarOfPair() *typ {
	if t.op == spirv.OpTypeStruct {
		return t.members[0].scalar()
	}
	return t.scalar()
}

func (t *typ) pair(a, b []uint64) (first, second value) {
	if t.op == spirv.OpTypeStruct {
		return value{parts: []value{of(t.members[0], a), of(t.members[0], b)}}, value{}
	}
	return of(t, a), of(t, b)
}

func length(v []uint64, w uint64) uint64 {
	if len(v) == 1 {
		return v[0] &^ (1 << (w - 1))
	}
	return fromFloat(math.Sqrt(toFloat(dot(v, v, w), w)), w)
}

func glslInt(g spirv.GLSL, w uint64, x [3]uint64) uint64 {
	a, b := signed(x[0], w), signed(x[1], w)
	switch g {
	case spirv.GLSLSAbs:
		if a < 0 {
			return uint64(-a)
		}
		return uint64(a)

	case spirv.GLSLSSign:
		switch {
		case a > 0:
			return 1
		case a < 0:
			return math.MaxUint64
		}
		return 0

	case spirv.GLSLFindILsb:
		if x[0] == 0 {
			return math.MaxUint64
		}
		return uint64(bits.TrailingZeros64(x[0]))

	case spirv.GLSLFindUMsb:
		return uint64(bits.Len64(x[0]) - 1)
	case spirv.GLSLFindSMsb:
		if a < 0 {
			a = ^a
		}
		return uint64(bits.Len64(uint64(a)) - 1)

	case spirv.GLSLUMin:
		return min(x[0], x[1])
	case spirv.GLSLUMax:
		return max(x[0], x[1])

	case spirv.GLSLSMin:
		return uint64(min(a, b))
	case spirv.GLSLSMax:
		return uint64(max(a, b))

	case spirv.GLSLUClamp:
		return min(max(x[0], x[1]), x[2])
	case spirv.GLSLSClamp:
		return uint64(min(max(a, b), signed(x[2], w)))
	}

	panic(fmt.Errorf("GLSL.std.450 %v of integers", g))
}

// fmin and fmax are those of the profile: the first unless the second is less, or
// more. nmin and nmax prefer numbers to NaNs.
func fmin(x, y float64) float64 {
	if y < x {
		return y
	}
	return x
}

func fmax(x, y float64) float64 {
	if x < y {
		return y
	}
	return x
}

func nmin(x, y float64) float64 {
	if math.IsNaN(x) {
		return y
	}
	return fmin(x, y)
}

func nmax(x, y float64) float64 {
	if math.IsNaN(x) {
		return y
	}
	return fmax(x, y)
}

var functions = map[spirv.GLSL]func(float64) float64{
	spirv.GLSLRound: math.RoundToEven, spirv.GLSLRoundEven: math.RoundToEven, spirv.GLSLTrunc: math.Trunc,
	spirv.GLSLFAbs: math.Abs, spirv.GLSLFloor: math.Floor, spirv.GLSLCeil: math.Ceil,
	spirv.GLSLSqrt: math.Sqrt, spirv.GLSLInverseSqrt: func(x float64) float64 { return 1 / math.Sqrt(x) },
	spirv.GLSLSin: math.Sin, spirv.GLSLCos: math.Cos, spirv.GLSLTan: math.Tan,
	spirv.GLSLAsin: math.Asin, spirv.GLSLAcos: math.Acos, spirv.GLSLAtan: math.Atan,
	spirv.GLSLSinh: math.Sinh, spirv.GLSLCosh: math.Cosh, spirv.GLSLTanh: math.Tanh,
	spirv.GLSLAsinh: math.Asinh, spirv.GLSLAcosh: math.Acosh, spirv.GLSLAtanh: math.Atanh,
	spirv.GLSLExp: math.Exp, spirv.GLSLLog: math.Log, spirv.GLSLExp2: math.Exp2, spirv.GLSLLog2: math.Log2,
	spirv.GLSLRadians: func(x float64) float64 { return x * float64(float32(math.Pi/180)) },
	spirv.GLSLDegrees: func(x float64) float64 { return x * float64(float32(180/math.Pi)) },
}

func glslFloat(g spirv.GLSL, w uint64, n [3]uint64) uint64 {
	if f := functions[g]; f != nil {
		return fromFloat(f(toFloat(n[0], w)), w)
	}

	x, y, z := toFloat(n[0], w), toFloat(n[1], w), toFloat(n[2], w)
	round := func(x float64) float64 { return toFloat(fromFloat(x, w), w) }
	r := 0.0
	switch g {
	case spirv.GLSLFSign:
		switch {
		case x > 0:
			r = 1
		case x < 0:
			r = -1
		}

	case spirv.GLSLFract:
		r = x - math.Floor(x)
	case spirv.GLSLAtan2:
		r = math.Atan2(x, y)

	case spirv.GLSLPow:
		r = math.Pow(x, y)
	case spirv.GLSLLdexp:
		r = math.Ldexp(x, int(int32(n[1])))

	case spirv.GLSLFMin:
		r = fmin(x, y)
	case spirv.GLSLFMax:
		r = fmax(x, y)

	case spirv.GLSLNMin:
		r = nmin(x, y)
	case spirv.GLSLNMax:
		r = nmax(x, y)

	case spirv.GLSLFClamp:
		r = fmin(fmax(x, y), z)
	case spirv.GLSLNClamp:
		r = nmin(nmax(x, y), z)

	case spirv.GLSLStep:
		if r = 1; y < x {
			r = 0
		}

	case spirv.GLSLFMix:
		r = round(x*round(1-z)) + round(y*z)
	case spirv.GLSLSmoothStep:
		t := fmin(fmax(round(round(z-x)/round(y-x)), 0), 1)
		r = round(t*t) * round(3-round(2*t))

	case spirv.GLSLFma:
		return fma(x, y, z, w)
	default:
		panic(fmt.Errorf("GLSL.std.450 %v of floats", g))
	}

	return fromFloat(r, w)
}

// fma is x*y+z, rounded once.
func fma(x, y, z float64, w uint64) uint64 {
	s := x*y + z
	if w == 64 {
		return math.Float64bits(math.FMA(x, y, z))
	}
	// The product of two 32-bit floats is exact here. So are an infinite sum, NaN
	// and zero: no sum of such a product and a 32-bit float is too small to be
	// represented.
	if math.IsNaN(s) || math.IsInf(s, 0) || s == 0 {
		return fromFloat(s, w)
	}
	p := new(big.Float).SetPrec(1000).SetFloat64(x)
	p.Mul(p, big.NewFloat(y))
	f, _ := p.Add(p, big.NewFloat(z)).Float32()
	return uint64(math.Float32bits(f))
}

// pack converts floats that are clamped and scaled; unpack is its inverse.
func pack(g spirv.GLSL, a []uint64) uint64 {
	low, scale, width := 0.0, 0.0, 16
	switch g {
	case spirv.GLSLPackSnorm2x16:
		low, scale = -1, 32767
	case spirv.GLSLPackUnorm2x16:
		scale = 65535
	case spirv.GLSLPackSnorm4x8:
		low, scale, width = -1, 127, 8
	case spirv.GLSLPackUnorm4x8:
		scale, width = 255, 8
	}

	word := uint64(0)
	for i := range a {
		x := toFloat(a[i], 32)
		n := toHalf(x)
		if scale != 0 {
			v := fmin(fmax(x, low), 1) * scale
			v = math.RoundToEven(toFloat(fromFloat(v, 32), 32))
			n = toInt(v, 32, true) & mask(uint64(width))
		}
		word |= n << (i * width)
	}

	return word
}

func unpack(g spirv.GLSL, word uint64) []uint64 {
	width, scale, isSigned := uint64(16), 0.0, false
	switch g {
	case spirv.GLSLUnpackSnorm2x16:
		scale, isSigned = 32767, true
	case spirv.GLSLUnpackUnorm2x16:
		scale = 65535
	case spirv.GLSLUnpackSnorm4x8:
		width, scale, isSigned = 8, 127, true
	case spirv.GLSLUnpackUnorm4x8:
		width, scale = 8, 255
	}

	out := make([]uint64, 32/width)
	for i := range out {
		n := word >> (uint64(i) * width) & mask(width)
		x := float64(n) / scale
		switch {
		case scale == 0:
			x = half(n)
		case isSigned:
			x = math.Max(float64(signed(n, width))/scale, -1)
		}
		out[i] = fromFloat(x, 32)
	}

	return out
}
