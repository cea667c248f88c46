package quant

import "math"

// F16 rounds x to the nearest binary16, ties to even; beyond its range to infinity.
func F16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	exp := int(b>>23&0xFF) - 127
	frac := b & 0x7FFFFF
	switch {
	case exp == 128 && frac != 0:
		return sign | 0x7E00 | uint16(frac>>13) // still NaN
	case exp > 15:
		return sign | 0x7C00
	case exp < -25:
		return sign
	case exp < -14: // subnormal: the leading one is written out, in units of 2^-24
		return sign | uint16(roundShift(frac|0x800000, uint(-exp-1)))
	}

	// A carry out of the fraction goes into the exponent, which is right, also for
	// infinity.
	return sign | uint16(roundShift(uint32(exp+15)<<23|frac, 13))
}

// roundShift is v / 2^n rounded to the nearest, ties to even.
func roundShift(v uint32, n uint) uint32 {
	half := uint32(1) << (n - 1)
	return (v + half - 1 + v>>n&1) >> n
}

// FromF16 is exact.
func FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h >> 10 & 0x1F)
	frac := uint32(h & 0x3FF)
	switch exp {
	case 0:
		f := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 0x1F:
		return math.Float32frombits(sign | 0x7F800000 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// BF16 rounds x to the nearest number with 8 bits of precision, ties to even.
func BF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16(roundShift(b, 16))
}

// FromBF16 is exact.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
