package native

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/library/librarytest"
)

// paced are the programs whose bodies are steady, with small sizes.
var paced = map[string][][]uint32{
	"copy":           {{4, 4}, {1024, 1024}, {16384, 16384}},
	"fill_u32":       {{4}, {1024}, {16384}},
	"vecadd_f32":     {{4, 4, 4}, {1024, 1024, 1024}, {16384, 16384, 16384}},
	"saxpy_f32":      {{4, 4}, {1024, 1024}, {16384, 16384}},
	"swiglu_f32":     {{4, 4, 4}, {1024, 1024, 1024}},
	"rmsnorm_f32":    {{1, 64, 0}, {4, 1024, 0}},
	"layernorm_f32":  {{1, 64, 0}, {4, 1024, 0}},
	"softmax_f32":    {{1, 64, 0}, {4, 1024, 0}},
	"matvec_f32":     {{4, 4}, {64, 64}, {128, 256}},
	"matvec_wg_f32":  {{64, 64}},
	"matvec_q8_0":    {{4, 32}, {64, 64}, {128, 256}},
	"matvec_wg_q8_0": {{64, 64}},
	"reduce_f32":     {{1024, 1}, {16384, 4}},

	"linear_f32":      {{4, 4, 1, 0, 4, 0}, {64, 64, 1, 0, 64, 0}, {128, 256, 1, 0, 128, 0}, {128, 256, 8, 0, 128, 0}},
	"linear_f16":      {{64, 64, 1, 0, 64, 0}, {128, 256, 1, 0, 128, 0}},
	"linear_bf16":     {{64, 64, 1, 0, 64, 0}, {128, 256, 1, 0, 128, 0}},
	"linear_q8_0":     {{64, 64, 1, 0, 64, 0}, {128, 256, 1, 0, 128, 0}, {128, 256, 8, 0, 128, 0}},
	"linear_q4_0":     {{64, 64, 1, 0, 64, 0}, {128, 256, 1, 0, 128, 0}},
	"linear_i8":       {{64, 64, 1, 0, 64, 0, 64}, {128, 256, 1, 0, 128, 0, 64}, {128, 256, 1, 0, 128, 0, 4}},
	"next_token_f32":  {{512, 1, 8}, {512, 8, 8}},
	"swiglu_rows_f32": {{1, 1, 172, 0}, {8, 8, 172, 0}},
}

func BenchmarkPace(b *testing.B) {
	for name, sizes := range paced {
		for _, size := range sizes {
			b.Run(fmt.Sprint(name, size), func(b *testing.B) {
				c := librarytest.Sized(name, rand.New(rand.NewPCG(1, 2)), size...)
				call := callOf(&c, c.Fresh())
				body := bodies[name]
				n, ok := body.Items(call)
				require.True(b, ok)
				said, _ := body.Nanos(call)
				b.ReportAllocs()
				for b.Loop() {
					body.Run(call, 0, n)
				}
				b.ReportMetric(float64(said), "said-ns")
			})
		}
	}
}

// What says how long it takes does so for every call that it does, grows with the
// call, and allocates nothing.
func TestPace(t *testing.T) {
	steady := map[string]bool{}
	for name, b := range bodies {
		if b.Nanos == nil {
			continue
		}
		steady[name] = true
		for _, c := range librarytest.Cases(name, rand.New(rand.NewPCG(3, 4)), 20) {
			call := callOf(&c, c.Fresh())
			n, ok := b.Items(call)
			if !ok {
				continue
			}
			nanos, _ := b.Nanos(call)
			require.Positive(t, nanos, c.Name)
			require.Less(t, nanos, uint64(1e9), c.Name)
			if !raceEnabled {
				require.Zero(t, testing.AllocsPerRun(3, func() { b.Run(call, 0, n) }), c.Name)
			}
		}
	}
	// attention_cache_f32 says half of what it takes at the most: its shapes bound what
	// its data may ask for.
	for _, name := range []string{"topk_f32", "argmax_f32", "attention_f32", "rope_f32"} {
		require.False(t, steady[name], "%s takes as long as its data say", name)
	}
	for name, sizes := range paced {
		require.True(t, steady[name], name)
		last := uint64(0)
		for _, size := range sizes {
			c := librarytest.Sized(name, rand.New(rand.NewPCG(1, 2)), size...)
			call := callOf(&c, c.Fresh())
			_, ok := bodies[name].Items(call)
			require.True(t, ok)
			nanos, _ := bodies[name].Nanos(call)
			require.Greater(t, nanos, last, "%s %v", name, size)
			last = nanos
		}
	}
	// Rows of a table may be anywhere in it.
	c := librarytest.Sized("embed_f32", rand.New(rand.NewPCG(1, 2)), 40, 3000, 1)
	call := callOf(&c, c.Fresh())
	_, ok := bodies["embed_f32"].Items(call)
	require.True(t, ok)
	nanos, _ := bodies["embed_f32"].Nanos(call)
	require.Greater(t, nanos, uint64(200_000))
	atLevel(t, func(t *testing.T) {
		c := librarytest.Sized("swiglu_f32", rand.New(rand.NewPCG(1, 2)), 4, 4, 4)
		call := callOf(&c, c.Fresh())
		_, ok := bodies["swiglu_f32"].Items(call)
		require.True(t, ok)
		_, ok = bodies["swiglu_f32"].Nanos(call)
		require.Equal(t, assembly(), ok, "exponentials in Go are not steady")
	})
}
