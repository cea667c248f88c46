package vec

import "math"

// The one-lane functions for floats from which the loops in z*.go are made. Lanes
// of f32 use float64 where that is exact.

func f32(x uint32) float32  { return math.Float32frombits(x) }
func f64(x uint64) float64  { return math.Float64frombits(x) }
func wide(x uint32) float64 { return float64(math.Float32frombits(x)) }

// round32 is x rounded to f32.
func round32(x float64) uint32 { return math.Float32bits(float32(x)) }

func less32(x, y uint32) bool { return f32(x) < f32(y) }
func less64(x, y uint64) bool { return f64(x) < f64(y) }

func fmin32(x, y uint32) uint32 {
	if less32(y, x) {
		return y
	}
	return x
}

func fmax32(x, y uint32) uint32 {
	if less32(x, y) {
		return y
	}
	return x
}

func nan32(x uint32) bool { return x&^(1<<31) > 0xFF<<23 }
func nan64(x uint64) bool { return x&^(1<<63) > 0x7FF<<52 }

func nmin32(x, y uint32) uint32 {
	if nan32(x) {
		return y
	}
	return fmin32(x, y)
}

func nmax32(x, y uint32) uint32 {
	if nan32(x) {
		return y
	}
	return fmax32(x, y)
}

func fmin64(x, y uint64) uint64 {
	if less64(y, x) {
		return y
	}
	return x
}

func fmax64(x, y uint64) uint64 {
	if less64(x, y) {
		return y
	}
	return x
}

func nmin64(x, y uint64) uint64 {
	if nan64(x) {
		return y
	}
	return fmin64(x, y)
}

func nmax64(x, y uint64) uint64 {
	if nan64(x) {
		return y
	}
	return fmax64(x, y)
}

const (
	one32 = 0x3F800000
	one64 = 0x3FF0000000000000
)

// step32 is 0 for x below edge.
func step32(edge, x uint32) uint32 {
	if less32(x, edge) {
		return 0
	}
	return one32
}

func step64(edge, x uint64) uint64 {
	if less64(x, edge) {
		return 0
	}
	return one64
}

// frem has the sign of x. Mod is exact, and so is its result as f32.
func frem32(x, y uint32) uint32 { return round32(math.Mod(wide(x), wide(y))) }
func frem64(x, y uint64) uint64 { return math.Float64bits(math.Mod(f64(x), f64(y))) }

// modulo is the remainder with the sign of y.
func modulo(x, y float64) float64 {
	r := math.Mod(x, y)
	switch {
	case r == 0:
		return math.Copysign(r, y)
	case r < 0 != (y < 0) && r == r:
		r += y
	}
	return r
}

func fmod32(x, y uint32) uint32 { return round32(modulo(wide(x), wide(y))) }
func fmod64(x, y uint64) uint64 { return math.Float64bits(modulo(f64(x), f64(y))) }

func fsign32(x uint32) uint32 {
	switch v := f32(x); {
	case v > 0:
		return one32
	case v < 0:
		return one32 | 1<<31
	}
	return 0
}

func fsign64(x uint64) uint64 {
	switch v := f64(x); {
	case v > 0:
		return one64
	case v < 0:
		return one64 | 1<<63
	}
	return 0
}

func roundEven32(x uint32) uint32 { return round32(math.RoundToEven(wide(x))) }
func roundEven64(x uint64) uint64 { return math.Float64bits(math.RoundToEven(f64(x))) }
func trunc32(x uint32) uint32     { return round32(math.Trunc(wide(x))) }
func trunc64(x uint64) uint64     { return math.Float64bits(math.Trunc(f64(x))) }
func floor32(x uint32) uint32     { return round32(math.Floor(wide(x))) }
func floor64(x uint64) uint64     { return math.Float64bits(math.Floor(f64(x))) }
func ceil32(x uint32) uint32      { return round32(math.Ceil(wide(x))) }
func ceil64(x uint64) uint64      { return math.Float64bits(math.Ceil(f64(x))) }

// fract is x - floor(x), rounded: it is 1 for an x just below 0.
func fract32(x uint32) uint32 { return math.Float32bits(f32(x) - f32(floor32(x))) }
func fract64(x uint64) uint64 { return math.Float64bits(f64(x) - math.Floor(f64(x))) }

// sqrt32 through float64 is the rightly rounded one: 53 bits are more than twice 24.
func sqrt32(x uint32) uint32 { return round32(math.Sqrt(wide(x))) }
func sqrt64(x uint64) uint64 { return math.Float64bits(math.Sqrt(f64(x))) }

func inverseSqrt32(x uint32) uint32 { return round32(1 / math.Sqrt(wide(x))) }
func inverseSqrt64(x uint64) uint64 { return math.Float64bits(1 / math.Sqrt(f64(x))) }

// fmix is x*(1-a) + y*a. The conversions keep Go from fusing on other processors.
func fmix32(x, y, a uint32) uint32 {
	return math.Float32bits(float32(f32(x)*float32(1-f32(a))) + float32(f32(y)*f32(a)))
}

func fmix64(x, y, a uint64) uint64 {
	return math.Float64bits(float64(f64(x)*float64(1-f64(a))) + float64(f64(y)*f64(a)))
}

func smoothStep32(lo, hi, x uint32) uint32 {
	t := f32(fmin32(fmax32(math.Float32bits(float32(f32(x)-f32(lo))/float32(f32(hi)-f32(lo))), 0), one32))
	return math.Float32bits(float32(t*t) * float32(3-float32(2*t)))
}

func smoothStep64(lo, hi, x uint64) uint64 {
	t := f64(fmin64(fmax64(math.Float64bits(float64(f64(x)-f64(lo))/float64(f64(hi)-f64(lo))), 0), one64))
	return math.Float64bits(float64(t*t) * float64(3-float64(2*t)))
}

// fma32 rounds once. The product is exact in float64; the sum is rounded to odd
// there (to the neighbour with an odd last bit if it is not exact), which leaves
// the second rounding, to f32, what a single one would have given.
func fma32(x, y, z uint32) uint32 {
	p, c := wide(x)*wide(y), wide(z)
	s := p + c
	// The error of the sum, by Knuth's two-sum.
	b := s - p
	e := (p - (s - b)) + (c - b)
	if u := math.Float64bits(s); e != 0 && u&1 == 0 && !math.IsInf(s, 0) && e == e {
		// s is not exact and even: step towards the exact sum.
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return round32(s)
}

func fma64(x, y, z uint64) uint64 { return math.Float64bits(math.FMA(f64(x), f64(y), f64(z))) }

// MulAdd is a*b + c for f32, the product rounded before the sum.
func MulAdd(dst, a, b, c []uint32) {
	if accelerated {
		mulAddAVX2(dst, a, b, c)
		return
	}
	dst = dst[:min(len(dst), len(a), len(b), len(c))]
	a, b, c = a[:len(dst)], b[:len(dst)], c[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32bits(float32(f32(a[i])*f32(b[i])) + f32(c[i]))
	}
}

// MulAddS is MulAdd with the scalar s in the place of b.
func MulAddS(dst, a []uint32, s uint32, c []uint32) {
	if accelerated {
		mulAddSAVX2(dst, a, s, c)
		return
	}
	dst = dst[:min(len(dst), len(a), len(c))]
	a, c = a[:len(dst)], c[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32bits(float32(f32(a[i])*f32(s)) + f32(c[i]))
	}
}
