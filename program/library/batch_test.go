package library_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/outcome"
	"capgpu/program"
	"capgpu/program/lane"
	"capgpu/program/library/librarytest"
)

// launches runs kernels over the test's bindings, in place, on the natural grid.
type launches struct {
	t       *testing.T
	kernels map[string]*lane.Kernel
}

func newLaunches(t *testing.T) *launches { return &launches{t, map[string]*lane.Kernel{}} }

func (l *launches) run(kernel string, inline []uint32, bindings ...[]byte) {
	l.t.Helper()
	k := l.kernels[kernel]
	if k == nil {
		var err error
		k, err = lane.Compile(admit(l.t, kernel), lane.Options{})
		require.NoError(l.t, err)
		l.kernels[kernel] = k
	}
	c := librarytest.Case{Kernel: kernel, Bindings: bindings}
	grid := c.Natural()
	var stop atomic.Uint32
	launch := &lane.Launch{Grid: grid, Bindings: bindings, Inline: wordBytes(inline...)}
	require.Equal(l.t, lane.Result{}, k.NewWorker().Run(launch, 0, grid.Count(), &stop), kernel)
}

func wordBytes(words ...uint32) []byte {
	out := []byte{}
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

func word(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }

func floatBytes(list ...float32) []byte {
	out := []byte{}
	for _, f := range list {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f))
	}
	return out
}

func floatAt(b []byte, i int) float32 { return math.Float32frombits(word(b, i)) }

func randomFloats(r *rand.Rand, n int) []byte {
	list := make([]float32, n)
	for i := range list {
		list[i] = 2*r.Float32() - 1
	}
	return floatBytes(list...)
}

var linearKernels = []string{"linear_f32", "linear_f16", "linear_bf16", "linear_q8_0", "linear_q4_0", "linear_q5_1", "linear_i8"}

// The result of a row of x depends only on that row: neither on the number of other
// rows nor on its place in the batch.
func TestLinearRowsAreAlone(t *testing.T) {
	const rows, cols, batch = 45, 96, 19
	l := newLaunches(t)
	for _, kernel := range linearKernels {
		size := []uint32{rows, cols, batch, 0, rows, 0}
		if kernel == "linear_i8" {
			size = append(size, 48)
		}

		c := librarytest.Sized(kernel, rand.New(rand.NewPCG(23, 24)), size...)
		all := c.Fresh()
		last := len(all) - 1
		l.run(kernel, size, all...)
		for _, share := range []uint32{1, 2, 3, 4, 5, 7, 8, 9, 18} {
			got := c.Fresh()[last]
			for b := uint32(0); b < batch; b += share {
				n := min(share, batch-b)
				part := append([]uint32{rows, cols, n, 0, rows, b * rows}, size[6:]...)
				bindings := append(c.Fresh()[:last-1], c.Bindings[last-1][4*b*cols:], got)
				l.run(kernel, part, bindings...)
			}
			require.Equal(t, all[last], got, "%s, %d rows at a time", kernel, share)
		}
	}
}

// Matrices applied one after the other into parts of y give the same as one large
// matrix. x may be in the same memory as y, if they do not overlap.
func TestLinearInParts(t *testing.T) {
	const cols, batch = 40, 3
	heights := []int{32, 7, 50}
	const rows = 89
	l := newLaunches(t)
	r := rand.New(rand.NewPCG(25, 26))
	w, x := randomFloats(r, rows*cols), randomFloats(r, batch*cols)
	whole := make([]byte, 4*batch*rows)
	l.run("linear_f32", []uint32{rows, cols, batch, 0, rows, 0}, w, x, whole)

	shared := append(append([]byte{}, x...), make([]byte, len(whole))...)
	at := 0
	for _, n := range heights {
		inline := []uint32{uint32(n), cols, batch, 0, rows, uint32(batch*cols + at)}
		l.run("linear_f32", inline, w[4*at*cols:], shared, shared)
		at += n
	}

	require.Equal(t, x, shared[:len(x)])
	require.Equal(t, whole, shared[len(x):])

	// Again on top of it, from weights that are x itself: y += x · xᵀ.
	l.run("linear_f32", []uint32{batch, cols, batch, 1, rows, 0}, x, x, whole)
	var sum float64
	for i := range cols {
		sum += float64(floatAt(x, i)) * float64(floatAt(x, i))
	}

	require.InDelta(t, sum+float64(floatAt(shared[len(x):], 0)), floatAt(whole, 0), 1e-5)
}

