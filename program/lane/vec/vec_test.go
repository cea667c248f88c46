package vec

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
)

// lengths: all tails, and the ones that have each part of a loop.
const maxLen = 70

// guarded is n lanes inside a longer slice; its other lanes must stay.
func guarded(n int) (dst []uint32, check func() bool) {
	all := make([]uint32, n+16)
	for i := range all {
		all[i] = 0xA5A5A5A5
	}
	return all[8 : 8+n : 8+n], func() bool {
		for i := range 8 {
			if all[i] != 0xA5A5A5A5 || all[n+8+i] != 0xA5A5A5A5 {
				return false
			}
		}
		return true
	}
}

func check1(t *testing.T, name string, op Op1, m model1) {
	t.Helper()
	r := random()
	for n := range maxLen {
		a := words(r, n)
		dst, intact := guarded(n)
		op(dst, a)
		for i := range dst {
			if w := m.f(a[i]); !same32(m.exact, dst[i], w) {
				t.Fatalf("%s(%#x) is %#x, not %#x; lane %d of %d", name, a[i], dst[i], w, i, n)
			}
		}
		require.True(t, intact(), "%s wrote outside of %d lanes", name, n)
		op(a, a)
		require.True(t, equal32(m.exact, a, dst), "%s in place, %d lanes", name, n)
	}
}

func equal32(exact bool, a, b []uint32) bool {
	for i := range a {
		if !same32(exact, a[i], b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

func check2(t *testing.T, name string, vv Op2, vs, sv Op2S, m model2) {
	t.Helper()
	r := random()
	at := func(form string, n int, x, y, got uint32) {
		if w := m.f(x, y); !same32(m.exact, got, w) {
			t.Helper()
			t.Fatalf("%s %s(%#x, %#x) is %#x, not %#x; %d lanes", name, form, x, y, got, w, n)
		}
	}

	for n := range maxLen {
		a, b, s := words(r, n), words(r, n), wordOf(r)
		dst, intact := guarded(n)
		vv(dst, a, b)
		for i := range dst {
			at("vv", n, a[i], b[i], dst[i])
		}

		c := append([]uint32(nil), a...)
		vv(c, c, b)
		require.True(t, equal32(m.exact, c, dst), "%s onto a, %d lanes", name, n)
		c = append([]uint32(nil), b...)
		vv(c, a, c)
		require.True(t, equal32(m.exact, c, dst), "%s onto b, %d lanes", name, n)

		vs(dst, a, s)
		for i := range dst {
			at("vs", n, a[i], s, dst[i])
		}

		c = append([]uint32(nil), a...)
		vs(c, c, s)
		require.True(t, equal32(m.exact, c, dst), "%s vs in place, %d lanes", name, n)

		sv(dst, a, s)
		for i := range dst {
			at("sv", n, s, a[i], dst[i])
		}

		c = append([]uint32(nil), a...)
		sv(c, c, s)
		require.True(t, equal32(m.exact, c, dst), "%s sv in place, %d lanes", name, n)
		require.True(t, intact(), "%s wrote outside of %d lanes", name, n)
	}

	// All interesting pairs.
	dst := make([]uint32, len(interesting))
	for _, s := range interesting {
		vs(dst, interesting, s)
		for i := range dst {
			at("vs", len(dst), interesting[i], s, dst[i])
		}
		sv(dst, interesting, s)
		for i := range dst {
			at("sv", len(dst), s, interesting[i], dst[i])
		}
	}
}

func TestUnary(t *testing.T) {
	both(t, func(t *testing.T) {
		for op, m := range models1 {
			f, ok := Unary(op)
			require.True(t, ok, op)
			check1(t, op.String(), f, m)
		}
		for g, m := range modelsGLSL1 {
			f, ok := GLSL1(g)
			require.True(t, ok, g)
			check1(t, g.String(), f, m)
		}
	})
	require.Len(t, models1, len(unaryGo)+1, "an instruction without a model") // and LogicalNot
	require.Len(t, modelsGLSL1, len(unaryGoGLSL)+1)                           // and Round
}

func TestBinary(t *testing.T) {
	both(t, func(t *testing.T) {
		for op, m := range models2 {
			f, ok := Binary(op)
			require.True(t, ok, op)
			vs, sv, ok := BinaryS(op)
			require.True(t, ok, op)
			check2(t, op.String(), f, vs, sv, m)
		}
		for g, m := range modelsGLSL2 {
			f, ok := GLSL2(g)
			require.True(t, ok, g)
			vs, sv, ok := GLSL2S(g)
			require.True(t, ok, g)
			check2(t, g.String(), f, vs, sv, m)
		}
	})

	require.Len(t, models2, len(binaryGo)+len(compareGo)+3, "an instruction without a model") // and three on bools
	require.Len(t, modelsGLSL2, len(binaryGoGLSL))
}

func TestNoSuchInstruction(t *testing.T) {
	_, ok := Unary(spirv.OpIAdd)
	require.False(t, ok)
	_, ok = Binary(spirv.OpNot)
	require.False(t, ok)
	_, _, ok = BinaryS(spirv.OpLoad)
	require.False(t, ok)
	_, ok = GLSL1(spirv.GLSLFMin)
	require.False(t, ok)
	_, ok = High(spirv.OpIAdd)
	require.False(t, ok)
}

func TestTernary(t *testing.T) {
	type f3 = func(x, y, z uint32) uint32
	f := math.Float32frombits
	b := math.Float32bits
	lo, hi := least(below).f, least(above).f
	nlo, nhi := number(least(below)).f, number(least(above)).f
	models := map[spirv.GLSL]struct {
		f     f3
		exact bool
	}{
		spirv.GLSLFClamp: {func(x, y, z uint32) uint32 { return lo(hi(x, y), z) }, true},
		spirv.GLSLNClamp: {func(x, y, z uint32) uint32 { return nlo(nhi(x, y), z) }, true},
		spirv.GLSLUClamp: {func(x, y, z uint32) uint32 { return min(max(x, y), z) }, true},
		spirv.GLSLSClamp: {func(x, y, z uint32) uint32 { return uint32(min(max(int32(x), int32(y)), int32(z))) }, true},
		spirv.GLSLFMix: {func(x, y, a uint32) uint32 {
			l, r := f(x)*(1-f(a)), f(y)*f(a)
			return b(l + r)
		}, false},
		spirv.GLSLSmoothStep: {func(x, y, z uint32) uint32 {
			q := (f(z) - f(x)) / (f(y) - f(x))
			if q < 0 {
				q = 0
			}
			if q > 1 {
				q = 1
			}
			u := q * q
			return b(u * (3 - 2*q))
		}, false},
		spirv.GLSLFma: {exactFma, false},
	}
	both(t, func(t *testing.T) {
		for g, m := range models {
			op, ok := GLSL3(g)
			require.True(t, ok, g)
			check3(t, g.String(), op, m.f, m.exact)
		}

		check3(t, "MulAdd", MulAdd, func(x, y, z uint32) uint32 {
			p := f(x) * f(y)
			return b(p + f(z))
		}, false)

		check3(t, "MulAddS", func(dst, a, b, c []uint32) {
			for i := range dst { // a scalar for each run of equal b; here they are 1
				MulAddS(dst[i:i+1], a[i:i+1], b[i], c[i:i+1])
			}
		}, func(x, y, z uint32) uint32 {
			p := f(x) * f(y)
			return b(p + f(z))
		}, false)

		check3(t, "Select", Select, func(x, y, z uint32) uint32 { return x&y | z&^x }, true)
		for _, op := range []spirv.Opcode{spirv.OpBitFieldSExtract, spirv.OpBitFieldUExtract} {
			f, ok := Ternary(op)
			require.True(t, ok)
			r := random()
			for n := range maxLen {
				base, off, count, dst := words(r, n), make([]uint32, n), make([]uint32, n), make([]uint32, n)
				for i := range base {
					off[i] = uint32(r.IntN(33))
					count[i] = uint32(r.IntN(33 - int(off[i])))
				}
				f(dst, base, off, count)
				for i := range dst {
					w := new(big.Int).Rsh(big.NewInt(int64(base[i])), uint(off[i]))
					w.And(w, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), uint(count[i])), big.NewInt(1)))
					if op == spirv.OpBitFieldSExtract && count[i] > 0 && w.Bit(int(count[i]-1)) == 1 {
						w.Sub(w, new(big.Int).Lsh(big.NewInt(1), uint(count[i])))
					}
					equal(t, uint32(w.Int64()), dst[i], "%v(%#x, %d, %d)", op, base[i], off[i], count[i])
				}
			}
		}
	})
}

