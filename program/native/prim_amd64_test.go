package native

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/library/librarytest"
)

// flushAll makes subnormal numbers zeros where the assembly does.
func flushAll(x []float32) {
	for i := range x {
		x[i] = flushed(x[i])
	}
}

// atLevel runs a test with every instruction set that the machine has.
func atLevel(t *testing.T, f func(t *testing.T)) {
	have := level
	defer func() { level = have }()
	for l, name := range []string{"go", "avx2", "avx512"} {
		if l > have {
			t.Run(name, func(t *testing.T) { t.Skipf("this processor has no %s", name) })
			continue
		}
		level = l
		t.Run(name, f)
	}
}

// guarded is n random values with canaries around them.
type guarded []float32

func guard(r *rand.Rand, n int) ([]float32, guarded) {
	g := make(guarded, n+64)
	for i := range g {
		g[i] = float32(r.NormFloat64())
	}
	for i := range 32 {
		g[i], g[n+32+i] = 1e30, 1e30
	}
	return g[32 : n+32 : n+32], g
}

func (g guarded) check(t *testing.T, what string) {
	t.Helper()
	for i := range 32 {
		require.Equal(t, float32(1e30), g[i], what)
		require.Equal(t, float32(1e30), g[len(g)-1-i], what)
	}
}

func near(t *testing.T, want, got []float32, rel, abs float64, what string) {
	t.Helper()
	for i := range want {
		w, g := float64(want[i]), float64(got[i])
		if math.IsNaN(w) && math.IsNaN(g) || w == g {
			continue
		}
		if !(math.Abs(w-g) <= abs+rel*math.Abs(w)) {
			require.Failf(t, "not near", "%s [%d]: want %v, got %v", what, i, want[i], got[i])
		}
	}
}

// TestElementwisePrimitives compares each with its Go twin at every length up to
// three registers and some longer ones, and checks for writes beyond the end.
func TestElementwisePrimitives(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for n := 0; n < 100; n++ {
			x, _ := guard(r, n)
			w, _ := guard(r, n)
			b, _ := guard(r, n)
			if n > 3 {
				x[n-1], x[n-2], x[n/2] = float32(math.Inf(1)), float32(math.NaN()), -0
			}

			s := float32(r.NormFloat64())
			dst, g := guard(r, n)
			want := append([]float32(nil), dst...)
			what := fmt.Sprint("length ", n)
			both := func(rel float64, name string, fast, slow func(dst []float32)) {
				t.Helper()
				copy(want, dst)
				fast(dst)
				slow(want)
				g.check(t, name+what)
				if rel == 0 {
					bits(t, want, dst, name+what)
				} else {
					near(t, want, dst, rel, 0, name+what)
				}
			}

			both(0, "add", func(d []float32) { add(d, x, w) }, func(d []float32) { addGo(d, x, w) })
			both(0, "saxpy", func(d []float32) { saxpy(d, x, s) }, func(d []float32) { saxpyGo(d, x, s) })
			both(0, "scale", func(d []float32) { scale(d, x, s) }, func(d []float32) { scaleGo(d, x, s) })
			both(0, "scaleMul", func(d []float32) { scaleMul(d, x, w, s, keep) }, func(d []float32) { scaleMulGo(d, x, w, s) })
			both(0, "norm", func(d []float32) { norm(d, x, w, b, s, 2, keep) }, func(d []float32) { normGo(d, x, w, b, s, 2) })
			both(1e-6, "swiglu", func(d []float32) { swiglu(d, x, w) }, func(d []float32) { swigluGo(d, x, w) })
			if n%2 == 0 {
				both(0, "rotate", func(d []float32) { rotate(d, w, b) }, func(d []float32) { rotateGo(d, w, b) })
			}

			heads := n / 6 * 6 // of six elements
			both(0, "rotateHalves", func(d []float32) { rotateHalves(d[:heads], w[:min(n, 3)], b[:min(n, 3)]) },
				func(d []float32) { rotateHalvesGo(d[:heads], w[:min(n, 3)], b[:min(n, 3)]) })

			both(0, "one head", func(d []float32) { rotateHalves(d[:n&^1], w[:n/2], b[:n/2]) },
				func(d []float32) { rotateHalvesGo(d[:n&^1], w[:n/2], b[:n/2]) })
			var fastSum, slowSum float32
			both(1e-6, "expSum", func(d []float32) { fastSum = expSum(d, w, s) }, func(d []float32) { slowSum = expSumGo(d, w, s) })
			near(t, []float32{slowSum}, []float32{fastSum}, 1e-5, 0, "expSum"+what)
			u := u32s(bytesOf(dst))
			fill(u, 0xdeadbeef)
			for _, v := range u {
				require.Equal(t, uint32(0xdeadbeef), v)
			}

			g.check(t, "fill")
		}
	})
}

