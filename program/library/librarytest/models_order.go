package librarytest

import (
	"math"
	"math/rand/v2"
	"sort"
)

const none = math.MaxUint32 // the index of nothing

// order are the indices of x from the largest element on, equal ones by index,
// without those of NaN.
func order(x []float32) []uint32 {
	var at []uint32
	for i, v := range x {
		if v == v {
			at = append(at, uint32(i))
		}
	}
	sort.SliceStable(at, func(i, j int) bool { return x[at[i]] > x[at[j]] })
	return at
}

func fillArgmax(r *rand.Rand, size []uint32, c *Case) {
	x, out := coarse(r, size[0]), bits(r, 1+slack(r))
	if r.IntN(8) == 0 {
		for i := range x {
			x[i] = float32(math.NaN())
		}
	}
	c.Bindings = [][]byte{raw(x), raw(out)}
	out[0] = none
	if at := order(x); len(at) > 0 {
		out[0] = at[0]
	}
	c.Want[1] = raw(out)
}

var topkEdges = [][]uint32{{0, 0}, {0, 3}, {5, 0}, {1, 1}, {5, 64}, {256, 1}, {257, 64}, {4099, 40}}

func drawTopk(r *rand.Rand) []uint32 { return []uint32{upTo(r, longest), r.Uint32N(65)} }

func fillTopk(r *rand.Rand, size []uint32, c *Case) {
	k := size[1]
	x, values, indices := coarse(r, size[0]), ones(r, k+slack(r)), bits(r, k+slack(r))
	c.Bindings = [][]byte{raw(x), raw(values), raw(indices)}
	c.Inline = inline(k)
	at := order(x)
	for i := range k {
		values[i], indices[i] = float32(math.Inf(-1)), none
		if i < uint32(len(at)) {
			values[i], indices[i] = x[at[i]], at[i]
		}
	}
	c.Want[1], c.Want[2] = raw(values), raw(indices)
}

var sampleEdges = [][]uint32{{0, 1}, {1, 1}, {1, 64}, {300, 1}, {300, 40}, {4099, 64}, {3, 64}}

func drawSample(r *rand.Rand) []uint32 { return []uint32{upTo(r, longest), 1 + r.Uint32N(64)} }

func fillSample(r *rand.Rand, size []uint32, c *Case) {
	k, temperature := size[1], float32(0.3+2*r.Float64())
	x, out := scaled(r, size[0], 4), bits(r, 1+slack(r))
	switch r.IntN(6) {
	case 0:
		temperature = 0
	case 1:
		x = coarse(r, size[0])
	}
	c.Bindings = [][]byte{raw(x), raw(out)}
	u, token := sample(r, x, k, temperature)
	out[0] = token
	c.Inline = inline(k, temperature, u)
	c.Want[1] = raw(out)
}

// sample draws a u that is not so close to the border between two tokens that
// rounding could decide, and returns its token.
func sample(r *rand.Rand, x []float32, k uint32, temperature float32) (u float32, token uint32) {
	at := order(x)
	at = at[:min(uint32(len(at)), k)]
	switch {
	case len(at) == 0:
		return r.Float32(), none
	case !(temperature > 0):
		return r.Float32(), at[0]
	}

	ends, total := make([]float64, len(at)), 0.0
	for i, token := range at {
		w := 1.0
		if x[token] != x[at[0]] {
			w = math.Exp((float64(x[token]) - float64(x[at[0]])) / float64(temperature))
		}
		total += w
		ends[i] = total
	}

	for {
		u, token = r.Float32(), none
		near := false
		for i, end := range ends {
			near = near || math.Abs(end/total-float64(u)) < 1e-4 && i < len(ends)-1
			if token == none && end > float64(u)*total {
				token = at[i]
			}
		}
		if !near && token != none {
			return u, token
		}
	}
}
