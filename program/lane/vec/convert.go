package vec

import (
	"math"

	"capgpu/program/spirv"
)

// fToS32 is the integer part of x, cut to the range of int32; NaN is 0. In Go a
// conversion out of range depends on the processor, so the range is checked first.
func fToS32(x uint32) uint32 {
	v := f32(x)
	switch {
	case v >= 1<<31:
		return math.MaxInt32
	case v >= -1<<31:
		return uint32(int32(v))
	case v != v:
		return 0
	}
	return 1 << 31
}

func fToU32(x uint32) uint32 {
	v := f32(x)
	switch {
	case v >= 1<<32:
		return math.MaxUint32
	case v > 0:
		return uint32(uint64(v))
	}
	return 0
}

func fToS64(v float64) uint64 {
	switch {
	case v >= 1<<63:
		return math.MaxInt64
	case v >= -1<<63:
		return uint64(int64(v))
	case v != v:
		return 0
	}
	return 1 << 63
}

func fToU64(v float64) uint64 {
	switch {
	case v >= 1<<64:
		return math.MaxUint64
	case v >= 1<<63:
		return uint64(int64(v-1<<63)) | 1<<63
	case v > 0:
		return uint64(int64(v))
	}
	return 0
}

func copy32(dst, a []uint32) { copy(dst, a) }
func copy64(dst, a []uint64) { copy(dst, a) }

func zext8(dst, a []uint32)  { each(dst, a, func(x uint32) uint32 { return x & 0xFF }) }
func zext16(dst, a []uint32) { each(dst, a, func(x uint32) uint32 { return x & 0xFFFF }) }
func sext8To16(dst, a []uint32) {
	each(dst, a, func(x uint32) uint32 { return uint32(uint16(int8(x))) })
}

func sext8(dst, a []uint32) {
	if accelerated {
		sext8AVX2(dst, a)
		return
	}
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = uint32(int8(a[i]))
	}
}

func sext16(dst, a []uint32) {
	if accelerated {
		sext16AVX2(dst, a)
		return
	}
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = uint32(int16(a[i]))
	}
}

// each is for rare operations.
func each(dst, a []uint32, f func(uint32) uint32) {
	dst = dst[:min(len(dst), len(a))]
	for i := range dst {
		dst[i] = f(a[i])
	}
}

// Convert changes a value of from bits to one of to bits, both at most 32:
// UConvert, SConvert and FConvert of any two widths, and Unary's conversions
// between int and float of 32 bits. SConvert to 16 bits is zero-extended as all
// values of 16 bits are.
func Convert(op spirv.Opcode, from, to int) (Op1, bool) {
	switch op {
	case spirv.OpUConvert:
		switch {
		case !intBits(from) || !intBits(to):
			return nil, false
		case min(from, to) == 8:
			return zext8, true
		case min(from, to) == 16:
			return zext16, true
		}
		return copy32, true

	case spirv.OpSConvert:
		switch {
		case !intBits(from) || !intBits(to):
			return nil, false
		case to <= from:
			return Convert(spirv.OpUConvert, from, to)
		case to == 16:
			return sext8To16, true
		case from == 8:
			return sext8, true
		}
		return sext16, true

	case spirv.OpFConvert:
		switch {
		case from == 16 && to == 32:
			return halfToFloat, true
		case from == 32 && to == 16:
			return floatToHalf, true
		case from == to && (to == 16 || to == 32):
			return copy32, true
		}
		return nil, false

	case spirv.OpConvertFToS, spirv.OpConvertFToU, spirv.OpConvertSToF, spirv.OpConvertUToF:
		if from == 32 && to == 32 {
			return Unary(op)
		}
	}
	return nil, false
}

func intBits(n int) bool { return n == 8 || n == 16 || n == 32 }

// ConvertL changes 64 bits to 64 bits.
func ConvertL(op spirv.Opcode) (Op1L, bool) {
	switch op {
	case spirv.OpUConvert, spirv.OpSConvert, spirv.OpFConvert:
		return copy64, true
	case spirv.OpConvertFToS, spirv.OpConvertFToU, spirv.OpConvertSToF, spirv.OpConvertUToF:
		return UnaryL(op)
	}
	return nil, false
}

