package vec

import (
	"math"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
)

// The models define an instruction on one lane, as the specification does. They use
// wider numbers and plain branches.

type model2 struct {
	f     func(x, y uint32) uint32
	exact bool // the bits of a NaN are those of an operand
}

func fl(x uint32) float64 { return float64(math.Float32frombits(x)) }
func fb(x float64) uint32 { return math.Float32bits(float32(x)) }

func boolean(b bool) uint32 {
	if b {
		return math.MaxUint32
	}
	return 0
}

// ints makes a model of integers of 64 bits, cut to 32.
func ints(signed bool, f func(x, y int64) int64) model2 {
	of := func(v uint32) int64 {
		if signed {
			return int64(int32(v))
		}
		return int64(v)
	}
	return model2{func(x, y uint32) uint32 { return uint32(f(of(x), of(y))) }, true}
}

// division is 0 for a divisor of 0.
func division(f func(x, y int64) int64) func(x, y int64) int64 {
	return func(x, y int64) int64 {
		if y == 0 {
			return 0
		}
		return f(x, y)
	}
}

func quotient(x, y int64) int64  { return x / y }
func remainder(x, y int64) int64 { return x % y }

// floats is an operation that float64 does exactly, or so near that the rounding
// to f32 is right (53 >= 2*24+2 for +, -, * and /).
func floats(f func(x, y float64) float64) model2 {
	return model2{func(x, y uint32) uint32 { return fb(f(fl(x), fl(y))) }, false}
}

func cmpF(f func(x, y float64) bool) model2 {
	return model2{func(x, y uint32) uint32 { return boolean(f(fl(x), fl(y))) }, true}
}

func cmpU(f func(x, y uint32) bool) model2 {
	return model2{func(x, y uint32) uint32 { return boolean(f(x, y)) }, true}
}

func cmpS(f func(x, y int32) bool) model2 {
	return model2{func(x, y uint32) uint32 { return boolean(f(int32(x), int32(y))) }, true}
}

func isnan(x, y float64) bool { return math.IsNaN(x) || math.IsNaN(y) }

