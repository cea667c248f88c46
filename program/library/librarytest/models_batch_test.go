package librarytest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The values of stored weights, seen without the model.
func TestStored(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	b, value := storedF16(r, 2)
	copy(b[0], []byte{0x00, 0x3C, 0x01, 0x80}) // 1, and the smallest below 0
	require.Equal(t, []float64{1, -0x1p-24}, []float64{value(0), value(1)})

	b, value = storedBF16(r, 2)
	copy(b[0], []byte{0x80, 0x3F, 0x49, 0xC0})
	require.Equal(t, []float64{1, -3.140625}, []float64{value(0), value(1)})

	b, value = storedQ4(r, 64)
	block := b[0][q4Bytes:]
	block[0], block[1] = 0x00, 0x40 // 2
	block[2], block[2+15] = 0xF0, 0x1A
	require.Equal(t, []float64{-16, 14, 4, -14}, []float64{value(32), value(32 + 16), value(32 + 15), value(32 + 31)})

	b, value = storedI8(3)(r, 7)
	copy(b[0], []byte{1, 2, 3, 0xFF, 5, 6, 0x80})
	s := floats(b[1])
	require.Equal(t, []float64{3 * float64(s[0]), -float64(s[1]), 6 * float64(s[1]), -128 * float64(s[2])},
		[]float64{value(2), value(3), value(5), value(6)})
}

func TestBatchModels(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	c := Sized("linear_f32", r, 2, 1, 2, 1, 5, 3)
	w, x, was, y := floats(c.Bindings[0]), floats(c.Bindings[1]), floats(c.Bindings[2]), floats(c.Want[2])
	require.Equal(t, was[:3], y[:3])
	require.InDelta(t, was[3]+w[0]*x[0], y[3], 1e-6)
	require.InDelta(t, was[4]+w[1]*x[0], y[4], 1e-6)
	require.Equal(t, was[5:8], y[5:8])
	require.InDelta(t, was[9]+w[1]*x[1], y[9], 1e-6)

	// One head of one position: the value is the result.
	c = Sized("attention_cache_f32", r, 1, 1, 4, 1, 1, 1, 1, 0)
	page := words(c.Bindings[2])[0]
	require.Equal(t, floats(c.Bindings[4])[4*page:][:4], floats(c.Want[5])[:4])

	c = Sized("rope_cache_f32", r, 1, 1, 2, 1, 0, 1, 1, 1) // position 0 turns nothing, and only scales
	by := floats(c.Inline[28:])[0]
	if floats(c.Bindings[1])[0] == 0 {
		by = 1
	}
	qkv, page := floats(c.Bindings[0]), words(c.Bindings[3])[0]
	require.Equal(t, c.Bindings[0][8:], c.Want[0][8:])
	for i := range 2 {
		require.InDelta(t, qkv[i]*by, floats(c.Want[0])[i], 1e-6)
		require.InDelta(t, qkv[2+i]*by, floats(c.Want[4])[2*page:][i], 1e-6)
	}
	require.Equal(t, qkv[4:6], floats(c.Want[5])[2*page:][:2])

	c = Sized("swiglu_rows_f32", r, 1, 1, 2, 0)
	a, b := float64(floats(c.Bindings[0])[1]), float64(floats(c.Bindings[0])[3])
	require.InDelta(t, a/(1+math.Exp(-a))*b, floats(c.Want[1])[1], 1e-5)
}

// The drawn batches have padding, several rows of a sequence, pages out of order,
// and entries of the table that are no pages.
func TestDrawnCaches(t *testing.T) {
	var padded, together, unordered, garbage int
	for seed := range uint64(20) {
		c := drawCache(rand.New(rand.NewPCG(seed, 1)), 9, 4, 5, 3, 0)
		seen := map[uint32]int{}
		for b := range 9 {
			position, sequence := c.rows[2*b], c.rows[2*b+1]
			if sequence == padding {
				padded++
				continue
			}
			if seen[sequence]++; seen[sequence] == 2 {
				together++
			}
			for p := range position + 1 {
				require.Less(t, c.at(sequence, p), c.count*c.page)
				if p > 0 && c.at(sequence, p) < c.at(sequence, p-1) {
					unordered++
				}
			}
		}

		for _, page := range c.table {
			if page >= c.count {
				garbage++
			}
		}
	}

	for _, n := range []int{padded, together, unordered, garbage} {
		require.NotZero(t, n)
	}
}
