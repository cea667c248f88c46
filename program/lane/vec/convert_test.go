package vec

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
)

// fromHalf is the value of a half by its definition.
func fromHalf(h uint32) float64 {
	v := halfValue(h & 0x7FFF)
	switch {
	case h&0x7FFF == 0x7C00:
		v = math.Inf(1)
	case h&0x7C00 == 0x7C00:
		return math.NaN()
	}
	if h&0x8000 != 0 {
		v = math.Copysign(v, -1)
	}
	return v
}

func TestHalf(t *testing.T) {
	both(t, func(t *testing.T) {
		up, ok := Convert(spirv.OpFConvert, 16, 32)
		require.True(t, ok)
		down, ok := Convert(spirv.OpFConvert, 32, 16)
		require.True(t, ok)

		// All halves, there and back.
		all, f, back := make([]uint32, 1<<16), make([]uint32, 1<<16), make([]uint32, 1<<16)
		for i := range all {
			all[i] = uint32(i)
		}

		up(f, all)
		down(back, f)
		for h := range all {
			if w := fromHalf(uint32(h)); !(float64(f32(f[h])) == w && math.Signbit(w) == (f[h]>>31 == 1)) && !(nan(f[h]) && math.IsNaN(w)) {
				t.Fatalf("half %#x is %v, not %v", h, f32(f[h]), w)
			}
			quiet := uint32(h)
			if nan(f[h]) {
				quiet |= 0x200
				require.Equal(t, uint32(h)&0x8000<<16|0xFF<<23|1<<22|uint32(h)&0x3FF<<13, f[h], "the payload of %#x", h)
			}
			equal(t, quiet, back[h], "half %#x", h)
		}

		// Between two halves: the middle, and just beside it.
		for h := range uint32(0x7C00) {
			mid := math.Float32bits(float32((halfValue(h) + halfValue(h+1)) / 2))
			a, dst := []uint32{mid - 1, mid, mid + 1, mid | 1<<31}, make([]uint32, 4)
			down(dst, a)
			even := h + h&1
			require.True(t, slices.Equal([]uint32{h, even, h + 1, even | 0x8000}, dst), "above half %#x: %x", h, dst)
		}

		check1(t, "half of float", down, model1{half, true})
		check1(t, "float of half", up, model1{func(x uint32) uint32 { return fb(fromHalf(x & 0xFFFF)) }, false})
	})
}

func TestConvertInts(t *testing.T) {
	both(t, func(t *testing.T) {
		for _, from := range []int{8, 16, 32} {
			for _, to := range []int{8, 16, 32} {
				u, ok := Convert(spirv.OpUConvert, from, to)
				require.True(t, ok)
				s, ok := Convert(spirv.OpSConvert, from, to)
				require.True(t, ok)
				cut := func(x uint32, n int) uint32 { return uint32(uint64(x) % (1 << n)) }
				check1(t, "UConvert", u, model1{func(x uint32) uint32 { return cut(cut(x, from), to) }, true})
				check1(t, "SConvert", s, model1{func(x uint32) uint32 {
					v := int64(cut(x, from))
					if v >= 1<<(from-1) {
						v -= 1 << from
					}
					return cut(uint32(v), to)
				}, true})
			}
		}
	})
	for _, c := range [][3]int{{int(spirv.OpUConvert), 64, 32}, {int(spirv.OpFConvert), 8, 32}, {int(spirv.OpConvertFToS), 16, 32}, {int(spirv.OpIAdd), 32, 32}} {
		_, ok := Convert(spirv.Opcode(c[0]), c[1], c[2])
		require.False(t, ok, c)
	}
}

func TestWiden(t *testing.T) {
	r := random()
	for _, from := range []int{8, 16, 32} {
		u, ok := Widen(spirv.OpUConvert, from)
		require.True(t, ok)
		s, ok := Widen(spirv.OpSConvert, from)
		require.True(t, ok)
		a, zero, sign := words(r, 500), make([]uint64, 500), make([]uint64, 500)
		u(zero, a)
		s(sign, a)
		for i, x := range a {
			v := int64(x) % (1 << from)
			require.Equal(t, uint64(v), zero[i])
			if v >= 1<<(from-1) {
				v -= 1 << from
			}
			require.Equal(t, uint64(v), sign[i])
		}
	}

	for op, m := range map[spirv.Opcode]func(x uint32) uint64{
		spirv.OpFConvert:    func(x uint32) uint64 { return bL(fl(x)) },
		spirv.OpConvertSToF: func(x uint32) uint64 { return bL(float64(int32(x))) },
		spirv.OpConvertUToF: func(x uint32) uint64 { return bL(float64(x)) },
		spirv.OpConvertFToS: func(x uint32) uint64 { return fToS64(fl(x)) },
		spirv.OpConvertFToU: func(x uint32) uint64 { return fToU64(fl(x)) },
	} {
		f, ok := Widen(op, 32)
		require.True(t, ok)
		a, dst := words(r, 999), make([]uint64, 999)
		f(dst, a)
		for i := range a {
			require.True(t, sameL(m(a[i]), dst[i]), "%v(%#x)", op, a[i])
		}
	}

	f, ok := Widen(spirv.OpFConvert, 16)
	require.True(t, ok)
	h, dst := make([]uint32, 1<<16), make([]uint64, 1<<16)
	for i := range h {
		h[i] = uint32(i)
	}

	f(dst, h)
	for i := range h {
		equal(t, true, sameL(bL(fromHalf(h[i])), dst[i]), "half %#x", i)
	}

	_, ok = Widen(spirv.OpIAdd, 32)
	require.False(t, ok)
}