func TestScaleHeads(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for dim := 1; dim < 40; dim++ {
			for heads := range 4 {
				x, _ := guard(r, heads*dim)
				total, _ := guard(r, heads)
				got, g := guard(r, heads*dim)
				want := make([]float32, heads*dim)
				scaleHeads(got, x, total, dim)
				scaleHeadsGo(want, x, total, dim)
				g.check(t, "scaleHeads")
				bits(t, want, got, fmt.Sprint(heads, " heads of ", dim))
			}
		}
	})
}

func TestReducePrimitives(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		for n := 0; n < 200; n++ {
			x, _ := guard(r, n)
			what := fmt.Sprint("length ", n)
			near(t, []float32{sumGo(x)}, []float32{sum(x, flush)}, 1e-5, 1e-4, what)
			near(t, []float32{sumSquaresGo(x, 0.5)}, []float32{sumSquares(x, 0.5, flush)}, 1e-5, 0, what)
			require.Equal(t, largestGo(x), largest(x), what)
			for range 4 {
				threshold := float32(r.NormFloat64()) + 1
				require.Equal(t, findAboveGo(x, threshold), findAbove(x, threshold), what)
			}

			if n > 0 {
				x[r.IntN(n)] = float32(math.NaN())
				require.Equal(t, largestGo(x), largest(x), what)
				m := largestGo(x)
				require.Equal(t, findAboveGo(x, m-1e-3), findAbove(x, m-1e-3), what)
				for i := range x {
					x[i] = float32(math.NaN())
				}

				require.Equal(t, -1, firstNumber(x), what)
				require.EqualValues(t, uint32(none), best(x), what)
				first := r.IntN(n)
				for i := first; i < n; i += 1 + r.IntN(9) {
					x[i] = float32(math.Inf(-1))
				}

				require.Equal(t, first, firstNumberGo(x), what)
				require.Equal(t, first, firstNumber(x), what)
				require.EqualValues(t, first, best(x), what)
			}
		}
	})
}

// TestExponential goes through the whole range, the subnormal results, which are
// flushed, and beyond.
func TestExponential(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		var x []float32
		for v := float32(-110); v < 95; v += 0.00390625 * 3 {
			x = append(x, v)
		}

		inf := float32(math.Inf(1))
		x = append(x, inf, -inf, float32(math.NaN()), 0, 88.72283, 88.72284, -87.33655, -103.97208, -103.97209, -math.MaxFloat32, math.MaxFloat32)
		got, want := make([]float32, len(x)), make([]float32, len(x))
		expSum(got, x, 0)
		expSumGo(want, x, 0)
		flushAll(want)
		near(t, want, got, 2.5e-7, 2.9e-45, "exp")

		ones := make([]float32, len(x))
		for i := range ones {
			ones[i] = 1
		}

		swiglu(got, x, ones)
		swigluGo(want, x, ones)
		flushAll(want)
		near(t, want, got, 1e-6, 2.9e-45, "swiglu")

		// Weights of attention, from the largest score down.
		a := new(attend)
		const n, heads = 500, 3
		scores := a.weights[:]
		for h := range heads {
			for i := range n {
				scores[h*attendStep+i] = float32(h) - float32((i*7+h)%n)/4
			}
			a.most[h] = float32(h) - 5
		}

		wide := append([]float32(nil), scores...)
		a.weigh(n, heads)
		for h := range heads {
			w := wide[h*attendStep:][:n]
			most := max(largestGo(w), float32(h)-5)
			require.Equal(t, most, a.most[h])
			sum := expSumGo(w, w, most)
			flushAll(w)
			near(t, w, scores[h*attendStep:][:n], 2.5e-7, 2.9e-45, "weights")
			near(t, []float32{sum}, a.sum[h:h+1], 1e-6, 0, "their sum")
		}
	})
}

