package native

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/program"
	"capgpu/program/native/floatstest"
)

// control is MXCSR without the exception flags.
func control() subnormals { return subnormals(floatstest.Mode() &^ 0x3F) }

// onThread runs a test on one thread, which has Go's float mode before and after.
func onThread(t *testing.T) {
	runtime.LockOSThread()
	RestoreFloats()
	t.Cleanup(func() {
		RestoreFloats()
		runtime.UnlockOSThread()
	})
}

// TestFloatsAreGivenBack: after each body, the thread has Go's float mode.
func TestFloatsAreGivenBack(t *testing.T) {
	onThread(t)
	require.Equal(t, keep, control())
	floatstest.SetMode(uint32(flush))
	require.Equal(t, flush, control())
	RestoreFloats()
	require.Equal(t, keep, control())
	cases := drawn()
	atLevel(t, func(t *testing.T) {
		onThread(t)
		for _, name := range names {
			for _, c := range cases[name] {
				call := callOf(&c, c.Fresh())
				if n, ok := bodies[name].Items(call); ok {
					bodies[name].Run(call, 0, n)
					require.Equal(t, keep, control(), c.Name)
				}
			}
		}
	})
}

var once1 = program.Dim3{X: 1, Y: 1, Z: 1}

// callWith is a call of one workgroup.
func callWith(inline []uint32, bindings ...[]byte) *Call {
	return &Call{Grid: once1, Block: once1, Bindings: bindings, Inline: bytesOf(inline)}
}

// repeated is n times v.
func repeated(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// gone is memory of which every access faults.
func gone(t *testing.T, size int) []byte {
	m, err := unix.Mmap(-1, 0, (size+4095)&^4095, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(m) })
	return m[:size]
}

// TestFloatsAfterAFault: a fault leaves the thread in the assembly's mode, which
// RestoreFloats repairs.
func TestFloatsAfterAFault(t *testing.T) {
	onThread(t)
	atLevel(t, func(t *testing.T) {
		onThread(t)
		left := keep
		fault := func() (p any) {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				p, left = recover(), control()
				RestoreFloats()
			}()
			c := callWith([]uint32{32, 32, 1, 0, 32, 0}, gone(t, 4*32*32), bytesOf(repeated(32, 1)), bytesOf(repeated(32, 0)))
			n, ok := bodies["linear_f32"].Items(c)
			require.True(t, ok)
			bodies["linear_f32"].Run(c, 0, n)
			return nil
		}()
		require.NotNil(t, fault)
		require.Equal(t, keep, control())
		if assembly() {
			require.Equal(t, flush, left, "if a fault leaves nothing behind, RestoreFloats is for nothing")
		}
	})
}

const tiny = 1e-40 // subnormal

