package vec

import (
	"math"
	"math/big"

	"capgpu/program/spirv"
)

func fL(x uint64) float64 { return math.Float64frombits(x) }

func bL(x float64) uint64 { return math.Float64bits(x) }

// low64 is v modulo 2^64.
func low64(v *big.Int) uint64 {
	return new(big.Int).And(v, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
}

func unsigned(x uint64) *big.Int { return new(big.Int).SetUint64(x) }

func signed(x uint64) *big.Int { return big.NewInt(int64(x)) }

// divisionL is nothing for a divisor of 0, which intsL makes 0.
func divisionL(f func(z, x, y *big.Int) *big.Int) func(x, y *big.Int) *big.Int {
	return func(x, y *big.Int) *big.Int {
		if y.Sign() == 0 {
			return nil
		}
		return f(new(big.Int), x, y)
	}
}

func intsL(of func(uint64) *big.Int, f func(x, y *big.Int) *big.Int) func(x, y uint64) uint64 {
	return func(x, y uint64) uint64 {
		v := f(of(x), of(y))
		if v == nil {
			return 0
		}
		return low64(v)
	}
}

func floatsL(f func(x, y float64) float64) func(x, y uint64) uint64 {
	return func(x, y uint64) uint64 { return bL(f(fL(x), fL(y))) }
}

var modelsL2 = map[spirv.Opcode]func(x, y uint64) uint64{
	spirv.OpIAdd: intsL(unsigned, func(x, y *big.Int) *big.Int { return x.Add(x, y) }),
	spirv.OpISub: intsL(signed, func(x, y *big.Int) *big.Int { return x.Sub(x, y) }),
	spirv.OpIMul: intsL(signed, func(x, y *big.Int) *big.Int { return x.Mul(x, y) }),
	spirv.OpUDiv: intsL(unsigned, divisionL((*big.Int).Quo)),
	spirv.OpUMod: intsL(unsigned, divisionL((*big.Int).Rem)),
	spirv.OpSDiv: intsL(signed, divisionL((*big.Int).Quo)),
	spirv.OpSRem: intsL(signed, divisionL((*big.Int).Rem)),
	spirv.OpSMod: intsL(signed, divisionL(func(z, x, y *big.Int) *big.Int {
		z.Rem(x, y)
		if z.Sign()*y.Sign() < 0 {
			z.Add(z, y)
		}
		return z
	})),
	spirv.OpShiftLeftLogical:     intsL(unsigned, func(x, y *big.Int) *big.Int { return x.Lsh(x, uint(y.Uint64()%64)) }),
	spirv.OpShiftRightLogical:    intsL(unsigned, func(x, y *big.Int) *big.Int { return x.Rsh(x, uint(y.Uint64()%64)) }),
	spirv.OpShiftRightArithmetic: intsL(signed, func(x, y *big.Int) *big.Int { return x.Rsh(x, uint(uint64(y.Int64())%64)) }),
	spirv.OpBitwiseAnd:           func(x, y uint64) uint64 { return x & y },
	spirv.OpBitwiseOr:            func(x, y uint64) uint64 { return x | y },
	spirv.OpBitwiseXor:           func(x, y uint64) uint64 { return x ^ y },
	spirv.OpFAdd:                 floatsL(func(x, y float64) float64 { return x + y }),
	spirv.OpFSub:                 floatsL(func(x, y float64) float64 { return x - y }),
	spirv.OpFMul:                 floatsL(func(x, y float64) float64 { return x * y }),
	spirv.OpFDiv:                 floatsL(func(x, y float64) float64 { return x / y }),
	spirv.OpFRem:                 floatsL(math.Mod),
	spirv.OpFMod:                 floatsL(modulo),
}

func leastL(better func(x, y float64) bool, number bool) func(x, y uint64) uint64 {
	return func(x, y uint64) uint64 {
		switch {
		case number && nanL(x):
			return y
		case number && nanL(y):
			return x
		case better(fL(y), fL(x)):
			return y
		}
		return x
	}
}

var modelsLGLSL2 = map[spirv.GLSL]func(x, y uint64) uint64{
	spirv.GLSLUMin: func(x, y uint64) uint64 { return min(x, y) },
	spirv.GLSLUMax: func(x, y uint64) uint64 { return max(x, y) },
	spirv.GLSLSMin: func(x, y uint64) uint64 { return uint64(min(int64(x), int64(y))) },
	spirv.GLSLSMax: func(x, y uint64) uint64 { return uint64(max(int64(x), int64(y))) },
	spirv.GLSLFMin: leastL(below, false),
	spirv.GLSLFMax: leastL(above, false),
	spirv.GLSLNMin: leastL(below, true),
	spirv.GLSLNMax: leastL(above, true),
	spirv.GLSLStep: floatsL(func(edge, x float64) float64 {
		if x < edge {
			return 0
		}
		return 1
	}),
}

func sameL(a, b uint64) bool { return a == b || nanL(a) && nanL(b) }
