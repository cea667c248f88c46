package vec

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var affineForms = []struct {
	size  int
	load  func(dst []uint32, mem []byte, a Affine) bool
	store func(mem []byte, a Affine, src []uint32) bool
}{
	{4, LoadAffine32, StoreAffine32},
	{2, LoadAffine16, StoreAffine16},
	{1, LoadAffine8, StoreAffine8},
}

func TestAffine(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		steps := []int{0, 4, 4, 8, -4, 12, 64, -36, 1, 400, 2, 34}
		for round := range 8000 {
			form := affineForms[round%len(affineForms)]
			a := Affine{W: 1 + r.IntN(20), H: 1 + r.IntN(6)}
			if r.IntN(3) == 0 {
				a.W, a.H = 8<<r.IntN(3), 1<<r.IntN(4)
			}
			n := a.W * a.H * (1 + r.IntN(3))
			a.X, a.Y, a.Z = steps[r.IntN(len(steps))], steps[r.IntN(len(steps))], steps[r.IntN(len(steps))]
			if r.IntN(3) == 0 {
				a.Y = a.X * a.W
			}
			if r.IntN(3) == 0 {
				a.Z = a.Y * a.H
			}
			at := func(i int) int { return a.At + i%a.W*a.X + i/a.W%a.H*a.Y + i/(a.W*a.H)*a.Z }
			lo, hi := 0, 0
			for i := range n {
				lo, hi = min(lo, at(i)), max(hi, at(i))
			}
			// Memory that fits to the byte, and what is beside it.
			all := make([]byte, hi-lo+form.size+64)
			for i := range all {
				all[i] = byte(r.Uint32())
			}
			mem := all[32 : 32+hi-lo+form.size : 32+hi-lo+form.size]
			a.At = -lo
			inside := true
			switch r.IntN(6) {
			case 0:
				a.At--
				inside = false
			case 1:
				a.At++
				inside = false
			}
			dst, intact := guarded(n)
			require.Equal(t, inside, form.load(dst, mem, a), "%+v of %d, %d lanes", a, len(mem), n)
			require.True(t, intact(), "%+v of %d lanes", a, n)
			src := words(r, n)
			want := slices.Clone(all)
			if inside {
				for i := range n {
					var b [4]byte
					copy(b[:], mem[at(i):][:form.size])
					require.Equal(t, binary.LittleEndian.Uint32(b[:]), dst[i], "%+v: lane %d of %d", a, i, n)
				}
				for i := range n {
					b := binary.LittleEndian.AppendUint32(nil, src[i])
					copy(want[32+at(i):], b[:form.size])
				}
			}
			require.Equal(t, inside, form.store(mem, a, src))
			require.True(t, bytes.Equal(want, all), "%+v of %d lanes", a, n)
		}
	})
}

func TestAffineFar(t *testing.T) {
	mem, dst := make([]byte, 64), make([]uint32, 4)
	for _, a := range []Affine{
		{W: 4, H: 1, X: math.MaxInt}, {W: 4, H: 1, X: math.MinInt}, {W: 4, H: 1, At: math.MaxInt, X: -1},
		{W: 4, H: 1, At: math.MaxInt - 3}, {W: 2, H: 2, X: 4, Y: 1 << 62}, {W: 2, H: 1, Z: math.MinInt}, {W: 0, H: 1}, {W: 4, H: 0}, {W: 3, H: 1},
		{W: 8, H: 1}, {W: -4, H: -1}, {W: math.MaxInt, H: math.MaxInt}, {W: 1 << 32, H: 1 << 32},
	} {
		require.False(t, LoadAffine32(dst, mem, a), "%+v", a)
		require.False(t, StoreAffine32(mem, a, dst), "%+v", a)
	}
	require.True(t, LoadAffine32(nil, nil, Affine{}))
	require.False(t, LoadAffine32(dst, nil, Affine{W: 4, H: 1}))
	require.False(t, LoadAffine32(dst, mem[:3], Affine{W: 4, H: 1}))
}
