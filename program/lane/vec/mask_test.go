package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
)

func TestMasks(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		for round := range 15 * maxLen {
			n := round % maxLen
			m, c := masks(r, n), masks(r, n)
			first, all := -1, true
			for i := range m {
				if m[i] == 0 {
					all = false
					continue
				}
				if first < 0 {
					first = i
				}
			}

			require.Equal(t, first, First(m))
			require.Equal(t, all, All(m))

			dst, intact := guarded(n)
			yes, no := make([]uint32, n), make([]uint32, n)
			anyYes, anyNo := Split(yes, no, c, m)
			require.Equal(t, First(yes) >= 0, anyYes)
			require.Equal(t, First(no) >= 0, anyNo)
			for i := range m {
				equal(t, m[i]&c[i], yes[i], "lane %d", i)
				equal(t, m[i]&^c[i], no[i], "lane %d", i)
			}

			Or(dst, yes, no)
			require.Equal(t, m, append(m[:0:0], dst...)[:n:n])

			a, src := words(r, n), words(r, n)
			got := append([]uint32(nil), a...)
			Blend(got, src, m)
			gotS := append([]uint32(nil), a...)
			BlendS(gotS, 7, m)
			wantZero, same, seen := -1, true, uint32(0)
			for i := range a {
				w, s := a[i], a[i]
				if m[i] != 0 {
					w, s = src[i], 7
				}
				equal(t, w, got[i], "lane %d", i)
				equal(t, s, gotS[i], "lane %d", i)
			}

			for i := range a {
				if m[i] == 0 {
					continue
				}
				if a[i] == 0 && wantZero < 0 {
					wantZero = i
				}
				if i == first {
					seen = a[i]
				}
				same = same && a[i] == seen
			}

			require.Equal(t, wantZero, AnyZero(a, m))
			require.Equal(t, same, Same(a, m))
			wide := make([]uint64, n)
			for i := range a {
				wide[i] = uint64(a[i])
			}

			require.Equal(t, wantZero, AnyZeroL(wide, m))
			require.Equal(t, First(zeros(a)), AnyZero(a, nil))
			require.Equal(t, First(zeros(a)), AnyZeroL(wide, nil))
			require.True(t, intact())
		}

		a := make([]uint32, 40)
		require.True(t, Same(a, nil))
		a[39] = 1
		require.False(t, Same(a, nil))
		require.True(t, Same(nil, nil))
	})
}

func zeros(a []uint32) []uint32 {
	m := make([]uint32, len(a))
	for i, v := range a {
		m[i] = boolean(v == 0)
	}
	return m
}

func TestFill(t *testing.T) {
	both(t, func(t *testing.T) {
		for n := range maxLen {
			dst, intact := guarded(n)
			Splat(dst, 0xDEADBEEF)
			for _, v := range dst {
				equal(t, uint32(0xDEADBEEF), v, "%d lanes", n)
			}
			require.True(t, intact())
			l := make([]uint64, n)
			SplatL(l, 1<<40)
			for _, v := range l {
				equal(t, uint64(1<<40), v, "%d lanes", n)
			}
		}
	})
}

func TestLongSelect(t *testing.T) {
	r := random()
	for n := range maxLen {
		c, a, b, dst := masks(r, n), longs(r, n), longs(r, n), make([]uint64, n)
		SelectL(dst, c, a, b)
		blended := append([]uint64(nil), b...)
		BlendL(blended, a, c)
		for i := range dst {
			w := b[i]
			if c[i] != 0 {
				w = a[i]
			}
			require.Equal(t, w, dst[i])
			require.Equal(t, w, blended[i])
		}
	}
}

func TestMulAddScalar(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		for n := range maxLen {
			a, c, s := words(r, n), words(r, n), wordOf(r)
			want, dst := make([]uint32, n), make([]uint32, n)
			for i := range want {
				p := math.Float32frombits(a[i]) * math.Float32frombits(s)
				want[i] = math.Float32bits(p + math.Float32frombits(c[i]))
			}
			MulAddS(dst, a, s, c)
			require.True(t, equal32(false, want, dst))
			MulAddS(c, a, s, c)
			require.True(t, equal32(false, want, c))
		}
	})
}