// A sequence's positions in one batch give the same cache and the same results as
// one after the other, and both equal attention_f32 with the same keys and values.
// The size and the order of the pages do not matter.
func TestCacheOfPages(t *testing.T) {
	const heads, kvHeads, dim, length = 6, 2, 10, 83
	const row, wide = (heads + 2*kvHeads) * dim, kvHeads * dim
	r := rand.New(rand.NewPCG(27, 28))
	l := newLaunches(t)
	qkv := randomFloats(r, length*row)
	var freqs []float32
	for i := range dim / 2 {
		freqs = append(freqs, float32(math.Pow(10000, -2*float64(i)/dim)))
	}

	var first []byte
	for _, page := range []uint32{128, 1, 16, 64} {
		for _, step := range []int{length, 1, 7} {
			pages := (length + page - 1) / page
			const sequences, mine = 3, 1
			table := make([]uint32, sequences*pages)
			numbers := r.Perm(int(pages) + 2)
			for i := range table {
				table[i] = math.MaxUint32
			}

			for i := range pages {
				table[mine*pages+i] = uint32(numbers[i])
			}

			k, v := make([]byte, 4*(pages+2)*page*wide), make([]byte, 4*(pages+2)*page*wide)
			turned, out := append([]byte{}, qkv...), make([]byte, 4*length*heads*dim)
			for at := 0; at < length; at += step {
				n := min(step, length-at)
				var rows []uint32
				for i := range n {
					rows = append(rows, uint32(at+i), mine)
				}
				rows = append(rows, 5, math.MaxUint32) // a row of padding
				part := append(append([]byte{}, turned[4*at*row:4*(at+n)*row]...), randomFloats(r, row)...)
				size := []uint32{heads, kvHeads, dim, uint32(n + 1)}
				l.run("rope_cache_f32", append(append([]uint32{}, size...), 1, page, pages, math.Float32bits(1)), part, floatBytes(freqs...),
					wordBytes(rows...), wordBytes(table...), k, v)
				result := append(append([]byte{}, out[4*at*heads*dim:4*(at+n)*heads*dim]...), randomFloats(r, heads*dim)...)
				l.run("attention_cache_f32", append(size, page, pages, 0, math.Float32bits(1/float32(math.Sqrt(dim))), 0), part, wordBytes(rows...), wordBytes(table...), k, v, result)
				copy(turned[4*at*row:], part[:4*n*row])
				copy(out[4*at*heads*dim:], result[:4*n*heads*dim])
				require.Equal(t, make([]byte, 4*heads*dim), result[4*n*heads*dim:], "padding")
			}

			if first == nil {
				first = out
				flat := func(cache []byte) []byte { return cache[4*uint32(numbers[0])*page*wide:][:4*length*wide] }
				for position := range length {
					plain := make([]byte, 4*heads*dim)
					l.run("attention_f32", []uint32{heads, kvHeads, dim, uint32(position + 1)}, turned[4*position*row:], flat(k), flat(v), plain)
					require.Equal(t, plain, out[4*position*heads*dim:][:len(plain)], "position %d", position)
				}
			}

			require.Equal(t, first, out, "pages of %d, %d rows at a time", page, step)
		}
	}
}

// The two pairings differ only in the order of a head's elements, and rotate as
// rope_f32 does.
func TestRopePairings(t *testing.T) {
	const dim, position = 12, 37
	r := rand.New(rand.NewPCG(29, 30))
	l := newLaunches(t)
	head := randomFloats(r, dim)
	apart := make([]byte, len(head)) // element 2i at i, 2i+1 at i + dim/2
	for i := range dim / 2 {
		copy(apart[4*i:], head[8*i:8*i+4])
		copy(apart[4*(i+dim/2):], head[8*i+4:8*i+8])
	}

	var freqs []float32
	for i := range dim / 2 {
		freqs = append(freqs, float32(math.Pow(10000, -2*float64(i)/dim)))
	}

	turn := func(pairing uint32, head []byte) (q, k []byte) {
		qkv := append(append(append([]byte{}, head...), head...), head...)
		cache, values := make([]byte, 4*64*dim), make([]byte, 4*64*dim)
		l.run("rope_cache_f32", []uint32{1, 1, dim, 1, pairing, 64, 1, math.Float32bits(1)}, qkv, floatBytes(freqs...), wordBytes(position, 0), wordBytes(0), cache, values)
		require.Equal(t, head, qkv[len(head):2*len(head)], "the keys in qkv stay")
		require.Equal(t, head, values[4*position*dim:][:4*dim])
		return qkv[:4*dim], cache[4*position*dim:][:4*dim]
	}

	q, k := turn(0, head)
	require.Equal(t, q, k)
	qApart, kApart := turn(1, apart)
	require.Equal(t, qApart, kApart)
	plain := append([]byte{}, head...)
	l.run("rope_f32", []uint32{1, dim, position, math.Float32bits(10000)}, plain)
	for i := range dim / 2 {
		require.Equal(t, word(q, 2*i), word(qApart, i))
		require.Equal(t, word(q, 2*i+1), word(qApart, i+dim/2))
		require.InDelta(t, floatAt(plain, 2*i), floatAt(q, 2*i), 1e-4)
		require.InDelta(t, floatAt(plain, 2*i+1), floatAt(q, 2*i+1), 1e-4)
	}
}