// Widen changes a value of from bits to one of 64 bits.
func Widen(op spirv.Opcode, from int) (OpWiden, bool) {
	var f func(uint32) uint64
	switch op {
	case spirv.OpUConvert:
		switch from {
		case 8:
			f = func(x uint32) uint64 { return uint64(uint8(x)) }
		case 16:
			f = func(x uint32) uint64 { return uint64(uint16(x)) }
		case 32:
			return zext32To64, true
		}

	case spirv.OpSConvert:
		switch from {
		case 8:
			f = func(x uint32) uint64 { return uint64(int8(x)) }
		case 16:
			f = func(x uint32) uint64 { return uint64(int16(x)) }
		case 32:
			return sext32To64, true
		}

	case spirv.OpFConvert:
		switch from {
		case 16:
			f = func(x uint32) uint64 { return math.Float64bits(wide(fromHalf32(x))) }
		case 32:
			f = func(x uint32) uint64 { return math.Float64bits(wide(x)) }
		}

	case spirv.OpConvertFToS:
		if from == 32 {
			f = func(x uint32) uint64 { return fToS64(wide(x)) }
		}

	case spirv.OpConvertFToU:
		if from == 32 {
			f = func(x uint32) uint64 { return fToU64(wide(x)) }
		}

	case spirv.OpConvertSToF:
		if from == 32 {
			f = func(x uint32) uint64 { return math.Float64bits(float64(int32(x))) }
		}

	case spirv.OpConvertUToF:
		if from == 32 {
			f = func(x uint32) uint64 { return math.Float64bits(float64(x)) }
		}
	}

	if f == nil {
		return nil, false
	}

	return func(dst []uint64, a []uint32) {
		dst = dst[:min(len(dst), len(a))]
		for i := range dst {
			dst[i] = f(a[i])
		}
	}, true
}

func zext32To64(dst []uint64, a []uint32) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = uint64(a[i])
	}
}

func sext32To64(dst []uint64, a []uint32) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = uint64(int32(a[i]))
	}
}

// Narrow changes a value of 64 bits to one of to bits. IsNan and IsInf of a double
// are here too, with to 32.
func Narrow(op spirv.Opcode, to int) (OpNarrow, bool) {
	var f func(uint64) uint32
	switch op {
	case spirv.OpUConvert, spirv.OpSConvert:
		switch to {
		case 8:
			f = func(x uint64) uint32 { return uint32(uint8(x)) }
		case 16:
			f = func(x uint64) uint32 { return uint32(uint16(x)) }
		case 32:
			return low32, true
		}

	case spirv.OpFConvert:
		switch to {
		case 16:
			f = halfOfDouble
		case 32:
			f = func(x uint64) uint32 { return round32(f64(x)) }
		}

	default:
		if to != 32 {
			return nil, false
		}
		switch op {
		case spirv.OpConvertFToS:
			f = doubleToS32
		case spirv.OpConvertFToU:
			f = doubleToU32
		case spirv.OpConvertSToF:
			f = func(x uint64) uint32 { return math.Float32bits(float32(int64(x))) }
		case spirv.OpConvertUToF:
			f = func(x uint64) uint32 { return math.Float32bits(float32(x)) }
		case spirv.OpIsNan:
			f = func(x uint64) uint32 { return mask(nan64(x)) }
		case spirv.OpIsInf:
			f = func(x uint64) uint32 { return mask(x<<1 == 0x7FF<<53) }
		}
	}

	if f == nil {
		return nil, false
	}

	return func(dst []uint32, a []uint64) {
		dst = dst[:min(len(dst), len(a))]
		for i := range dst {
			dst[i] = f(a[i])
		}
	}, true
}

func low32(dst []uint32, a []uint64) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = uint32(a[i])
	}
}

func doubleToS32(x uint64) uint32 {
	v := f64(x)
	if v != v {
		return 0
	}
	return uint32(int32(max(min(v, math.MaxInt32), math.MinInt32)))
}

func doubleToU32(x uint64) uint32 {
	v := f64(x)
	if v != v {
		return 0
	}
	return uint32(int64(max(min(v, math.MaxUint32), 0)))
}

// Join makes lanes of 64 bits from their low and high words, as a Bitcast of a
// vector of two 32-bit components does.
func Join(dst []uint64, lo, hi []uint32) {
	dst = dst[:min(len(dst), len(lo), len(hi))]
	lo, hi = lo[:len(dst)], hi[:len(dst)]
	for i := range dst {
		dst[i] = uint64(lo[i]) | uint64(hi[i])<<32
	}
}

// HighWord is the upper half of each lane. The lower one is Narrow's UConvert.
func HighWord(dst []uint32, a []uint64) {
	dst = dst[:min(len(dst), len(a))]
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = uint32(a[i] >> 32)
	}
}