// TestSubnormals: bodies with a tolerance treat subnormal operands and results as
// zeros, and exact ones do not.
func TestSubnormals(t *testing.T) {
	const n = 80 // several registers, and a rest
	run := func(name string, y []float32, c *Call) []float32 {
		t.Helper()
		items, ok := bodies[name].Items(c)
		require.True(t, ok, name)
		require.True(t, bodies[name].Run(c, 0, items), name)
		return y
	}

	y := func() []float32 { return repeated(n, 7) }
	u := func(x ...float32) []float32 { return x }
	atLevel(t, func(t *testing.T) {
		if !assembly() {
			t.Skip("Go keeps them")
		}

		flushes := map[string]func() []float32{
			"rmsnorm_f32": func() []float32 {
				out := y()
				return run("rmsnorm_f32", out, callWith([]uint32{n, math.Float32bits(1e-6)}, bytesOf(repeated(n, tiny)), bytesOf(repeated(n, 1e-3)), bytesOf(out)))
			},
			"layernorm_f32": func() []float32 {
				out := y()
				return run("layernorm_f32", out, callWith([]uint32{n, math.Float32bits(1e-6)}, bytesOf(repeated(n, tiny)), bytesOf(repeated(n, 1)), bytesOf(repeated(n, tiny)), bytesOf(out)))
			},
			"swiglu_f32": func() []float32 {
				out := y()
				return run("swiglu_f32", out, callWith(nil, bytesOf(repeated(n, tiny)), bytesOf(repeated(n, 1)), bytesOf(out)))
			},
			"softmax_f32": func() []float32 {
				x, out := repeated(n, -90), y()
				x[3] = 0
				run("softmax_f32", out, callWith([]uint32{n}, bytesOf(x), bytesOf(out)))
				require.Equal(t, float32(1), out[3])
				return append(out[:3:3], out[4:]...)
			},
			"reduce_f32": func() []float32 {
				out := u(7)
				return run("reduce_f32", out, callWith(nil, bytesOf(repeated(n, tiny)), bytesOf(out)))
			},
			"matvec_f32": func() []float32 {
				out := y()
				return run("matvec_f32", out, callWith([]uint32{n, n}, bytesOf(repeated(n*n, tiny)), bytesOf(repeated(n, 1)), bytesOf(out)))
			},
			"matmul_f32": func() []float32 {
				out := repeated(n*n, 7)
				return run("matmul_f32", out, callWith([]uint32{n, n, n}, bytesOf(repeated(n*n, tiny)), bytesOf(repeated(n*n, 1)), bytesOf(out)))
			},
			"linear_f32, results": func() []float32 {
				out := y()
				return run("linear_f32", out, callWith([]uint32{n, n, 1, 0, n, 0}, bytesOf(repeated(n*n, 1e-20)), bytesOf(repeated(n, 1e-21)), bytesOf(out)))
			},
		}

		for name, f := range flushes {
			for i, v := range f() {
				require.Zero(t, v, "%s: %d", name, i)
			}
		}

		exact := map[string]func() []float32{
			"vecadd_f32": func() []float32 {
				out := y()
				return run("vecadd_f32", out, callWith(nil, bytesOf(repeated(n, tiny)), bytesOf(repeated(n, 0)), bytesOf(out)))
			},
			"saxpy_f32": func() []float32 {
				out := repeated(n, 0)
				return run("saxpy_f32", out, callWith([]uint32{math.Float32bits(1)}, bytesOf(repeated(n, tiny)), bytesOf(out)))
			},
			"rmsnorm_f32, without eps": func() []float32 { // x is 1e-21, its square subnormal
				out := y()
				run("rmsnorm_f32", out, callWith([]uint32{n, 0}, bytesOf(repeated(n, 1e-21)), bytesOf(repeated(n, 1)), bytesOf(out)))
				for i, v := range out {
					require.InDelta(t, 1, v, 0.1, i)
					out[i] = tiny
				}
				return out
			},
		}

		for _, group := range []uint32{1, 2, 3, 4, 7, 8, 16, 40, n} {
			exact[fmt.Sprint("embed_i8 ", group)] = func() []float32 {
				out := y()
				ones := bytes.Repeat([]byte{1}, n)
				return run("embed_i8", out, callWith([]uint32{n, group}, ones, bytesOf(repeated(n, tiny)), bytesOf([]uint32{0}), bytesOf(out)))
			}
		}

		for name, f := range exact {
			for i, v := range f() {
				require.Equal(t, float32(tiny), v, "%s: %d", name, i)
			}
		}
	})
}

