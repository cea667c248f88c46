package vec

import (
	"math"

	"capgpu/program/spirv"
)

// Functions of f32 that are package math's on float64, rounded. exp and exp2 are in
// exp.go.

func sin(x uint32) uint32   { return round32(math.Sin(wide(x))) }
func cos(x uint32) uint32   { return round32(math.Cos(wide(x))) }
func tan(x uint32) uint32   { return round32(math.Tan(wide(x))) }
func asin(x uint32) uint32  { return round32(math.Asin(wide(x))) }
func acos(x uint32) uint32  { return round32(math.Acos(wide(x))) }
func atan(x uint32) uint32  { return round32(math.Atan(wide(x))) }
func sinh(x uint32) uint32  { return round32(math.Sinh(wide(x))) }
func cosh(x uint32) uint32  { return round32(math.Cosh(wide(x))) }
func tanh(x uint32) uint32  { return round32(math.Tanh(wide(x))) }
func asinh(x uint32) uint32 { return round32(math.Asinh(wide(x))) }
func acosh(x uint32) uint32 { return round32(math.Acosh(wide(x))) }
func atanh(x uint32) uint32 { return round32(math.Atanh(wide(x))) }
func log(x uint32) uint32   { return round32(math.Log(wide(x))) }
func log2(x uint32) uint32  { return round32(math.Log2(wide(x))) }

func pow32(x, y uint32) uint32 { return round32(math.Pow(wide(x), wide(y))) }
func atan2(y, x uint32) uint32 { return round32(math.Atan2(wide(y), wide(x))) }

// ldexp32 is x * 2^e, rounded once: float64 holds every result that f32 does not
// round to zero or infinity.
func ldexp32(x, e uint32) uint32 { return round32(math.Ldexp(wide(x), exponent(e))) }

// exponent is e, cut to what still makes 0 or infinity of every double: Ldexp adds
// to it, in an int.
func exponent(e uint32) int { return int(max(min(int32(e), 1<<12), -1<<12)) }

// LdexpL is a * 2^exp for doubles.
func LdexpL(dst, a []uint64, exp []uint32) {
	dst = dst[:min(len(dst), len(a), len(exp))]
	for i := range dst {
		dst[i] = math.Float64bits(math.Ldexp(f64(a[i]), exponent(exp[i])))
	}
}

// modf is the fraction and the whole part, both with the sign of x.
func modf(x float64) (frac, whole float64) {
	whole = math.Trunc(x)
	if math.IsInf(x, 0) {
		return math.Copysign(0, x), whole
	}
	return math.Copysign(x-whole, x), whole
}

// frexp is x as sig * 2^exp with 0.5 <= |sig| < 1; a zero, infinity or NaN is its
// own sig with the exponent 0.
func frexp(x float64) (sig float64, exp uint32) {
	if x == 0 || x != x || math.IsInf(x, 0) {
		return x, 0
	}
	s, e := math.Frexp(x)
	return s, uint32(e)
}

// Modf splits into fraction and whole part.
func Modf(frac, whole, a []uint32) {
	frac = frac[:min(len(frac), len(whole), len(a))]
	for i := range frac {
		f, w := modf(wide(a[i]))
		frac[i], whole[i] = round32(f), round32(w)
	}
}

// ModfL is Modf for doubles.
func ModfL(frac, whole, a []uint64) {
	frac = frac[:min(len(frac), len(whole), len(a))]
	for i := range frac {
		f, w := modf(f64(a[i]))
		frac[i], whole[i] = math.Float64bits(f), math.Float64bits(w)
	}
}

// Frexp splits into significand and exponent.
func Frexp(sig, exp, a []uint32) {
	sig = sig[:min(len(sig), len(exp), len(a))]
	for i := range sig {
		s, e := frexp(wide(a[i]))
		sig[i], exp[i] = round32(s), e
	}
}

// FrexpL is Frexp for doubles.
func FrexpL(sig []uint64, exp []uint32, a []uint64) {
	sig = sig[:min(len(sig), len(exp), len(a))]
	for i := range sig {
		s, e := frexp(f64(a[i]))
		sig[i], exp[i] = math.Float64bits(s), e
	}
}

// norm is x, clamped to lo…1, in steps of 1/scale. The product is rounded to f32
// first, as the formula of GLSL.std.450 reads.
func norm(x uint32, lo, scale float32) int32 {
	v := f32(fmin32(fmax32(x, math.Float32bits(lo)), one32))
	return int32(fToS32(math.Float32bits(float32(math.RoundToEven(float64(v * scale))))))
}

func packHalf2x16(x, y uint32) uint32 { return toHalf32(x) | toHalf32(y)<<16 }

func packSnorm2x16(x, y uint32) uint32 {
	return uint32(uint16(norm(x, -1, 32767))) | uint32(uint16(norm(y, -1, 32767)))<<16
}

func packUnorm2x16(x, y uint32) uint32 {
	return uint32(uint16(norm(x, 0, 65535))) | uint32(uint16(norm(y, 0, 65535)))<<16
}

// Pack4 is PackSnorm4x8 or PackUnorm4x8 of four components, the first lowest.
func Pack4(g spirv.GLSL) (Op4, bool) {
	switch g {
	case spirv.GLSLPackSnorm4x8:
		return packSnorm4x8, true
	case spirv.GLSLPackUnorm4x8:
		return packUnorm4x8, true
	}
	return nil, false
}

func packSnorm4x8(dst, a, b, c, d []uint32) { pack4x8(dst, a, b, c, d, -1, 127) }
func packUnorm4x8(dst, a, b, c, d []uint32) { pack4x8(dst, a, b, c, d, 0, 255) }

func pack4x8(dst, a, b, c, d []uint32, lo, scale float32) {
	dst = dst[:min(len(dst), len(a), len(b), len(c), len(d))]
	for i := range dst {
		v := uint32(uint8(norm(a[i], lo, scale)))
		v |= uint32(uint8(norm(b[i], lo, scale))) << 8
		v |= uint32(uint8(norm(c[i], lo, scale))) << 16
		dst[i] = v | uint32(uint8(norm(d[i], lo, scale)))<<24
	}
}

// Unpack is component number c of UnpackHalf2x16, UnpackSnorm2x16, UnpackUnorm2x16,
// UnpackSnorm4x8 or UnpackUnorm4x8.
func Unpack(g spirv.GLSL, c int) (Op1, bool) {
	var one func(uint32) uint32
	size := 16
	switch g {
	case spirv.GLSLUnpackHalf2x16:
		one = fromHalf32
	case spirv.GLSLUnpackSnorm2x16:
		one = func(x uint32) uint32 { return snorm(int16(x), 32767) }
	case spirv.GLSLUnpackUnorm2x16:
		one = func(x uint32) uint32 { return math.Float32bits(float32(uint16(x)) / 65535) }
	case spirv.GLSLUnpackSnorm4x8:
		size = 8
		one = func(x uint32) uint32 { return snorm(int16(int8(x)), 127) }
	case spirv.GLSLUnpackUnorm4x8:
		size = 8
		one = func(x uint32) uint32 { return math.Float32bits(float32(uint8(x)) / 255) }
	default:
		return nil, false
	}

	if c < 0 || c >= 32/size {
		return nil, false
	}

	shift := c * size
	return func(dst, a []uint32) {
		dst = dst[:min(len(dst), len(a))]
		for i := range dst {
			dst[i] = one(a[i] >> shift)
		}
	}, true
}

func snorm(x int16, scale float32) uint32 {
	return math.Float32bits(max(float32(x)/scale, -1))
}