// exactFma uses 300 bits, more than any sum of a product and a number needs.
func exactFma(x, y, z uint32) uint32 {
	a, b, c := fl(x), fl(y), fl(z)
	if s := a*b + c; math.IsNaN(s) || math.IsInf(s, 0) || s == 0 {
		return fb(s)
	}
	s := new(big.Float).SetPrec(700).Mul(big.NewFloat(a), big.NewFloat(b))
	s.Add(s, big.NewFloat(c))
	f, _ := s.Float32()
	return math.Float32bits(f)
}

func check3(t *testing.T, name string, op Op3, m func(x, y, z uint32) uint32, exact bool) {
	t.Helper()
	r := random()
	for n := range 3 * maxLen {
		n %= maxLen
		a, b, c := words(r, n), words(r, n), words(r, n)
		if r.IntN(2) == 0 { // sums that nearly cancel
			for i := range a {
				c[i] = math.Float32bits(-math.Float32frombits(a[i])*math.Float32frombits(b[i])) + uint32(r.IntN(3)) - 1
			}
		}

		dst, intact := guarded(n)
		op(dst, a, b, c)
		for i := range dst {
			if w := m(a[i], b[i], c[i]); !same32(exact, dst[i], w) {
				t.Fatalf("%s(%#x, %#x, %#x) is %#x, not %#x; lane %d of %d", name, a[i], b[i], c[i], dst[i], w, i, n)
			}
		}

		require.True(t, intact(), "%s wrote outside of %d lanes", name, n)
		for _, onto := range [][]uint32{a, b, c} {
			was := append([]uint32(nil), onto...)
			op(onto, a, b, c)
			require.True(t, equal32(exact, onto, dst), "%s in place, %d lanes", name, n)
			copy(onto, was)
		}
	}
}
