package native

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/library/librarytest"
)

// paced are the programs with steady bodies, with small sizes.
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
	"linear_q4_1":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_q5_0":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_q5_1":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_q2_k":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_q3_k":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_q4_k":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_q5_k":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_q6_k":     {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_iq4_nl":   {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_iq4_xs":   {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"linear_mxfp4":    {{64, 256, 1, 0, 64, 0}, {128, 512, 1, 0, 128, 0}},
	"next_token_f32":  {{512, 1, 8}, {512, 8, 8}},
	"swiglu_rows_f32": {{1, 1, 172, 0}, {8, 8, 172, 0}},
	"geglu_rows_f32":  {{1, 1, 172, 0}, {8, 8, 172, 0}},
	"head_norm_f32":   {{8, 4, 64, 1}, {8, 4, 64, 8}},
	"softcap_f32":     {{300}, {4000}},
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

// A body with Nanos has it for every call that it accepts; the time grows with the
// call, and computing it allocates nothing.
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

	// attention_cache_f32 reports half of its maximum: its shapes bound the effect
	// of its data.
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

// TestPaceOfTheWorstData: the reported time includes the slowest shapes, attributes
// and data, up to a factor of about three.
func TestPaceOfTheWorstData(t *testing.T) {
	nanos := func(name string, size ...uint32) uint64 {
		c := librarytest.Sized(name, rand.New(rand.NewPCG(1, 2)), size...)
		call := callOf(&c, c.Fresh())
		_, ok := bodies[name].Items(call)
		require.True(t, ok)
		n, _ := bodies[name].Nanos(call)
		return n
	}

	atLevel(t, func(t *testing.T) {
		i8 := func(rows, cols, group uint32) uint64 { return nanos("linear_i8", rows, cols, 1, 0, rows, 0, group) }
		for _, c := range []struct{ cols, group, runs uint32 }{{4080, 3, 1360}, {4080, 7, 582}, {32767, 2, 16383}, {32767, 16, 2047}, {4080, 12, 340}} {
			require.Greater(t, i8(16, c.cols, c.group), 16*uint64(c.runs)*6, "%d columns in groups of %d", c.cols, c.group)
		}
		if assembly() {
			usual := i8(16, 4080, 16)
			require.Less(t, i8(16, 4080, 24), 4*usual, "whole groups that are expanded at once")
			require.Less(t, i8(16, 4080, 2), 3*usual, "groups that are read as they are")
		}
	})

	// A row of a small model has little to turn; its angles take the time.
	p := newPaged(rand.New(rand.NewPCG(1, 2)), 1, 1, 256, 16, 64, 1, 64)
	said, _ := ropeCacheBody.Nanos(p.rope(0))
	require.Greater(t, said, uint64(64*128*25/3))
}

// BenchmarkWorstData measures the cases that are too slow for
// TestPaceOfTheWorstData.
func BenchmarkWorstData(b *testing.B) {
	bench := func(what, name string, call *Call, before func()) {
		b.Run(what, func(b *testing.B) {
			n, ok := bodies[name].Items(call)
			require.True(b, ok)
			said, _ := bodies[name].Nanos(call)
			for b.Loop() {
				before()
				bodies[name].Run(call, 0, n)
			}
			b.ReportMetric(float64(said), "said-ns")
		})
	}

	for _, v := range []float64{1, math.NaN(), math.Inf(-1), 1e-40} {
		c := librarytest.Sized("next_token_f32", rand.New(rand.NewPCG(1, 2)), 65536, 1, 8)
		call := callOf(&c, c.Fresh())
		for i := range call.f32(0) {
			call.f32(0)[i] = float32(v)
		}
		bench(fmt.Sprint("next_token_f32/", v), "next_token_f32", call, func() {})
	}

	for _, freq := range []float32{0.01, 1e30} {
		p := newPaged(rand.New(rand.NewPCG(1, 2)), 1, 1, 256, 16, 64, 1, 64)
		for i := range p.rows {
			p.rows[i] = uint32((i + 1) % 2 * i / 2 * 15)
		}
		for i := range p.freqs {
			p.freqs[i] = freq
		}
		bench(fmt.Sprint("rope_cache_f32/", freq), "rope_cache_f32", p.rope(0), func() { p.freqs[0] = math.Nextafter32(p.freqs[0], 0) })
	}

	for _, group := range []uint32{2, 3, 7, 12, 16, 32} {
		for _, cols := range []uint32{4080, 4095} {
			c := librarytest.Sized("linear_i8", rand.New(rand.NewPCG(1, 2)), 16, cols, 1, 0, 16, 0, group)
			bench(fmt.Sprintf("linear_i8/%d in groups of %d", cols, group), "linear_i8", callOf(&c, c.Fresh()), func() {})
		}
	}
}
