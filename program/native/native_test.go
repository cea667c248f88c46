package native

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/library/librarytest"
)

// The cases of librarytest run on every body, at every instruction set.

var names = slices.Sorted(maps.Keys(bodies))

const casesEach = 6

// drawn are some cases of every body's program, the same for all tests.
var drawn = sync.OnceValue(func() map[string][]librarytest.Case {
	r := rand.New(rand.NewPCG(11, 12))
	cases := map[string][]librarytest.Case{}
	for _, name := range names {
		cases[name] = librarytest.Cases(name, r, librarytest.Edges(name)+casesEach)
	}
	return cases
})

func callOf(c *librarytest.Case, bindings [][]byte) *Call {
	return &Call{
		Grid:     c.Natural(),
		Block:    librarytest.Block(c.Kernel),
		Bindings: bindings,
		Inline:   c.Inline,
	}
}

// bits compares bit for bit, NaN equal to NaN.
func bits(t *testing.T, want, got []float32, what string) {
	t.Helper()
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && !(want[i] != want[i] && got[i] != got[i]) {
			require.Failf(t, "not equal", "%s [%d]: want %x, got %x", what, i, want[i], got[i])
		}
	}
}

func whole(t *testing.T, b *Body, c *Call) bool {
	t.Helper()
	n, ok := b.Items(c)
	require.True(t, ok)
	require.Positive(t, b.Grain(c))
	return b.Run(c, 0, n)
}

// inPieces does a call in ranges cut at random and in random order.
func inPieces(t *testing.T, r *rand.Rand, b *Body, c *Call) {
	t.Helper()
	n, _ := b.Items(c)
	type piece struct{ lo, hi uint64 }
	var pieces []piece
	for lo := uint64(0); lo < n; {
		hi := lo + 1 + r.Uint64N(1+r.Uint64N(n-lo))
		hi = min(hi, n)
		pieces = append(pieces, piece{lo, hi})
		lo = hi
	}
	r.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	for _, p := range pieces {
		require.True(t, b.Run(c, p.lo, p.hi))
	}
}

func TestEveryDigestExists(t *testing.T) {
	for name, b := range bodies {
		digest, ok := library.Digest(name)
		require.True(t, ok, "the library has no %s", name)
		got, ok := Lookup(digest)
		require.True(t, ok)
		require.Same(t, b, got)
	}
	_, ok := Lookup([32]byte{1})
	require.False(t, ok)
}

// refused reports for which cases a body may leave the work to the lane engine
// although the program would not trap.
func refused(c *librarytest.Case) bool {
	call := callOf(c, nil)
	switch c.Kernel {
	case "matmul_f32", "matmul_tiled_f32":
		return call.inline(2) == 0
	case "linear_bf16", "linear_f16", "linear_f32", "linear_i8", "linear_q4_0", "linear_q8_0", "linear_iq4_nl", "linear_iq4_xs",
		"linear_mxfp4", "linear_q2_k", "linear_q3_k", "linear_q4_1", "linear_q4_k", "linear_q5_0", "linear_q5_1", "linear_q5_k", "linear_q6_k":
		return call.inline(1) == 0
	case "matvec_f32", "matvec_wg_f32", "matvec_q8_0", "matvec_wg_q8_0":
		return call.inline(1) == 0
	}
	return false
}

func TestBodiesMatchTheModels(t *testing.T) {
	cases := drawn()
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(12, 1))
		for _, name := range names {
			b := bodies[name]
			done := 0
			for _, c := range cases[name] {
				got := c.Fresh()
				call := callOf(&c, got)
				if _, ok := b.Items(call); !ok {
					require.True(t, refused(&c), "%s: left to the lane engine", c.Name)
					require.Equal(t, c.Bindings, got)
					continue
				}
				require.True(t, whole(t, b, call), c.Name)
				require.NoError(t, c.Compare(got))
				again := c.Fresh()
				inPieces(t, r, b, callOf(&c, again))
				for i := range got {
					require.True(t, bytes.Equal(got[i], again[i]), "%s: binding %d depends on how it is cut", c.Name, i)
				}
				done++
			}

			require.GreaterOrEqual(t, done, casesEach, name)
		}
	})
}

// TestTraps: a call that would trap is refused, or given back.
func TestTraps(t *testing.T) {
	for name, b := range bodies {
		for _, c := range librarytest.Traps(name) {
			call := callOf(&c, c.Fresh())
			if n, ok := b.Items(call); ok {
				require.False(t, b.Run(call, 0, n), c.Name)
			}
		}
	}
}