// Launches one after the other, without a check between them, leave their tokens in
// the history, which wraps around.
func TestNextTokensRunAhead(t *testing.T) {
	const vocab, batch, keep, steps = 300, 3, 4, 11
	r := rand.New(rand.NewPCG(31, 32))
	l := newLaunches(t)
	rows := wordBytes(0, 7, 6, 8, 9, math.MaxUint32)
	tokens, history := wordBytes(1, 2, 3), make([]byte, 4*batch*keep)
	want := [batch][keep]uint32{}
	for step := range uint32(steps) {
		logits := randomFloats(r, batch*vocab)
		for b := range uint32(batch) {
			best := r.Uint32N(vocab)
			binary.LittleEndian.PutUint32(logits[4*(b*vocab+best):], math.Float32bits(2))
			if b < 2 {
				want[b][([]uint32{0, 6}[b]+step)%keep] = best
			}
		}
		l.run("next_token_f32", []uint32{vocab, batch, keep}, logits, tokens, rows, history)
	}

	for b := range batch {
		for i := range keep {
			require.Equal(t, want[b][i], word(history, b*keep+i))
		}
	}

	require.Equal(t, wordBytes(steps, 7, 6+steps, 8, 9, math.MaxUint32), rows)
	require.Equal(t, want[0][(steps-1)%keep], word(tokens, 0))
	require.EqualValues(t, 3, word(tokens, 2), "padding")
}

// Far from 0, sigmoid is 0 or 1 and not NaN.
func TestSwigluFarOut(t *testing.T) {
	l := newLaunches(t)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct{ a, b, want float32 }{
		{-100, 3, 0}, {100, 3, 300}, {-1e30, 1, 0}, {1e30, 1, 1e30}, {-88, 1, 0}, {-math.MaxFloat32, 1e3, 0}, {0, 5, 0},
		{inf, 2, inf}, {-inf, 2, nan}, {nan, 2, nan}, {1, nan, nan},
	} {
		y := make([]byte, 4)
		for _, kernel := range []string{"swiglu_rows_f32", "geglu_rows_f32"} {
			l.run(kernel, []uint32{1}, floatBytes(c.a, c.b), y)
			got := floatAt(y, 0)
			if c.want != c.want {
				require.True(t, got != got, "%s: %v", kernel, c)
				continue
			}
			require.True(t, got == c.want || math.Abs(float64(got-c.want)) < 1e-6, "%s: %v: %v", kernel, c, got)
		}
	}
}

// On any grid, also of two and three dimensions and larger than the work, each
// element is done once: with add, a second time would show.
func TestLinearOnAnyGrid(t *testing.T) {
	for _, kernel := range linearKernels {
		k, err := lane.Compile(admit(t, kernel), lane.Options{})
		require.NoError(t, err)
		size := []uint32{77, 32, 17, 1, 80, 3}
		if kernel == "linear_i8" {
			size = append(size, 32)
		}
		c := librarytest.Sized(kernel, rand.New(rand.NewPCG(33, 34)), size...)
		for _, grid := range []program.Dim3{{X: 1, Y: 1, Z: 1}, {X: 2, Y: 2, Z: 2}, {X: 9, Y: 1, Z: 1}, {X: 1, Y: 5, Z: 1}, {X: 3, Y: 1, Z: 40}, {X: 700, Y: 1, Z: 1}} {
			got, result := run(k, &c, grid, false)
			require.Equal(t, lane.Result{}, result)
			require.NoError(t, c.Compare(got), fmt.Sprint(grid))
		}
	}
}

// Sizes that do not fit trap in every workgroup, whatever its own share is: also if
// its share is in range, or seems so because it wraps.
func TestLinearTrapsInEveryWorkgroup(t *testing.T) {
	for _, kernel := range linearKernels {
		k, err := lane.Compile(admit(t, kernel), lane.Options{})
		require.NoError(t, err)
		for _, c := range []struct {
			why    string
			size   []uint32
			yWords int
		}{
			{"the last row", []uint32{64, 0, 1, 0, 0, 0}, 63},
			{"y_at", []uint32{64, 0, 1, 0, 0, 1 << 31}, 100},
			{"y_at and rows that wrap", []uint32{64, 0, 1, 0, 0, math.MaxUint32 - 31}, 100},
			{"the last row of x", []uint32{3, 0, 9, 0, 3, 0}, 26},
			{"batch and y_stride that wrap", []uint32{3, 0, 9, 0, 1 << 29, 0}, 100},
			{"rows of y upon each other", []uint32{3, 0, 9, 0, 2, 0}, 100},
		} {
			y := make([]byte, 4*c.yWords)
			bindings, inline := [][]byte{{}, {}, y}, wordBytes(c.size...)
			if kernel == "linear_i8" {
				bindings, inline = [][]byte{{}, {}, {}, y}, append(inline, 8, 0, 0, 0)
			}
			var stop atomic.Uint32
			launch := &lane.Launch{Grid: program.Dim3{X: 3, Y: 1, Z: 1}, Bindings: bindings, Inline: inline}
			for i := range uint64(3) {
				result := k.NewWorker().Run(launch, i, i+1, &stop)
				require.Equal(t, outcome.OutOfBounds, result.Trap.Kind, "%s: %s, workgroup %d", kernel, c.why, i)
				require.EqualValues(t, len(bindings)-1, result.Trap.Binding)
				require.Equal(t, make([]byte, len(y)), y)
			}
		}
	}
}
