package vec

import "math"

// e^x and 2^x of f32, in float64 to about 2⁻⁵⁰, so that the rounding to f32 is right
// in nearly all cases. They are the same steps in Go and in assembly, none of which
// is fused, and so the same bits on every processor. Softmax and its kin spend most
// of their time here.
//
// x is k·ln 2 + r with a whole k. Added to shifter, a number falls on k in its lowest
// bits, which shifted up are what makes of e^r, in its exponent, e^x.

const (
	shifter = 3 << 51
	ln2Hi   = 0.6931471803691238 // 32 bits of ln 2: its product with k is exact
	ln2Lo   = 1.9082149292705877e-10
)

// exp is 0 below -104 and infinite above 89; the bounds keep k small. A NaN stays:
// one that was f32 has no low bits that could add to the exponent.
func exp(v uint32) uint32 {
	x := min(max(wide(v), -110), 90)
	t := float64(x*math.Log2E) + shifter
	k := t - shifter
	return round32(expReduced((x-float64(k*ln2Hi))-float64(k*ln2Lo), t))
}

func exp2(v uint32) uint32 {
	x := min(max(wide(v), -160), 130)
	t := x + shifter
	return round32(expReduced(float64((x-(t-shifter))*math.Ln2), t))
}

// expReduced is e^r by its series, times 2^k.
func expReduced(r, t float64) float64 {
	p := 1.0 / 6227020800 // 1/13!
	p = float64(p*r) + 1.0/479001600
	p = float64(p*r) + 1.0/39916800
	p = float64(p*r) + 1.0/3628800
	p = float64(p*r) + 1.0/362880
	p = float64(p*r) + 1.0/40320
	p = float64(p*r) + 1.0/5040
	p = float64(p*r) + 1.0/720
	p = float64(p*r) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 1.0/2
	p = float64(p*r) + 1
	p = float64(p*r) + 1
	return math.Float64frombits(math.Float64bits(p) + math.Float64bits(t)<<52)
}
