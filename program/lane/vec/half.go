package vec

import (
	"math"
)

// fromHalf32 is the low half of x, a half, as f32. A NaN becomes quiet and keeps
// its payload, as in VCVTPH2PS.
func fromHalf32(x uint32) uint32 {
	sign, e, m := x&0x8000<<16, x>>10&0x1F, x&0x3FF
	switch {
	case e == 0: // zero, or denormal: m * 2^-24 is exact
		return sign | math.Float32bits(float32(m)*(1.0/(1<<24)))
	case e == 31 && m == 0:
		return sign | 0xFF<<23
	case e == 31:
		return sign | 0xFF<<23 | 1<<22 | m<<13
	}
	return sign | (e+127-15)<<23 | m<<13
}

// toHalf32 is the f32 x rounded to a half, to nearest even. A NaN becomes quiet
// and keeps the top of its payload, as in VCVTPS2PH.
func toHalf32(x uint32) uint32 {
	sign, v := x>>16&0x8000, x&^(1<<31)
	switch {
	case v > 0xFF<<23:
		return sign | 0x7E00 | v>>13&0x3FF
	case v >= (127+16)<<23: // 2^16 and above
		return sign | 0x7C00
	case v < (127-14)<<23: // a denormal half is a count of 2^-24
		return sign | uint32(math.RoundToEven(float64(f32(v))*(1<<24)))
	}
	v -= (127 - 15) << 23
	return sign | (v+0xFFF+v>>13&1)>>13 // 65520 and above carry into infinity
}

// halfOfDouble rounds once, from f64 to a half.
func halfOfDouble(x uint64) uint32 {
	v := f64(x)
	s := float32(v)
	if u := math.Float32bits(s); float64(s) != v && v == v && u&1 == 0 && !math.IsInf(float64(s), 0) {
		// Round to odd, so that the second rounding is the only one that counts.
		if (v > float64(s)) == (v > 0) {
			u++
		} else {
			u--
		}
		s = f32(u)
	}
	if s == 0 { // also what f32 took for zero: far below half of 2^-24
		return uint32(x >> 48 & 0x8000)
	}
	return toHalf32(math.Float32bits(s))
}

func halfToFloat(dst, a []uint32) {
	if accelerated {
		halfToFloatAVX2(dst, a)
		return
	}
	each(dst, a, fromHalf32)
}

func floatToHalf(dst, a []uint32) {
	if accelerated {
		floatToHalfAVX2(dst, a)
		return
	}
	each(dst, a, toHalf32)
}