// Slices of different length: the shortest counts, and nothing behind it is
// touched.
func TestShortest(t *testing.T) {
	both(t, func(t *testing.T) {
		add, _ := Binary(spirv.OpIAdd)
		for n := range 40 {
			for _, cut := range [][3]int{{40, n, 40}, {40, 40, n}, {n, 40, 40}} {
				a, b, dst := make([]uint32, cut[1]), make([]uint32, cut[2]), make([]uint32, cut[0])
				Splat(a, 1)
				Splat(b, 2)
				add(dst, a, b)
				for i, v := range dst {
					require.Equal(t, i < n, v == 3, "lane %d of %v", i, cut)
				}
			}
		}
	})
}

func TestMathPairs(t *testing.T) {
	r := random()
	a := words(r, 2000)
	x, y := make([]uint32, len(a)), make([]uint32, len(a))
	Modf(x, y, a)
	for i, v := range a {
		if nan(v) {
			require.True(t, nan(x[i]) && nan(y[i]))
			continue
		}
		require.Equal(t, fb(math.Trunc(fl(v))), y[i])
		require.Equal(t, v>>31, x[i]>>31, "the sign of the fraction of %v", fl(v))
		if !math.IsInf(fl(v), 0) {
			require.Equal(t, fl(v), fl(x[i])+fl(y[i]))
		}
	}

	Frexp(x, y, a)
	for i, v := range a {
		if nan(v) {
			continue
		}
		require.Equal(t, fl(v), math.Ldexp(fl(x[i]), int(int32(y[i]))))
		if s := math.Abs(fl(x[i])); fl(v) != 0 && !math.IsInf(fl(v), 0) {
			require.True(t, s >= 0.5 && s < 1)
		}
	}

	l := longs(r, 2000)
	p, q := make([]uint64, len(l)), make([]uint64, len(l))
	ModfL(p, q, l)
	FrexpL(q, x, l)
	LdexpL(p, q, x)
	for i := range l {
		require.True(t, sameL(l[i], p[i]), "%#x came back as %#x", l[i], p[i])
	}
}

func TestPacks(t *testing.T) {
	r := random()
	for _, p := range []struct {
		pack, unpack spirv.GLSL
		parts        int
		lo, scale    float32
	}{
		{spirv.GLSLPackSnorm4x8, spirv.GLSLUnpackSnorm4x8, 4, -1, 127},
		{spirv.GLSLPackUnorm4x8, spirv.GLSLUnpackUnorm4x8, 4, 0, 255},
		{spirv.GLSLPackSnorm2x16, spirv.GLSLUnpackSnorm2x16, 2, -1, 32767},
		{spirv.GLSLPackUnorm2x16, spirv.GLSLUnpackUnorm2x16, 2, 0, 65535},
		{spirv.GLSLPackHalf2x16, spirv.GLSLUnpackHalf2x16, 2, 0, 0},
	} {
		const n = 500
		bits := 32 / p.parts
		in := [][]uint32{words(r, n), words(r, n), words(r, n), words(r, n)}
		packed := make([]uint32, n)
		if p.parts == 4 {
			f, ok := Pack4(p.pack)
			require.True(t, ok)
			f(packed, in[0], in[1], in[2], in[3])
		} else {
			f, ok := GLSL2(p.pack)
			require.True(t, ok)
			f(packed, in[0], in[1])
		}

		for c := range p.parts {
			f, ok := Unpack(p.unpack, c)
			require.True(t, ok)
			out := make([]uint32, n)
			f(out, packed)
			for i := range out {
				field := packed[i] >> (c * bits) & (1<<bits - 1)
				if p.scale == 0 {
					require.Equal(t, half(in[c][i]), field)
					require.True(t, same32(false, fb(fromHalf(field)), out[i]))
					continue
				}
				v := normal(in[c][i], p.lo, p.scale)
				require.Equal(t, uint32(v)&(1<<bits-1), field)
				require.Equal(t, math.Float32bits(max(float32(v)/p.scale, -1)), out[i])
			}
		}

		_, ok := Unpack(p.unpack, p.parts)
		require.False(t, ok)
	}

	_, ok := Pack4(spirv.GLSLPackHalf2x16)
	require.False(t, ok)
}

func TestBitFieldInsert(t *testing.T) {
	r := random()
	for range 2000 {
		base, insert, off := wordOf(r), wordOf(r), uint32(r.IntN(33))
		count := uint32(r.IntN(33 - int(off)))
		dst := make([]uint32, 1)
		BitFieldInsert(dst, []uint32{base}, []uint32{insert}, []uint32{off}, []uint32{count})
		want := base
		for i := range count {
			want = want&^(1<<(off+i)) | insert>>i&1<<(off+i)
		}
		require.Equal(t, want, dst[0], "%#x into %#x, %d bits from %d", insert, base, count, off)
	}
}