func TestNarrow(t *testing.T) {
	r := random()
	a := longs(r, 3000)
	for i := 0; i < 2000; i++ { // about halves, and beside what f32 rounds to a middle of them
		h := r.Uint64N(0x7C00)
		a[i] = bL(halfValue(uint32(h))+(halfValue(uint32(h+1))-halfValue(uint32(h)))/2) + r.Uint64N(3) - 1 | r.Uint64N(2)<<63
	}

	dst := make([]uint32, len(a))
	run := func(op spirv.Opcode, to int, m func(x uint64) uint32) {
		f, ok := Narrow(op, to)
		require.True(t, ok)
		f(dst, a)
		for i := range a {
			if w := m(a[i]); !same32(false, w, dst[i]) {
				t.Fatalf("%v to %d of %#x is %#x, not %#x", op, to, a[i], dst[i], w)
			}
		}
	}

	for _, op := range []spirv.Opcode{spirv.OpUConvert, spirv.OpSConvert} {
		run(op, 8, func(x uint64) uint32 { return uint32(x % 256) })
		run(op, 16, func(x uint64) uint32 { return uint32(x % 65536) })
		run(op, 32, func(x uint64) uint32 { return uint32(x) })
	}

	run(spirv.OpFConvert, 32, func(x uint64) uint32 { return fb(fL(x)) })
	run(spirv.OpIsNan, 32, func(x uint64) uint32 { return boolean(nanL(x)) })
	run(spirv.OpIsInf, 32, func(x uint64) uint32 { return boolean(math.IsInf(fL(x), 0)) })
	run(spirv.OpConvertSToF, 32, func(x uint64) uint32 {
		f, _ := new(big.Float).SetInt(signed(x)).Float32()
		return math.Float32bits(f)
	})

	run(spirv.OpConvertUToF, 32, func(x uint64) uint32 {
		f, _ := new(big.Float).SetInt(unsigned(x)).Float32()
		return math.Float32bits(f)
	})

	run(spirv.OpConvertFToS, 32, func(x uint64) uint32 {
		if nanL(x) {
			return 0
		}
		return uint32(int32(math.Max(math.MinInt32, math.Min(math.MaxInt32, fL(x)))))
	})

	run(spirv.OpConvertFToU, 32, func(x uint64) uint32 {
		if nanL(x) {
			return 0
		}
		return uint32(math.Max(0, math.Min(math.MaxUint32, fL(x))))
	})

	f, _ := Narrow(spirv.OpFConvert, 16)
	f(dst, a)
	for i, x := range a {
		if nanL(x) {
			require.True(t, dst[i]&0x7C00 == 0x7C00 && dst[i]&0x3FF != 0, "%#x is %#x", x, dst[i])
			continue
		}
		require.Equal(t, halfOf(fL(x)), dst[i], "half of %v (%#x)", fL(x), x)
	}
}

// halfOf is the nearest half of a double: see half.
func halfOf(v float64) uint32 {
	sign := uint32(bL(v) >> 48 & 0x8000)
	v = math.Abs(v)
	lo, hi := uint32(0), uint32(0x7C00)
	for hi-lo > 1 {
		if m := (lo + hi) / 2; halfValue(m) <= v {
			lo = m
		} else {
			hi = m
		}
	}
	if mid := (halfValue(lo) + halfValue(hi)) / 2; v > mid || v == mid && lo&1 == 1 {
		lo = hi
	}
	return sign | lo
}

func TestJoin(t *testing.T) {
	r := random()
	lo, hi, dst, back := words(r, 70), words(r, 70), make([]uint64, 70), make([]uint32, 70)
	Join(dst, lo, hi)
	HighWord(back, dst)
	require.Equal(t, hi, back)
	f, _ := Narrow(spirv.OpUConvert, 32)
	f(back, dst)
	require.Equal(t, lo, back)
}
