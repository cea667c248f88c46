package librarytest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
)

// stored are n weights of some type: the bindings that hold them, and the value of
// each.
type stored func(r *rand.Rand, n uint32) (bindings [][]byte, value func(i uint32) float64)

func storedF32(r *rand.Rand, n uint32) ([][]byte, func(uint32) float64) {
	w := ones(r, n+slack(r))
	return [][]byte{raw(w)}, func(i uint32) float64 { return float64(w[i]) }
}

func storedF16(r *rand.Rand, n uint32) ([][]byte, func(uint32) float64) {
	w := make([]byte, 2*(n+slack(r)))
	for i := 0; i < len(w); i += 2 {
		exponent := uint16(14 - r.IntN(8))
		if r.IntN(16) == 0 {
			exponent = 0 // subnormal, or zero
		}
		binary.LittleEndian.PutUint16(w[i:], uint16(r.IntN(2))<<15|exponent<<10|uint16(r.IntN(1<<10)))
	}
	return [][]byte{w}, func(i uint32) float64 { return half(binary.LittleEndian.Uint16(w[2*i:])) }
}

func storedBF16(r *rand.Rand, n uint32) ([][]byte, func(uint32) float64) {
	w := make([]byte, 2*(n+slack(r)))
	for i := 0; i < len(w); i += 2 {
		binary.LittleEndian.PutUint16(w[i:], uint16(math.Float32bits(ones(r, 1)[0])>>16))
	}
	return [][]byte{w}, func(i uint32) float64 {
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(w[2*i:])) << 16))
	}
}

// storedQ8 and storedQ4 take a multiple of 32.
func storedQ8(r *rand.Rand, n uint32) ([][]byte, func(uint32) float64) {
	w := q8(r, n/32+slack(r))
	return [][]byte{w}, func(i uint32) float64 { return weight(w, i) }
}

const q4Bytes = 18

func storedQ4(r *rand.Rand, n uint32) ([][]byte, func(uint32) float64) {
	w := make([]byte, q4Bytes*(n/32+slack(r)))
	for at := 0; at < len(w); at += q4Bytes {
		binary.LittleEndian.PutUint16(w[at:], blockScale(r, 6)) // 2^-9 to 2^-3, times 8 at most
		for i := at + 2; i < at+q4Bytes; i++ {
			w[i] = byte(r.Uint32())
		}
	}

	return [][]byte{w}, func(i uint32) float64 {
		block := w[i/32*q4Bytes:]
		q := block[2+i%16]
		if i%32 < 16 {
			q &= 15
		} else {
			q >>= 4
		}
		return half(binary.LittleEndian.Uint16(block)) * (float64(q) - 8)
	}
}

// storedI8 has a scale for each group of weights in turn; the last may be short.
func storedI8(group uint32) stored {
	return func(r *rand.Rand, n uint32) ([][]byte, func(uint32) float64) {
		w, s := make([]byte, n+slack(r)), scaled(r, (n+group-1)/group+slack(r), 0x1p-7)
		for i := range w {
			w[i] = byte(r.Uint32())
		}
		return [][]byte{w, raw(s)}, func(i uint32) float64 { return float64(int8(w[i])) * float64(s[i/group]) }
	}
}

var linearNames = []string{"rows", "cols", "batch", "add", "y_stride", "y_at"}

// Sizes of the kernels linear_*; cols of blocks are edges of their own.
var (
	linearEdges = [][]uint32{{7, 5, 0, 0, 1 << 31, 1 << 31}, {0, 5, 3, 0, 0, 1 << 31}, {7, 0, 1, 0, 0, 0}, {7, 0, 3, 1, 9, 1},
		{1, 1, 1, 0, 0, 0}, {1, 300, 1, 1, 0, 5}, {300, 1, 1, 0, 0, 0}, {64, 64, 1, 0, 64, 0}, {33, 65, 2, 0, 33, 3}, {32, 8, 4, 9, 33, 0},
		{31, 7, 5, 0, 40, 7}, {65, 33, 9, 1, 65, 0}, {5, 1000, 3, 0, 5, 0}, {1, 40, 33, 0, 1, 0}, {70, 96, 8, 0, 200, 130}}
	linearBlockEdges = [][]uint32{{7, 33, 0, 0, 1 << 31, 1 << 31}, {0, 32, 3, 0, 0, 1 << 31}, {7, 0, 1, 0, 0, 0}, {7, 0, 3, 1, 9, 1},
		{1, 32, 1, 0, 0, 0}, {1, 320, 1, 1, 0, 5}, {300, 32, 1, 0, 0, 0}, {64, 64, 1, 0, 64, 0}, {33, 96, 2, 0, 33, 3}, {32, 32, 4, 9, 33, 0},
		{31, 64, 5, 0, 40, 7}, {65, 32, 9, 1, 65, 0}, {5, 1024, 3, 0, 5, 0}, {1, 64, 33, 0, 1, 0}, {70, 96, 8, 0, 200, 130}}
	linearI8Edges = withGroups(linearEdges)
)

