package librarytest

import (
	"math"
	"math/rand/v2"
)

// Rows of x and of y, n, and elements after the last whole row of each.
var swigluRowsEdges = [][]uint32{{0, 3, 5, 4}, {3, 0, 5, 4}, {2, 2, 0, 9}, {1, 1, 1, 0}, {1, 1, 2, 1}, {3, 2, 172, 0}, {2, 3, 257, 200}, {5, 5, 64, 63},
	{40, 40, 3, 2}}

func drawSwigluRows(r *rand.Rand) []uint32 {
	n, rows := 1+upTo(r, 400), upTo(r, 10)
	return []uint32{rows + slack(r)/3, rows + slack(r)/3, n, r.Uint32N(n)}
}

func fillSwigluRows(r *rand.Rand, size []uint32, c *Case) {
	fillGatedRows(r, size, c, func(a float64) float64 { return a / (1 + math.Exp(-a)) })
}

func fillGegluRows(r *rand.Rand, size []uint32, c *Case) {
	fillGatedRows(r, size, c, func(a float64) float64 {
		return a / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(a+0.044715*a*a*a)))
	})
}

func fillGatedRows(r *rand.Rand, size []uint32, c *Case, activation func(float64) float64) {
	n, rest := size[2], size[3]
	x, y := scaled(r, size[0]*2*n+2*rest, 8), ones(r, size[1]*n+rest)
	for i := range x {
		if r.IntN(10) == 0 {
			x[i] *= 40 // exp overflows, and underflows
		}
	}

	c.Bindings = [][]byte{raw(x), raw(y)}
	c.Inline = inline(n)
	for row := range min(size[0], size[1]) {
		for i := range n {
			a, b := float64(x[row*2*n+i]), float64(x[row*2*n+n+i])
			y[row*n+i] = float32(activation(a) * b)
		}
	}

	c.Want[1] = raw(y)
}

func fillSoftcap(r *rand.Rand, size []uint32, c *Case) {
	x, limit := scaled(r, size[0], 100), 1+50*r.Float32()
	for i := range x {
		switch r.IntN(8) {
		case 0:
			x[i] /= 1000
		case 1:
			x[i] = float32(math.Inf(1 - 2*r.IntN(2)))
		}
	}

	if size[0] == 257 {
		limit = 0
	}
	c.Bindings = [][]byte{raw(x)}
	c.Inline = inline(limit)
	for i, v := range x {
		if limit > 0 {
			x[i] = float32(float64(limit) * math.Tanh(float64(v)/float64(limit)))
		}
	}
	c.Want[0] = raw(x)
}

var headNormEdges = [][]uint32{{4, 2, 8, 0}, {4, 2, 0, 3}, {0, 0, 8, 3}, {0, 1, 4, 2}, {2, 0, 4, 3}, {1, 1, 1, 1}, {8, 4, 64, 3}, {3, 1, 65, 7}, {2, 1, 256, 2}}

func drawHeadNorm(r *rand.Rand) []uint32 {
	return []uint32{1 + upTo(r, 9), 1 + upTo(r, 5), 1 + upTo(r, 140), upTo(r, 8)}
}

func fillHeadNorm(r *rand.Rand, size []uint32, c *Case) {
	heads, kvHeads, dim, batch, eps := size[0], size[1], size[2], size[3], float32(1e-6)
	row := (heads + 2*kvHeads) * dim
	qkv, q, k := ones(r, batch*row+slack(r)), ones(r, dim+slack(r)), ones(r, dim+slack(r))
	if dim == 1 { // the root of nearly nothing would multiply errors
		for i := range qkv {
			qkv[i] += 2
		}
	}
	c.Bindings = [][]byte{raw(qkv), raw(q), raw(k)}
	c.Inline = inline(heads, kvHeads, dim, batch, eps)
	for b := range batch {
		for h := range heads + kvHeads {
			w := q
			if h >= heads {
				w = k
			}
			x, squares := qkv[b*row+h*dim:][:dim], 0.0
			for _, v := range x {
				squares += float64(v) * float64(v)
			}
			scale := 1 / math.Sqrt(squares/float64(max(dim, 1))+float64(eps))
			for i, v := range x {
				x[i] = float32(float64(v) * scale * float64(w[i]))
			}
		}
	}
	c.Want[0] = raw(qkv)
}