var models2 = map[spirv.Opcode]model2{
	spirv.OpIAdd: ints(false, func(x, y int64) int64 { return x + y }),
	spirv.OpISub: ints(true, func(x, y int64) int64 { return x - y }),
	spirv.OpIMul: ints(true, func(x, y int64) int64 { return x * y }),
	spirv.OpUDiv: ints(false, division(quotient)),
	spirv.OpUMod: ints(false, division(remainder)),
	spirv.OpSDiv: ints(true, division(quotient)),
	spirv.OpSRem: ints(true, division(remainder)),
	spirv.OpSMod: ints(true, division(func(x, y int64) int64 {
		r := x % y
		if r < 0 && y > 0 || r > 0 && y < 0 {
			r += y
		}
		return r
	})),
	spirv.OpShiftLeftLogical:     ints(false, func(x, y int64) int64 { return x << (y % 32) }),
	spirv.OpShiftRightLogical:    ints(false, func(x, y int64) int64 { return x >> (y % 32) }),
	spirv.OpShiftRightArithmetic: ints(true, func(x, y int64) int64 { return x >> uint(y&31) }),
	spirv.OpBitwiseAnd:           ints(false, func(x, y int64) int64 { return x & y }),
	spirv.OpBitwiseOr:            ints(false, func(x, y int64) int64 { return x | y }),
	spirv.OpBitwiseXor:           ints(false, func(x, y int64) int64 { return x ^ y }),
	spirv.OpLogicalAnd:           ints(false, func(x, y int64) int64 { return x & y }),
	spirv.OpLogicalOr:            ints(false, func(x, y int64) int64 { return x | y }),
	spirv.OpLogicalNotEqual:      ints(false, func(x, y int64) int64 { return x ^ y }),
	spirv.OpLogicalEqual:         ints(false, func(x, y int64) int64 { return ^(x ^ y) }),
	spirv.OpFAdd:                 floats(func(x, y float64) float64 { return x + y }),
	spirv.OpFSub:                 floats(func(x, y float64) float64 { return x - y }),
	spirv.OpFMul:                 floats(func(x, y float64) float64 { return x * y }),
	spirv.OpFDiv:                 floats(func(x, y float64) float64 { return x / y }),
	spirv.OpFRem:                 floats(math.Mod),
	spirv.OpFMod: floats(func(x, y float64) float64 {
		r := math.Mod(x, y)
		if r == 0 {
			return math.Copysign(0, y)
		}
		if !math.IsNaN(r) && math.Signbit(r) != math.Signbit(y) {
			return r + y
		}
		return r
	}),
	spirv.OpIEqual:                 cmpU(func(x, y uint32) bool { return x == y }),
	spirv.OpINotEqual:              cmpU(func(x, y uint32) bool { return x != y }),
	spirv.OpUGreaterThan:           cmpU(func(x, y uint32) bool { return x > y }),
	spirv.OpUGreaterThanEqual:      cmpU(func(x, y uint32) bool { return x >= y }),
	spirv.OpULessThan:              cmpU(func(x, y uint32) bool { return x < y }),
	spirv.OpULessThanEqual:         cmpU(func(x, y uint32) bool { return x <= y }),
	spirv.OpSGreaterThan:           cmpS(func(x, y int32) bool { return x > y }),
	spirv.OpSGreaterThanEqual:      cmpS(func(x, y int32) bool { return x >= y }),
	spirv.OpSLessThan:              cmpS(func(x, y int32) bool { return x < y }),
	spirv.OpSLessThanEqual:         cmpS(func(x, y int32) bool { return x <= y }),
	spirv.OpFOrdEqual:              cmpF(func(x, y float64) bool { return !isnan(x, y) && x == y }),
	spirv.OpFUnordEqual:            cmpF(func(x, y float64) bool { return isnan(x, y) || x == y }),
	spirv.OpFOrdNotEqual:           cmpF(func(x, y float64) bool { return !isnan(x, y) && x != y }),
	spirv.OpFUnordNotEqual:         cmpF(func(x, y float64) bool { return isnan(x, y) || x != y }),
	spirv.OpFOrdLessThan:           cmpF(func(x, y float64) bool { return !isnan(x, y) && x < y }),
	spirv.OpFUnordLessThan:         cmpF(func(x, y float64) bool { return isnan(x, y) || x < y }),
	spirv.OpFOrdGreaterThan:        cmpF(func(x, y float64) bool { return !isnan(x, y) && x > y }),
	spirv.OpFUnordGreaterThan:      cmpF(func(x, y float64) bool { return isnan(x, y) || x > y }),
	spirv.OpFOrdLessThanEqual:      cmpF(func(x, y float64) bool { return !isnan(x, y) && x <= y }),
	spirv.OpFUnordLessThanEqual:    cmpF(func(x, y float64) bool { return isnan(x, y) || x <= y }),
	spirv.OpFOrdGreaterThanEqual:   cmpF(func(x, y float64) bool { return !isnan(x, y) && x >= y }),
	spirv.OpFUnordGreaterThanEqual: cmpF(func(x, y float64) bool { return isnan(x, y) || x >= y }),
}

// least is FMin and FMax: y if it is better than x.
func least(better func(x, y float64) bool) model2 {
	return model2{func(x, y uint32) uint32 {
		if better(fl(y), fl(x)) {
			return y
		}
		return x
	}, true}
}

func number(m model2) model2 {
	return model2{func(x, y uint32) uint32 {
		switch {
		case nan(x):
			return y
		case nan(y):
			return x
		}
		return m.f(x, y)
	}, true}
}

func below(x, y float64) bool { return x < y }
func above(x, y float64) bool { return x > y }

