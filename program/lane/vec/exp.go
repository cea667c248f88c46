package vec

import "math"

// e^x and 2^x of f32, in float64 to about 2⁻⁵⁰, so that the rounding to f32 is
// right in nearly all cases. Go and assembly use the same steps, none of which is
// fused, and so give the same bits on every processor. Softmax and similar kernels
// spend most of their time here.
//
// x is k·ln 2 + r with a whole k. Added to shifter, a number has k in its lowest
// bits. Shifted up and added to the exponent of e^r, k makes it e^x.

const (
	shifter = 3 << 51
	ln2Hi   = 0.6931471803691238 // 32 bits of ln 2: its product with k is exact
	ln2Lo   = 1.9082149292705877e-10
)

// exp is 0 below -104 and infinite above 89; the bounds keep k small. A NaN stays:
// one that was f32 has no low bits that could add to the exponent.
func exp(v uint32) uint32 {
	x := within(wide(v), -110, 90)
	t := float64(x*math.Log2E) + shifter
	k := t - shifter
	return round32(expReduced((x-float64(k*ln2Hi))-float64(k*ln2Lo), t))
}

func exp2(v uint32) uint32 {
	x := within(wide(v), -160, 130)
	t := x + shifter
	return round32(expReduced(float64((x-(t-shifter))*math.Ln2), t))
}

func within(x, lo, hi float64) float64 {
	if x < lo {
		return lo
	}
	if x > hi {
		return hi
	}
	return x
}

// expReduced is e^r by its series to r¹³/13!, times 2^k. Terms are taken in pairs,
// pairs in pairs and so on, which is quicker than one after the other.
func expReduced(r, t float64) float64 {
	r2 := r * r
	r4 := r2 * r2
	r8 := r4 * r4
	pair := func(even, odd float64) float64 { return even + float64(odd*r) }
	a := pair(1, 1) + float64(pair(1.0/2, 1.0/6)*r2)
	b := pair(1.0/24, 1.0/120) + float64(pair(1.0/720, 1.0/5040)*r2)
	c := pair(1.0/40320, 1.0/362880) + float64(pair(1.0/3628800, 1.0/39916800)*r2)
	d := pair(1.0/479001600, 1.0/6227020800)
	p := a + float64(b*r4) + float64((c+float64(d*r4))*r8)
	return math.Float64frombits(math.Float64bits(p) + math.Float64bits(t)<<52)
}
