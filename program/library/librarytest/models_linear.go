package librarytest

import "math/rand/v2"

var (
	matmulEdges = [][]uint32{{0, 0, 0}, {0, 5, 3}, {5, 0, 3}, {5, 3, 0}, {1, 1, 1}, {1, 40, 17}, {40, 1, 17}, {16, 16, 16},
		{17, 15, 33}, {48, 32, 64}}
	matvecEdges = [][]uint32{{0, 0}, {0, 7}, {7, 0}, {1, 1}, {1, 300}, {300, 1}, {64, 64}, {129, 65}, {5, 1000}}
	q8Edges     = [][]uint32{{0, 0}, {0, 32}, {7, 0}, {1, 32}, {300, 32}, {3, 64}, {64, 96}, {129, 288}}
)

func drawMatmul(r *rand.Rand) []uint32 { return []uint32{upTo(r, 60), upTo(r, 60), upTo(r, 90)} }
func drawMatvec(r *rand.Rand) []uint32 { return []uint32{upTo(r, 300), upTo(r, 400)} }
func drawQ8(r *rand.Rand) []uint32     { return []uint32{upTo(r, 200), 32 * r.Uint32N(10)} }

func fillMatmul(r *rand.Rand, size []uint32, c *Case) {
	m, n, k := size[0], size[1], size[2]
	a, b, out := ones(r, m*k+slack(r)), ones(r, k*n+slack(r)), ones(r, m*n+slack(r))
	c.Bindings = [][]byte{raw(a), raw(b), raw(out)}
	c.Inline = inline(m, n, k)
	for row := range m {
		for col := range n {
			var sum float64
			for i := range k {
				sum += float64(a[row*k+i]) * float64(b[i*n+col])
			}
			out[row*n+col] = float32(sum)
		}
	}
	c.Want[2] = raw(out)
}

func fillMatvec(r *rand.Rand, size []uint32, c *Case) {
	rows, cols := size[0], size[1]
	m, x, y := ones(r, rows*cols+slack(r)), ones(r, cols+slack(r)), ones(r, rows+slack(r))
	c.Bindings = [][]byte{raw(m), raw(x), raw(y)}
	c.Inline = inline(rows, cols)
	for row := range rows {
		var sum float64
		for i := range cols {
			sum += float64(m[row*cols+i]) * float64(x[i])
		}
		y[row] = float32(sum)
	}
	c.Want[2] = raw(y)
}

func fillMatvecQ8(r *rand.Rand, size []uint32, c *Case) {
	rows, cols := size[0], size[1]
	w, x, y := q8(r, rows*(cols/32)+slack(r)), ones(r, cols+slack(r)), ones(r, rows+slack(r))
	c.Bindings = [][]byte{w, raw(x), raw(y)}
	c.Inline = inline(rows, cols)
	for row := range rows {
		var sum float64
		for i := range cols {
			sum += weight(w, row*cols+i) * float64(x[i])
		}
		y[row] = float32(sum)
	}
	c.Want[2] = raw(y)
}

var (
	embedEdges   = [][]uint32{{0, 0, 4}, {3, 0, 4}, {3, 5, 0}, {1, 1, 1}, {10, 3, 257}, {100, 40, 17}}
	embedQ8Edges = [][]uint32{{0, 0, 32}, {3, 0, 32}, {3, 5, 0}, {1, 1, 32}, {10, 3, 288}, {50, 20, 64}}
)

func drawEmbed(r *rand.Rand) []uint32 {
	return []uint32{1 + upTo(r, 100), upTo(r, 20), upTo(r, 200)}
}

func drawEmbedQ8(r *rand.Rand) []uint32 {
	return []uint32{1 + upTo(r, 100), upTo(r, 20), 32 * r.Uint32N(8)}
}

// drawTokens are tokens of a table of this many rows.
func drawTokens(r *rand.Rand, n, rows uint32) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = r.Uint32N(rows)
	}
	return out
}

func fillEmbed(r *rand.Rand, size []uint32, c *Case) {
	rows, dim := size[0], size[2]
	table, tokens, y := ones(r, rows*dim), drawTokens(r, size[1], rows), ones(r, size[1]*dim+slack(r))
	c.Bindings = [][]byte{raw(table), raw(tokens), raw(y)}
	c.Inline = inline(dim)
	for t, token := range tokens {
		copy(y[uint32(t)*dim:][:dim], table[token*dim:])
	}
	c.Want[2] = raw(y)
}

func fillEmbedQ8(r *rand.Rand, size []uint32, c *Case) {
	rows, dim := size[0], size[2]
	table, tokens, y := q8(r, rows*(dim/32)), drawTokens(r, size[1], rows), ones(r, size[1]*dim+slack(r))
	c.Bindings = [][]byte{table, raw(tokens), raw(y)}
	c.Inline = inline(dim)
	for t, token := range tokens {
		for i := range dim {
			y[uint32(t)*dim+i] = float32(weight(table, token*dim+i)) // exact: 11 bits times 8
		}
	}
	c.Want[2] = raw(y)
}