func TestDotPrimitives(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 6))
		for cols := 1; cols < 150; cols++ {
			rows, stride := 1+r.IntN(9), cols+r.IntN(5)
			m, _ := guard(r, rows*stride)
			x, _ := guard(r, cols)
			y, g := guard(r, rows)
			want := make([]float32, rows)
			what := fmt.Sprintf("%d rows of %d by %d", rows, cols, stride)
			dotRows(y, m, x, stride)
			dotRowsGo(want, m, x, stride)
			g.check(t, what)
			near(t, want, y, 1e-5, 1e-5, what)
			for i := range y { // alone: the same bits
				var one [1]float32
				dotRows(one[:], m[i*stride:], x, stride)
				bits(t, y[i:i+1], one[:], what)
			}

			acc, g := guard(r, cols)
			sums := append([]float32(nil), acc...)
			p, _ := guard(r, rows)
			axpyRows(acc, m, p, stride)
			axpyRowsGo(sums, m, p, stride)
			g.check(t, what)
			near(t, sums, acc, 1e-5, 1e-5, what)
		}
	})
}

// TestProductsHaveTheSameBits: on every processor with fused multiply-add.
func TestProductsHaveTheSameBits(t *testing.T) {
	if level < levelAVX512 {
		t.Skip("this processor has no AVX-512 to compare with")
	}
	defer func(l int) { level = l }(level)
	c := librarytest.Sized("matmul_f32", rand.New(rand.NewPCG(9, 9)), 40, 70, 300)
	var results [][][]byte
	for _, level = range []int{levelAVX2, levelAVX512} {
		got := c.Fresh()
		require.True(t, whole(t, matmulBody, callOf(&c, got)))
		results = append(results, got)
	}
	require.True(t, bytes.Equal(results[0][2], results[1][2]))
}

func randomQ8(r *rand.Rand, blocks int) []byte {
	w := make([]byte, blocks*q8Bytes)
	for i := range w {
		w[i] = byte(r.Uint32())
	}
	for b := range blocks {
		w[b*q8Bytes+1] &= 0xa3 // scales below 2, and subnormal ones
	}
	return w
}

func TestQ8Primitives(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for blocks := 1; blocks < 20; blocks++ {
			rows := 1 + r.IntN(5)
			w := randomQ8(r, rows*blocks)
			x, _ := guard(r, blocks*q8Values)
			y, g := guard(r, rows)
			want := make([]float32, rows)
			dotRowsQ8(y, w, x)
			dotRowsQ8Go(want, w, x)
			g.check(t, "q8")
			near(t, want, y, 1e-4, 1e-2, "q8")
			values, g := guard(r, rows*blocks*q8Values)
			exact := make([]float32, len(values))
			expandQ8(values, w)
			expandQ8Go(exact, w)
			g.check(t, "expand")
			bits(t, exact, values, "expand")
		}
	})
}

// TestHalves compares the Go conversion with the processor's, for all halves.
func TestHalves(t *testing.T) {
	if level < levelAVX2 {
		t.Skip("this processor has no AVX2")
	}
	w := make([]byte, q8Bytes)
	w[2] = 1
	var got [q8Values]float32
	for h := range 1 << 16 {
		w[0], w[1] = byte(h), byte(h>>8)
		expandQ8AVX2(got[:], w)
		want := f16(uint16(h))
		if math.Float32bits(want) != math.Float32bits(got[0]) {
			require.Failf(t, "half", "%#x: want %v, got %v", h, want, got[0])
		}
	}
}
