package librarytest

import (
	"math"
	"math/rand/v2"
)

// Sizes of the kernels that go by rows: rows, elements of each, and elements of x
// after the last whole row.
var rowEdges = [][]uint32{{0, 5, 0}, {0, 0, 9}, {0, 5, 3}, {1, 1, 0}, {3, 1, 0}, {2, 2, 1}, {1, 255, 0}, {1, 256, 0},
	{2, 257, 100}, {1, 1000, 0}, {300, 3, 2}}

func drawRows(r *rand.Rand) []uint32 {
	n := 1 + upTo(r, 700)
	return []uint32{upTo(r, 30), n, r.Uint32N(n)}
}

// row is row number i of n elements.
func row(x []float32, i, n uint32) []float32 { return x[i*n : (i+1)*n] }

func fillRMSNorm(r *rand.Rand, size []uint32, c *Case) {
	rows, n, eps := size[0], size[1], float32(1e-5)
	x, w, y := ones(r, rows*n+size[2]), ones(r, n+slack(r)), ones(r, rows*n+slack(r))
	c.Bindings = [][]byte{raw(x), raw(w), raw(y)}
	c.Inline = inline(n, eps)
	for i := range rows {
		var squares float64
		for _, v := range row(x, i, n) {
			squares += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(squares/float64(n)+float64(eps))
		for j, v := range row(x, i, n) {
			row(y, i, n)[j] = float32(float64(v) * scale * float64(w[j]))
		}
	}
	c.Want[2] = raw(y)
}

func fillLayerNorm(r *rand.Rand, size []uint32, c *Case) {
	rows, n, eps := size[0], size[1], float32(1e-5)
	x, w, b, y := ones(r, rows*n+size[2]), ones(r, n+slack(r)), ones(r, n+slack(r)), ones(r, rows*n+slack(r))
	for i := range rows {
		if n == 2 { // two elements that are nearly one would multiply errors by 1/sqrt(eps)
			row(x, i, n)[1] = -row(x, i, n)[0]
		}
	}

	c.Bindings = [][]byte{raw(x), raw(w), raw(b), raw(y)}
	c.Inline = inline(n, eps)
	for i := range rows {
		var mean, variance float64
		for _, v := range row(x, i, n) {
			mean += float64(v) / float64(n)
		}
		for _, v := range row(x, i, n) {
			variance += (float64(v) - mean) * (float64(v) - mean) / float64(n)
		}
		scale := 1 / math.Sqrt(variance+float64(eps))
		for j, v := range row(x, i, n) {
			row(y, i, n)[j] = float32((float64(v)-mean)*scale*float64(w[j]) + float64(b[j]))
		}
	}

	c.Want[3] = raw(y)
}

func fillSoftmax(r *rand.Rand, size []uint32, c *Case) {
	rows, n := size[0], size[1]
	x, y := scaled(r, rows*n+size[2], 12), ones(r, rows*n+slack(r))
	for i := range rows {
		switch in := row(x, i, n); r.IntN(8) {
		case 0: // masked, but for one
			for j := range n - 1 {
				in[j] = float32(math.Inf(-1))
			}
		case 1: // far from 0
			for j := range in {
				in[j] += 1e4
			}
		case 2:
			in[r.IntN(len(in))] = float32(math.NaN())
		}
	}

	c.Bindings = [][]byte{raw(x), raw(y)}
	c.Inline = inline(n)
	for i := range rows {
		softmax(row(y, i, n), row(x, i, n))
	}

	c.Want[1] = raw(y)
}

func softmax(y, x []float32) {
	most, sum := math.Inf(-1), 0.0
	for _, v := range x {
		most = max(most, float64(v))
	}
	for _, v := range x {
		sum += math.Exp(float64(v) - most)
	}
	for i, v := range x {
		y[i] = float32(math.Exp(float64(v)-most) / sum)
	}
}

var ropeEdges = [][]uint32{{0, 8, 3}, {3, 0, 3}, {1, 2, 0}, {1, 2, 1}, {6, 48, 0}, {6, 48, 100}, {32, 128, 1999}, {1, 6, 7}}

func drawRope(r *rand.Rand) []uint32 {
	return []uint32{upTo(r, 20), 2 * upTo(r, 64), upTo(r, 2000)}
}

func fillRope(r *rand.Rand, size []uint32, c *Case) {
	heads, dim, pos, base := size[0], size[1], size[2], float32(10000)
	x := ones(r, heads*dim+slack(r))
	c.Bindings = [][]byte{raw(x)}
	c.Inline = inline(heads, dim, pos, base)
	for p := range heads * dim / 2 {
		i := p % (dim / 2)
		s, cos := math.Sincos(float64(pos) * math.Pow(float64(base), -2*float64(i)/float64(dim)))
		re, im := float64(x[2*p]), float64(x[2*p+1])
		x[2*p], x[2*p+1] = float32(re*cos-im*s), float32(re*s+im*cos)
	}
	c.Want[0] = raw(x)
}

var attentionEdges = [][]uint32{{0, 1, 8, 4}, {4, 2, 0, 3}, {4, 2, 8, 0}, {1, 1, 1, 1}, {2, 2, 48, 1}, {6, 6, 48, 63}, {6, 3, 48, 64},
	{8, 1, 64, 65}, {2, 1, 256, 200}, {3, 3, 65, 130}}

func drawAttention(r *rand.Rand) []uint32 {
	kv := 1 + r.Uint32N(3)
	return []uint32{kv * (1 + r.Uint32N(3)), kv, 1 + upTo(r, 128), upTo(r, 200)}
}

func fillAttention(r *rand.Rand, size []uint32, c *Case) {
	heads, kvHeads, dim, length := size[0], size[1], size[2], size[3]
	width := kvHeads * dim
	q, k, v := scaled(r, heads*dim, 2), scaled(r, length*width+slack(r), 2), ones(r, length*width+slack(r))
	out := ones(r, heads*dim+slack(r))
	c.Bindings = [][]byte{raw(q), raw(k), raw(v), raw(out)}
	c.Inline = inline(heads, kvHeads, dim, length)
	for h := range heads {
		places := make([]uint32, length)
		for p := range places {
			places[p] = uint32(p)*width + h/(heads/kvHeads)*dim
		}
		attend(out[h*dim:][:dim], q[h*dim:][:dim], k, v, places, 1/math.Sqrt(float64(dim)), 0)
	}
	c.Want[3] = raw(out)
}