// TestLargeShapes has products and rows that no small case has: more than one panel,
// many blocks of rows, deep ones, and the whole path of packing.
func TestLargeShapes(t *testing.T) {
	shapes := []struct {
		kernel string
		size   []uint32
	}{
		{"matmul_f32", []uint32{130, 70, 300}},
		{"matmul_f32", []uint32{5, 96, 520}},
		{"matmul_f32", []uint32{97, 33, 257}},
		{"matmul_f32", []uint32{13, 40, 9000}},
		{"matvec_f32", []uint32{300, 1000}},
		{"matvec_q8_0", []uint32{300, 1024}},
		{"rmsnorm_f32", []uint32{3, 5000, 0}},
		{"softmax_f32", []uint32{3, 5000, 0}},
	}
	atLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(13, 14))
		for _, s := range shapes {
			c := librarytest.Sized(s.kernel, r, s.size...)
			c.Tolerance.Abs *= 10 // the longest sums are beyond what the tolerance is for
			got := c.Fresh()
			require.True(t, whole(t, bodies[s.kernel], callOf(&c, got)))
			require.NoError(t, c.Compare(got), fmt.Sprint(s))
			again := c.Fresh()
			inPieces(t, r, bodies[s.kernel], callOf(&c, again))
			for i := range got {
				require.True(t, bytes.Equal(got[i], again[i]), fmt.Sprint(s))
			}
		}
	})
}

// TestShapesThatAreLeftAlone: misaligned, overlapping or odd calls are refused.
func TestShapesThatAreLeftAlone(t *testing.T) {
	one := program.Dim3{X: 1, Y: 1, Z: 1}
	memory := make([]byte, 4096)
	ok := func(name string, grid program.Dim3, inline int, bindings ...[]byte) bool {
		call := &Call{Grid: grid, Block: one, Bindings: bindings, Inline: make([]byte, inline)}
		n, ok := bodies[name].Items(call)
		if ok {
			require.True(t, bodies[name].Run(call, 0, n))
		}
		return ok
	}

	a, b, c := memory[:400], memory[400:800], memory[800:1200]
	require.True(t, ok("vecadd_f32", one, 0, a, b, c))
	require.False(t, ok("vecadd_f32", program.Dim3{X: 1, Y: 0, Z: 1}, 0, a, b, c), "no workgroup")
	require.False(t, ok("vecadd_f32", one, 4, a, b, c), "inline bytes that the program has not")
	require.False(t, ok("vecadd_f32", one, 0, a, b), "a binding less")
	require.False(t, ok("vecadd_f32", one, 0, a, b, c[:399]), "part of a word")
	require.False(t, ok("vecadd_f32", one, 0, a, memory[401:801], c), "misaligned")
	require.True(t, ok("vecadd_f32", one, 0, a, b, a), "in place")
	require.True(t, ok("vecadd_f32", one, 0, a, a, a), "twice its own")
	require.True(t, ok("vecadd_f32", one, 0, a, a, b), "two that are read may be the same")
	require.True(t, ok("vecadd_f32", one, 0, memory[:400], memory[100:500], c), "or overlap")
	require.False(t, ok("vecadd_f32", one, 0, a, b, memory[4:404]), "written over what is yet to be read")
	require.False(t, ok("copy", one, 0, a, memory[200:600]), "overlap")
	require.False(t, ok("matmul_f32", one, 12, a, b, a), "not elementwise")
	require.False(t, ok("topk_f32", one, 4, a, b, b), "two results in one place")
	require.False(t, ok("rmsnorm_f32", one, 8, a, b, b), "y over the weights")
	require.True(t, ok("rmsnorm_f32", one, 8, a, b, a), "in place")
}

// inPlace are the programs in which the last binding may be the first.
var inPlace = []string{"rmsnorm_f32", "layernorm_f32", "softmax_f32", "swiglu_f32", "vecadd_f32", "copy", "saxpy_f32"}

// TestInPlace: rows and elements in place equal those beside.
func TestInPlace(t *testing.T) {
	cases := drawn()
	atLevel(t, func(t *testing.T) {
		for _, name := range inPlace[:6] { // saxpy_f32 reads its last binding too
			b := bodies[name]
			for _, c := range cases[name] {
				last := len(c.Bindings) - 1
				if len(c.Bindings[0]) != len(c.Bindings[last]) {
					continue
				}

				apart := c.Fresh()
				require.True(t, whole(t, b, callOf(&c, apart)))
				within := c.Fresh()
				copied := bytes.Clone(within[0])
				within[last] = within[0]
				require.True(t, whole(t, b, callOf(&c, within)))
				n := len(apart[last])
				switch name {
				case "rmsnorm_f32", "layernorm_f32", "softmax_f32":
					n = rowBytes(&c, copied)
				default:
					for _, b := range apart {
						n = min(n, len(b))
					}
				}

				require.True(t, bytes.Equal(apart[last][:n], within[0][:n]), c.Name)
			}
		}
	})
}

// rowBytes is the number of bytes of x in whole rows.
func rowBytes(c *librarytest.Case, x []byte) int {
	n := int((&Call{Inline: c.Inline}).inline(0))
	if n == 0 {
		return 0
	}
	return len(x) / 4 / n * n * 4
}

func TestNoAllocation(t *testing.T) {
	cases := drawn()
	for name, b := range bodies {
		for _, c := range cases[name][:4] {
			call := callOf(&c, c.Fresh())
			if _, ok := b.Items(call); !ok {
				continue
			}
			allocs := testing.AllocsPerRun(20, func() {
				n, _ := b.Items(call)
				b.Grain(call)
				b.Run(call, 0, n)
			})
			require.Less(t, allocs, 1.0, c.Name)
		}
	}
}
