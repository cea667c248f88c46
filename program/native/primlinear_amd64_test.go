package native

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"capgpu/program/library/librarytest"
)

// TestExpansions: assembly and Go compute the same values from any bits.
func TestExpansions(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(73, 74))
		for n := 0; n < 100; n++ {
			w := make([]byte, 4*n+q4Bytes*n)
			for i := range w {
				w[i] = byte(r.Uint32())
			}

			both := func(name string, n int, fast, slow func(dst []float32)) {
				t.Helper()
				got, g := guard(r, n)
				want := make([]float32, n)
				fast(got)
				slow(want)
				g.check(t, name)
				bits(t, want, got, fmt.Sprint(name, n))
			}

			both("f16", n, func(d []float32) { expandF16(d, w) }, func(d []float32) { expandF16Go(d, w) })
			both("bf16", n, func(d []float32) { expandBF16(d, w) }, func(d []float32) { expandBF16Go(d, w) })
			both("q4", n*q4Values, func(d []float32) { expandQ4(d, w) }, func(d []float32) { expandQ4Go(d, w) })
			both("i8", n, func(d []float32) { expandI8(d, w, 0.3, keep) }, func(d []float32) { expandI8Go(d, w, 0.3) })
		}
	})
}

// TestBlockExpansions: the code for blocks as they are stored, and for others, gives the
// bits that Go's does.
func TestBlockExpansions(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(75, 76))
		for typ := typeQ41; typ <= typeIQ4XS; typ++ {
			name := linearNames[typ][len("linear_"):]
			packed, b := librarytest.BlockTypes[name], blocks[typ]
			for n := uint64(1); n < 12; n++ {
				var w []byte
				for range n * 256 / b.values {
					w = append(w, packed.Draw(r)...)
				}
				got, g := guard(r, int(n)*256)
				expandBlocks(typ, got, w, keep)
				g.check(t, name)

				want, was := make([]float32, len(got)), level
				level = levelGo
				expandBlocks(typ, want, w, keep)
				level = was
				bits(t, want, got, fmt.Sprint(name, n))
			}
		}
	})
}
