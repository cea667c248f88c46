package native

import "math"

// Values kept within a cap: cap·tanh(x/cap). The exponential is assembly's; the rest is in
// float64, which has no subnormal numbers of what f32 has.

const (
	capStep = 512    // elements at a time
	nearCap = 0.0025 // the square of x/cap below which a polynomial is nearer
)

var softcapBody = elementwise(
	shape{bindings: 1, inlineWords: 1, write: 0, write2: -1},
	pace{words: 6 << 10, exps: true},
	func(c *Call, from, to uint64) {
		softcap(c.f32(0)[from:to], c.inlineF32(0))
	})

// softcap changes x; a cap that is not above 0 changes nothing.
func softcap(x []float32, limit float32) {
	if !(limit > 0) {
		return
	}

	var exps [capStep]float32
	each, inverse := float64(limit), 1/float64(limit)
	for len(x) > 0 {
		part := x[:min(len(x), capStep)]
		x = x[len(part):]
		e := exps[:len(part)]
		for i, v := range part {
			e[i] = narrow(-2 * math.Abs(float64(v)*inverse))
		}
		expSum(e, e, 0)
		for i, v := range part {
			z := float64(v) * inverse
			if s := z * z; s < nearCap {
				part[i] = narrow(float64(v) * (1 - s*(1.0/3-s*(2.0/15))))
				continue
			}
			f := float64(e[i])
			part[i] = float32(math.Copysign(each*(1-f)/(1+f), z))
		}
	}
}

// narrow rounds to f32, and what would be a subnormal number to 0.
func narrow(v float64) float32 {
	const least = 1.2e-38
	if v > -least && v < least {
		return 0
	}
	return float32(v)
}
