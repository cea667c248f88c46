package librarytest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program"
	"capgpu/program/library"
)

// Every case is a launch that the kernel's manifest allows, and defines the result
// of every written binding.
func TestCasesAreLaunches(t *testing.T) {
	for _, name := range library.Names() {
		m := manifest(name)
		var inlineBytes uint32
		for _, f := range m.Inline {
			inlineBytes = f.Off + f.Type.Bytes()
		}

		r := rand.New(rand.NewPCG(1, 2))
		cases := Cases(name, r, Edges(name)+10)
		if name == "spin" || name == "trap" {
			require.Empty(t, cases)
		} else {
			require.GreaterOrEqual(t, len(cases), 15, name)
		}

		for _, c := range append(cases, Traps(name)...) {
			require.Len(t, c.Bindings, len(m.Bindings), c.Name)
			require.Len(t, c.Inline, int(inlineBytes), c.Name)
			for i, b := range m.Bindings {
				require.Equal(t, b.Access&program.Write != 0 && !c.Traps, c.Want[i] != nil, "%s: %s", c.Name, b.Name)
				require.Equal(t, b.Type, c.Types[i])
			}
			grid := c.Natural()
			require.NotZero(t, grid.X*grid.Y*grid.Z, c.Name)
		}
	}
	require.Nil(t, Cases("nothing", nil, 3))
}

func TestCasesRepeat(t *testing.T) {
	a := Cases("topk_f32", rand.New(rand.NewPCG(3, 4)), 20)
	b := Cases("topk_f32", rand.New(rand.NewPCG(3, 4)), 20)
	require.Equal(t, a, b)
}

// Some results that are obvious without a model.
func TestModels(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	c := Sized("scan_u32", r, 3, 3)
	x := words(c.Bindings[0])
	require.Equal(t, []uint32{x[0], x[0] + x[1], x[0] + x[1] + x[2]}, words(c.Want[1]))

	c = Sized("matmul_f32", r, 1, 1, 2)
	a, b := floats(c.Bindings[0]), floats(c.Bindings[1])
	require.InDelta(t, a[0]*b[0]+a[1]*b[1], floats(c.Want[2])[0], 1e-6)

	c = Sized("rope_f32", r, 2, 8, 0)
	require.Equal(t, c.Bindings[0], c.Want[0], "position 0 turns nothing")

	c = Sized("attention_f32", r, 2, 1, 4, 1)
	require.Equal(t, floats(c.Bindings[2])[:4], floats(c.Want[3])[4:8], "one position is all the weight")

	y := make([]float32, 3)
	softmax(y, []float32{1e30, 1e30, float32(math.Inf(-1))})
	require.Equal(t, []float32{0.5, 0.5, 0}, y)

	nan := float32(math.NaN())
	require.Equal(t, []uint32{2, 4, 0, 1}, order([]float32{-1, -1, 5, nan, 0}))

	for bits, want := range map[uint16]float64{0x3C00: 1, 0xC000: -2, 0x3555: 0.333251953125, 0x0001: 0x1p-24, 0x7BFF: 65504, 0x8000: 0} {
		require.Equal(t, want, half(bits))
	}
	block := make([]byte, 2*q8Bytes)
	block[q8Bytes+1], block[q8Bytes+2+31] = 0x3C, 0xFD
	require.Equal(t, -3.0, weight(block, 63))
}

func TestCompare(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	c := Sized("matvec_f32", r, 3, 5)
	good := c.Fresh()
	copy(good[2], c.Want[2])
	require.NoError(t, c.Compare(good))
	require.Error(t, c.Compare(c.Fresh()), "the kernel has not run")
	require.Error(t, c.Compare(good[:2]))

	y := floats(good[2])
	y[1] += 5e-5
	good[2] = raw(y)
	require.NoError(t, c.Compare(good), "within the tolerance")
	y[1] += 1e-3
	good[2] = raw(y)
	require.ErrorContains(t, c.Compare(good), "binding 2 (y): element 1 of")
	y[1] = float32(math.NaN())
	good[2] = raw(y)
	require.Error(t, c.Compare(good))

	copy(good[2], c.Want[2])
	good[0][3]++
	require.ErrorContains(t, c.Compare(good), "binding 0 (m)")

	c = Sized("argmax_f32", r, 9)
	got := c.Fresh()
	copy(got[1], c.Want[1])
	require.NoError(t, c.Compare(got))
	got[1][0]++
	require.Error(t, c.Compare(got))
}