var modelsGLSL2 = map[spirv.GLSL]model2{
	spirv.GLSLUMin: {func(x, y uint32) uint32 { return uint32(math.Min(float64(x), float64(y))) }, true},
	spirv.GLSLUMax: {func(x, y uint32) uint32 { return uint32(math.Max(float64(x), float64(y))) }, true},
	spirv.GLSLSMin: {func(x, y uint32) uint32 { return uint32(int32(math.Min(float64(int32(x)), float64(int32(y))))) }, true},
	spirv.GLSLSMax: {func(x, y uint32) uint32 { return uint32(int32(math.Max(float64(int32(x)), float64(int32(y))))) }, true},
	spirv.GLSLFMin: least(below),
	spirv.GLSLFMax: least(above),
	spirv.GLSLNMin: number(least(below)),
	spirv.GLSLNMax: number(least(above)),
	spirv.GLSLStep: {func(edge, x uint32) uint32 {
		if fl(x) < fl(edge) {
			return fb(0)
		}
		return fb(1)
	}, true},
	spirv.GLSLPow:   floats(math.Pow),
	spirv.GLSLAtan2: floats(math.Atan2),
	spirv.GLSLLdexp: {func(x, e uint32) uint32 {
		n := max(-400, min(400, int(int32(e)))) // f32 has no more to give
		return fb(fl(x) * math.Pow(2, float64(n)))
	}, false},
	spirv.GLSLPackHalf2x16: {func(x, y uint32) uint32 { return half(x) | half(y)<<16 }, true},
	spirv.GLSLPackSnorm2x16: {func(x, y uint32) uint32 {
		return uint32(normal(x, -1, 32767)&0xFFFF | normal(y, -1, 32767)&0xFFFF<<16)
	}, true},
	spirv.GLSLPackUnorm2x16: {func(x, y uint32) uint32 {
		return uint32(normal(x, 0, 65535)&0xFFFF | normal(y, 0, 65535)&0xFFFF<<16)
	}, true},
}

func normal(x uint32, lo, scale float32) int64 {
	v := math.Float32frombits(x)
	if v != v {
		return 0
	}
	if v < lo {
		v = lo
	}
	if v > 1 {
		v = 1
	}
	v *= scale
	return int64(math.RoundToEven(float64(v)))
}

// half finds the nearest half by looking at all of them.
func half(x uint32) uint32 {
	if nan(x) {
		return x>>16&0x8000 | 0x7E00 | x>>13&0x3FF
	}

	v := math.Abs(fl(x))
	lo, hi := uint32(0), uint32(0x7C00)
	for hi-lo > 1 {
		if m := (lo + hi) / 2; halfValue(m) <= v {
			lo = m
		} else {
			hi = m
		}
	}

	// Infinity takes the place of 65536.
	a, b := v-halfValue(lo), halfValue(hi)-v
	if b < a || a == b && lo&1 == 1 {
		lo = hi
	}

	return x>>16&0x8000 | lo
}

// halfValue is that of a positive half, with infinity as 65536.
func halfValue(h uint32) float64 {
	e, m := int(h>>10), float64(h&0x3FF)
	if e == 0 {
		return math.Ldexp(m, -24)
	}
	return math.Ldexp(1024+m, e-25)
}

type model1 struct {
	f     func(x uint32) uint32
	exact bool
}

func through(f func(float64) float64) model1 {
	return model1{func(x uint32) uint32 { return fb(f(fl(x))) }, false}
}

var models1 = map[spirv.Opcode]model1{
	spirv.OpNot:        {func(x uint32) uint32 { return math.MaxUint32 - x }, true},
	spirv.OpLogicalNot: {func(x uint32) uint32 { return math.MaxUint32 - x }, true},
	spirv.OpSNegate:    {func(x uint32) uint32 { return uint32(-int64(x)) }, true},
	spirv.OpFNegate:    {func(x uint32) uint32 { return x + 0x80000000 }, true},
	spirv.OpBitCount: {func(x uint32) (n uint32) {
		for ; x != 0; x &= x - 1 {
			n++
		}
		return n
	}, true},
	spirv.OpBitReverse: {func(x uint32) (r uint32) {
		for i := range 32 {
			r |= x >> i & 1 << (31 - i)
		}
		return r
	}, true},
	spirv.OpIsNan: {func(x uint32) uint32 { return boolean(math.IsNaN(fl(x))) }, true},
	spirv.OpIsInf: {func(x uint32) uint32 { return boolean(math.IsInf(fl(x), 0)) }, true},
	spirv.OpConvertFToS: {func(x uint32) uint32 {
		if nan(x) {
			return 0
		}
		return uint32(int32(math.Max(math.MinInt32, math.Min(math.MaxInt32, fl(x)))))
	}, true},
	spirv.OpConvertFToU: {func(x uint32) uint32 {
		if nan(x) {
			return 0
		}
		return uint32(math.Max(0, math.Min(math.MaxUint32, fl(x))))
	}, true},
	spirv.OpConvertSToF: {func(x uint32) uint32 { return fb(float64(int32(x))) }, true},
	spirv.OpConvertUToF: {func(x uint32) uint32 { return fb(float64(x)) }, true},
}

