package lanetest

import (
	"fmt"
	"math"
	"math/big"

	"capgpu/program/spirv"
)

// toFloat is the value of a float's bits. Every float of 16 and 32 bits is one of
// 64.
func toFloat(n, width uint64) float64 {
	switch width {
	case 16:
		return half(n)
	case 32:
		return float64(math.Float32frombits(uint32(n)))
	}
	return math.Float64frombits(n)
}

// fromFloat rounds to the nearest float of this many bits. Sums, differences,
// products, quotients and roots of 32-bit floats that were rounded to 64 bits
// before come out as if rounded once.
func fromFloat(x float64, width uint64) uint64 {
	switch width {
	case 16:
		return toHalf(x)
	case 32:
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(x)
}

func half(n uint64) float64 {
	mantissa, exponent := float64(n&0x3FF), int(n>>10&31)
	x := 0.0
	switch exponent {
	case 0:
		x = mantissa * 0x1p-24
	case 31:
		x = math.Inf(1)
		if mantissa != 0 {
			x = math.NaN()
		}
	default:
		x = math.Ldexp(1024+mantissa, exponent-25)
	}

	if n>>15&1 != 0 {
		x = -x
	}

	return x
}

func toHalf(x float64) uint64 {
	sign := uint64(0)
	if math.Signbit(x) {
		sign = 1 << 15
	}

	x = math.Abs(x)
	switch {
	case math.IsNaN(x):
		return sign | 0x7E00
	case x >= 65520:
		return sign | 0x7C00
	case x < 0x1p-14:
		return sign | uint64(math.RoundToEven(x*0x1p24)) // 1024 is the least normal
	}

	_, e := math.Frexp(x) // x is in [2^(e-1), 2^e)
	n := uint64(math.RoundToEven(math.Ldexp(x, 11-e)))
	return sign | uint64(e+13)<<10 + n
}

// toInt cuts a float to an integer, as near as the type has one; NaN is 0.
func toInt(x float64, width uint64, isSigned bool) uint64 {
	if math.IsNaN(x) {
		return 0
	}

	low, high := new(big.Int), new(big.Int).SetUint64(mask(width))
	if isSigned {
		low.Lsh(big.NewInt(-1), uint(width-1))
		high.SetUint64(mask(width - 1))
	}

	n := new(big.Int)
	switch {
	case math.IsInf(x, 1):
		n = high
	case math.IsInf(x, -1):
		n = low
	default:
		big.NewFloat(x).Int(n)
	}

	if n.Cmp(low) < 0 {
		n = low
	}
	if n.Cmp(high) > 0 {
		n = high
	}

	return new(big.Int).And(n, new(big.Int).SetUint64(mask(width))).Uint64()
}

// ofInt rounds an integer to a float.
func ofInt(n, from, to uint64, isSigned bool) uint64 {
	x := new(big.Float).SetUint64(n)
	if isSigned {
		x.SetInt64(signed(n, from))
	}
	if to == 32 {
		f, _ := x.Float32()
		return uint64(math.Float32bits(f))
	}
	f, _ := x.Float64()
	if to == 16 {
		return toHalf(f) // an integer that f64 rounds is an infinity here
	}
	return math.Float64bits(f)
}

func convert(op spirv.Opcode, n, from, to uint64) uint64 {
	switch op {
	case spirv.OpUConvert:
		return n & mask(to)
	case spirv.OpSConvert:
		return uint64(signed(n, from)) & mask(to)
	case spirv.OpFConvert:
		return fromFloat(toFloat(n, from), to)
	case spirv.OpConvertFToS:
		return toInt(toFloat(n, from), to, true)
	case spirv.OpConvertFToU:
		return toInt(toFloat(n, from), to, false)
	}
	return ofInt(n, from, to, op == spirv.OpConvertSToF)
}

// compare compares floats: an ordered comparison of NaN is false, an unordered one
// true.
func compare(op spirv.Opcode, a, b float64) uint64 {
	nan := math.IsNaN(a) || math.IsNaN(b)
	switch op {
	case spirv.OpFOrdEqual:
		return truth(!nan && a == b)

	case spirv.OpFUnordEqual:
		return truth(nan || a == b)
	case spirv.OpFOrdNotEqual:
		return truth(!nan && a != b)

	case spirv.OpFUnordNotEqual:
		return truth(nan || a != b)
	case spirv.OpFOrdLessThan:
		return truth(!nan && a < b)

	case spirv.OpFUnordLessThan:
		return truth(nan || a < b)
	case spirv.OpFOrdGreaterThan:
		return truth(!nan && a > b)

	case spirv.OpFUnordGreaterThan:
		return truth(nan || a > b)
	case spirv.OpFOrdLessThanEqual:
		return truth(!nan && a <= b)

	case spirv.OpFUnordLessThanEqual:
		return truth(nan || a <= b)
	case spirv.OpFOrdGreaterThanEqual:
		return truth(!nan && a >= b)

	case spirv.OpFUnordGreaterThanEqual:
		return truth(nan || a >= b)
	}

	panic(fmt.Errorf("the instruction %v", op))
}
