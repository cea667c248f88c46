package vec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
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
		for round := range 4000 {
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

			// Memory that fits to the byte, and its neighbourhood.
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
					equal(t, binary.LittleEndian.Uint32(b[:]), dst[i], "%+v: lane %d of %d", a, i, n)
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
		{W: 4, H: 1, At: math.MaxInt - 3}, {W: 2, H: 2, X: 4, Y: math.MaxInt/2 + 1}, {W: 2, H: 1, Z: math.MinInt}, {W: 0, H: 1}, {W: 4, H: 0}, {W: 3, H: 1},
		{W: 8, H: 1}, {W: -4, H: -1}, {W: math.MaxInt, H: math.MaxInt}, {W: 1 << (bits.UintSize / 2), H: 1 << (bits.UintSize / 2)},
	} {
		require.False(t, LoadAffine32(dst, mem, a), "%+v", a)
		require.False(t, StoreAffine32(mem, a, dst), "%+v", a)
	}
	require.True(t, LoadAffine32(nil, nil, Affine{}))
	require.False(t, LoadAffine32(dst, nil, Affine{W: 4, H: 1}))
	require.False(t, LoadAffine32(dst, mem[:3], Affine{W: 4, H: 1}))
}

func TestStoreAffineMask(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		for range 3000 {
			a := Affine{W: 1 + r.IntN(40), H: 1 + r.IntN(4), X: []int{0, 4, 4, 12, -4}[r.IntN(5)], Y: 4 * r.IntN(50), Z: 4 * r.IntN(50)}
			n := a.W * a.H * (1 + r.IntN(2))
			a.At = 4 * a.W
			mem := make([]byte, a.At+12*a.W+200*a.H+200+r.IntN(4))
			want, src, mask := slices.Clone(mem), words(r, n), masks(r, n)
			for i := range n {
				if at := a.At + i%a.W*a.X + i/a.W%a.H*a.Y + i/(a.W*a.H)*a.Z; mask[i] != 0 {
					binary.LittleEndian.PutUint32(want[at:], src[i])
				}
			}
			require.True(t, StoreAffineMask(mem, a, mask, src))
			require.True(t, bytes.Equal(want, mem), "%+v of %d lanes", a, n)
			require.False(t, StoreAffineMask(mem[:a.At], a, mask, src))
			require.False(t, StoreAffineMask(mem, a, mask[1:], src))
			require.True(t, bytes.Equal(want, mem))
		}
	})
}

func TestMulAddAffine(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		took := 0
		for round := range 600 {
			w, h := 8*(1+r.IntN(5)), 1+r.IntN(20)
			if round%5 == 0 {
				w++
			}

			n := w * h
			p, q := Affine{Y: 4 * r.IntN(40), W: w, H: h}, Affine{X: 4, Y: 4 * r.IntN(40), W: w, H: h}
			ends := func(a Affine) int { return a.X*(w-1) + a.Y*(h-1) + 4 }
			pMem, qMem := make([]byte, ends(p)), make([]byte, ends(q))
			for _, m := range [][]byte{pMem, qMem} {
				for i := 0; i < len(m); i += 4 {
					binary.LittleEndian.PutUint32(m[i:], wordOf(r))
				}
			}

			c, x, y, want := words(r, n), make([]uint32, n), make([]uint32, n), make([]uint32, n)
			require.True(t, LoadAffine32(x, pMem, p))
			require.True(t, LoadAffine32(y, qMem, q))
			MulAdd(want, x, y, c)
			if r.IntN(2) == 0 {
				pMem, p, qMem, q = qMem, q, pMem, p
			}

			dst, intact := guarded(n)
			if MulAddAffine(dst, pMem, p, qMem, q, c) {
				took++
				require.True(t, equal32(false, want, dst), "%+v %+v", p, q)
			}

			require.True(t, intact())
			if MulAddAffine(c, pMem, p, qMem, q, c) {
				require.True(t, equal32(false, want, c), "in place")
			}

			require.False(t, MulAddAffine(dst, pMem[1:], p, qMem, q, c))
			require.False(t, MulAddAffine(dst, pMem, p, qMem[1:], q, c))
		}

		if accelerated {
			require.Greater(t, took, 400)
		}
	})
}