// TestSubnormalBatches: the result of a row does not depend on the rest of its
// batch, even if weights, scales, vectors, results, or the values they are added to
// are subnormal.
func TestSubnormalBatches(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(91, 92))
		small := func(n int, about float64) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(about * math.Pow(10, 3*r.NormFloat64()) * (r.Float64() - 0.5))
			}
			return x
		}

		for _, size := range [][2]int{{1, 40}, {7, 33}, {16, 32}, {21, 64}, {37, 48}, {70, 17}} {
			rows, cols := size[0], size[1]
			for _, about := range []float64{1e-38, 1e-19, 1} {
				weights := map[string]func() ([][]byte, []uint32){
					"linear_f32": func() ([][]byte, []uint32) { return [][]byte{bytesOf(small(rows*cols, about))}, nil },
				}

				for _, group := range []int{1, 3, 4, 8, 16, cols} {
					weights[fmt.Sprint("linear_i8 ", group)] = func() ([][]byte, []uint32) {
						q := make([]byte, rows*cols)
						for i := range q {
							q[i] = byte(r.Uint32())
						}
						return [][]byte{q, bytesOf(small((rows*cols+group-1)/group, about))}, []uint32{uint32(group)}
					}
				}

				for what, make := range weights {
					name := "linear_f32"
					if what != name {
						name = "linear_i8"
					}

					w, more := make()
					const batch = 9
					x, y := small(batch*cols, 1e-38/about), small(batch*rows, 1e-38)
					run := func(x, y []float32, batch int) {
						inline := append([]uint32{uint32(rows), uint32(cols), uint32(batch), 1, uint32(rows), 0}, more...)
						c := callWith(inline, append(append([][]byte(nil), w...), bytesOf(x), bytesOf(y))...)
						require.True(t, whole(t, bodies[name], c), what)
					}

					alone := append([]float32(nil), y...)
					for b := range batch {
						run(x[b*cols:][:cols], alone[b*rows:][:rows], 1)
					}

					run(x, y, batch)
					require.Equal(t, bytesOf(alone), bytesOf(y), "%s, %d rows of %d, about %g", what, rows, cols, about)
				}
			}
		}
	})
}

// TestAssemblyIsShort: one call of a tile, or of attention, is bounded, and gives
// the same in pieces.
func TestAssemblyIsShort(t *testing.T) {
	atLevel(t, func(t *testing.T) {
		if level < levelAVX512 {
			t.Skip("only the wide registers have it")
		}

		const rows, cols, batch = 19, 20000, 5
		require.Greater(t, 16*cols*vectorsOnce(), uint64(tileWords))
		r := rand.New(rand.NewPCG(5, 6))
		l := newLayer(r, typeF32, rows, cols, 1)
		x, y, alone := make([]float32, batch*cols), make([]float32, batch*rows), make([]float32, batch*rows)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}

		require.True(t, whole(t, l.body(), l.call(x, y, batch, 0, rows, 0)))
		for b := range batch {
			require.True(t, whole(t, l.body(), l.call(x[b*cols:][:cols], alone[b*rows:][:rows], 1, 0, rows, 0)))
		}

		require.Equal(t, alone, y)

		q := &cached{heads: 16, kv: 16, dim: 256, width: 16 * 256}
		all := together{groups: 16, each: 1}
		n := positionsOnce(q, all)
		require.LessOrEqual(t, uint64(n)*16*256, uint64(tileWords))
		require.Zero(t, n%attendRun)
		a, b := new(attend), new(attend)
		q.k = make([]float32, 512*q.width)
		for i := range q.k {
			q.k[i] = float32(r.NormFloat64())
		}

		q.v = q.k
		for i := range a.query {
			a.query[i] = float32(r.NormFloat64())
		}

		for i := range 512 / attendRun {
			a.places[i] = uint64(511/attendRun-i) * attendRun * q.width
		}

		*b = *a
		for _, count := range []int{1, n - 1, n, n + 1, 3*n + 17, 512} {
			require.True(t, a.scoresOfRuns(q, all, count))
			require.True(t, a.valuesOfRuns(q, all, count))
			scoresAVX512(&b.weights[0], &b.query[0], &q.k[0], &b.places[0], (count+attendRun-1)/attendRun, 4*int(q.width), 256, 16, 1, 4*attendStep)
			valuesAVX512(&b.sums[0], &b.weights[0], &q.v[0], &b.places[0], count, 4*int(q.width), 256, 16, 1, 4*attendStep)
			require.Equal(t, b.weights, a.weights)
			require.Equal(t, b.sums, a.sums)
		}
	})
}