// withGroups adds the size of a group to sizes of linear: powers of two and others, some
// larger than all of w.
func withGroups(edges [][]uint32) [][]uint32 {
	groups := []uint32{64, 1, 5, 32, 7, 100, 1 << 31, 8}
	out := make([][]uint32, len(edges))
	for i, size := range edges {
		out[i] = append(append([]uint32(nil), size...), groups[i%len(groups)])
	}
	return out
}

func drawLinear(r *rand.Rand) []uint32 { return drawLinearOf(r, 1) }

func drawLinearBlocks(r *rand.Rand) []uint32 { return drawLinearOf(r, 32) }

func drawLinearI8(r *rand.Rand) []uint32 {
	return append(drawLinearOf(r, 1), 1<<r.Uint32N(8)+r.Uint32N(3))
}

func drawLinearOf(r *rand.Rand, cols uint32) []uint32 {
	rows := upTo(r, 150)
	return []uint32{rows, cols * upTo(r, 200/cols), upTo(r, 12), r.Uint32N(2), rows + slack(r), slack(r) * 3}
}

func fillLinear(of stored) func(*rand.Rand, []uint32, *Case) {
	return func(r *rand.Rand, size []uint32, c *Case) {
		rows, cols, batch, add, stride, at := size[0], size[1], size[2], size[3], size[4], size[5]
		c.Inline = inline(size)
		n, last := rows*cols, at+rows // of y, that of the last row of x
		if rows == 0 || batch == 0 {
			n, last = 0, 0 // nothing to do, and no room for it
		} else {
			last += (batch - 1) * stride
		}

		var value func(uint32) float64
		c.Bindings, value = of(r, n)
		x, y := ones(r, batch*cols), ones(r, last+slack(r))
		c.Bindings = append(c.Bindings, raw(x), raw(y))
		if rows > 0 {
			for b := range batch {
				for row := range rows {
					sum, to := 0.0, b*stride+at+row
					for i := range cols {
						sum += value(row*cols+i) * float64(x[b*cols+i])
					}
					if add != 0 {
						sum += float64(y[to])
					}
					y[to] = float32(sum)
				}
			}
		}

		c.Want[len(c.Bindings)-1] = raw(y)
	}
}

func fillLinearI8(r *rand.Rand, size []uint32, c *Case) {
	fillLinear(storedI8(size[6]))(r, size, c)
}

func fillEmbedOf(of stored) func(*rand.Rand, []uint32, *Case) {
	return func(r *rand.Rand, size []uint32, c *Case) {
		rows, tokens, dim := size[0], drawTokens(r, size[1], size[0]), size[2]
		var value func(uint32) float64
		c.Bindings, value = of(r, rows*dim)
		y := ones(r, size[1]*dim+slack(r))
		c.Bindings = append(c.Bindings, raw(tokens), raw(y))
		c.Inline = inline(size[2:])
		for t, token := range tokens {
			for i := range dim {
				y[uint32(t)*dim+i] = float32(value(token*dim + i)) // exact, or rounded once
			}
		}
		c.Want[len(c.Bindings)-1] = raw(y)
	}
}

var embedI8Edges = [][]uint32{{1, 0, 8, 8}, {5, 3, 0, 8}, {1, 1, 1, 1}, {40, 300, 7, 5}, {300, 40, 64, 32}, {9, 5, 48, 1000}, {7, 2, 33, 64}}

func drawEmbedI8(r *rand.Rand) []uint32 { return append(drawEmbed(r), 1+upTo(r, 99)) }

func fillEmbedI8(r *rand.Rand, size []uint32, c *Case) {
	fillEmbedOf(storedI8(size[3]))(r, size, c)
}