var modelsGLSL1 = map[spirv.GLSL]model1{
	spirv.GLSLRound:     through(math.RoundToEven),
	spirv.GLSLRoundEven: through(math.RoundToEven),
	spirv.GLSLTrunc:     through(math.Trunc),
	spirv.GLSLFloor:     through(math.Floor),
	spirv.GLSLCeil:      through(math.Ceil),
	spirv.GLSLFract:     through(func(x float64) float64 { return x - math.Floor(x) }),
	spirv.GLSLFAbs:      {func(x uint32) uint32 { return x & 0x7FFFFFFF }, true},
	spirv.GLSLSAbs: {func(x uint32) uint32 {
		if int32(x) < 0 {
			return -x
		}
		return x
	}, true},
	spirv.GLSLFSign: {func(x uint32) uint32 {
		switch {
		case fl(x) > 0:
			return fb(1)
		case fl(x) < 0:
			return fb(-1)
		}
		return 0
	}, true},
	spirv.GLSLSSign: {func(x uint32) uint32 {
		switch {
		case int32(x) > 0:
			return 1
		case int32(x) < 0:
			return math.MaxUint32
		}
		return 0
	}, true},
	spirv.GLSLRadians:     {func(x uint32) uint32 { return math.Float32bits(math.Float32frombits(x) * 0.017453292) }, false},
	spirv.GLSLDegrees:     {func(x uint32) uint32 { return math.Float32bits(math.Float32frombits(x) * 57.29578) }, false},
	spirv.GLSLSin:         through(math.Sin),
	spirv.GLSLCos:         through(math.Cos),
	spirv.GLSLTan:         through(math.Tan),
	spirv.GLSLAsin:        through(math.Asin),
	spirv.GLSLAcos:        through(math.Acos),
	spirv.GLSLAtan:        through(math.Atan),
	spirv.GLSLSinh:        through(math.Sinh),
	spirv.GLSLCosh:        through(math.Cosh),
	spirv.GLSLTanh:        through(math.Tanh),
	spirv.GLSLAsinh:       through(math.Asinh),
	spirv.GLSLAcosh:       through(math.Acosh),
	spirv.GLSLAtanh:       through(math.Atanh),
	spirv.GLSLExp:         through(math.Exp),
	spirv.GLSLLog:         through(math.Log),
	spirv.GLSLExp2:        through(math.Exp2),
	spirv.GLSLLog2:        through(math.Log2),
	spirv.GLSLSqrt:        through(math.Sqrt),
	spirv.GLSLInverseSqrt: through(func(x float64) float64 { return 1 / math.Sqrt(x) }),
	spirv.GLSLFindILsb: {func(x uint32) uint32 {
		for i := range uint32(32) {
			if x>>i&1 == 1 {
				return i
			}
		}
		return math.MaxUint32
	}, true},
	spirv.GLSLFindUMsb: {func(x uint32) uint32 { return uint32(31 - bits.LeadingZeros32(x)) }, true},
	spirv.GLSLFindSMsb: {func(x uint32) uint32 {
		if int32(x) < 0 {
			x = ^x
		}
		return uint32(31 - bits.LeadingZeros32(x))
	}, true},
}

func TestModelOfHalf(t *testing.T) {
	require.Equal(t, uint32(0x3C00), half(fb(1)))
	require.Equal(t, uint32(0x7BFF), half(fb(65519)))
	require.Equal(t, uint32(0x7C00), half(fb(65520)))
	require.Equal(t, uint32(0x8001), half(fb(-math.Ldexp(1, -24))))
}
