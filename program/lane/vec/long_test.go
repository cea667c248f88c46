package vec

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
)

// someLengths are for loops that are in Go alone.
var someLengths = []int{0, 1, 5, 32, 70}

func checkL2(t *testing.T, name string, vv Op2L, vs, sv Op2SL, m func(x, y uint64) uint64) {
	t.Helper()
	r := random()
	for n := range maxLen / 2 {
		a, b, s, dst := longs(r, n), longs(r, n), longOf(r), make([]uint64, n)
		at := func(x, y, got uint64) {
			if w := m(x, y); !sameL(got, w) {
				t.Helper()
				t.Fatalf("%s(%#x, %#x) is %#x, not %#x; %d lanes", name, x, y, got, w, n)
			}
		}

		vv(dst, a, b)
		for i := range dst {
			at(a[i], b[i], dst[i])
		}

		if vs == nil {
			continue
		}

		vs(dst, a, s)
		for i := range dst {
			at(a[i], s, dst[i])
		}

		sv(dst, a, s)
		for i := range dst {
			at(s, a[i], dst[i])
		}

		c := append([]uint64(nil), a...)
		vv(a, a, b)
		for i := range a {
			at(c[i], b[i], a[i])
		}
	}
}

func TestBinaryL(t *testing.T) {
	both(t, func(t *testing.T) {
		for op, m := range modelsL2 {
			f, ok := BinaryL(op)
			require.True(t, ok, op)
			vs, sv, ok := BinaryLS(op)
			require.True(t, ok, op)
			checkL2(t, op.String(), f, vs, sv, m)
		}
		for g, m := range modelsLGLSL2 {
			f, ok := GLSL2L(g)
			require.True(t, ok, g)
			checkL2(t, g.String(), f, nil, nil, m)
		}
	})

	require.Len(t, modelsL2, len(binaryLGo))
	require.Len(t, modelsLGLSL2, len(binaryLGoGLSL))
}

// A comparison of 64 bits is that of 32 with other types.
func TestCompareL(t *testing.T) {
	type test struct {
		of   func(x, y uint64) int // -1, 0, 1; 2 for unordered
		want [4]bool               // less, equal, greater, unordered
	}

	u := func(x, y uint64) int { return unsigned(x).Cmp(unsigned(y)) }
	s := func(x, y uint64) int { return signed(x).Cmp(signed(y)) }
	f := func(x, y uint64) int {
		if nanL(x) || nanL(y) {
			return 2
		}
		return big.NewFloat(fL(x)).Cmp(big.NewFloat(fL(y)))
	}

	models := map[spirv.Opcode]test{
		spirv.OpIEqual:                 {u, [4]bool{false, true, false}},
		spirv.OpINotEqual:              {u, [4]bool{true, false, true}},
		spirv.OpUGreaterThan:           {u, [4]bool{false, false, true}},
		spirv.OpUGreaterThanEqual:      {u, [4]bool{false, true, true}},
		spirv.OpULessThan:              {u, [4]bool{true, false, false}},
		spirv.OpULessThanEqual:         {u, [4]bool{true, true, false}},
		spirv.OpSGreaterThan:           {s, [4]bool{false, false, true}},
		spirv.OpSGreaterThanEqual:      {s, [4]bool{false, true, true}},
		spirv.OpSLessThan:              {s, [4]bool{true, false, false}},
		spirv.OpSLessThanEqual:         {s, [4]bool{true, true, false}},
		spirv.OpFOrdEqual:              {f, [4]bool{false, true, false, false}},
		spirv.OpFUnordEqual:            {f, [4]bool{false, true, false, true}},
		spirv.OpFOrdNotEqual:           {f, [4]bool{true, false, true, false}},
		spirv.OpFUnordNotEqual:         {f, [4]bool{true, false, true, true}},
		spirv.OpFOrdLessThan:           {f, [4]bool{true, false, false, false}},
		spirv.OpFUnordLessThan:         {f, [4]bool{true, false, false, true}},
		spirv.OpFOrdGreaterThan:        {f, [4]bool{false, false, true, false}},
		spirv.OpFUnordGreaterThan:      {f, [4]bool{false, false, true, true}},
		spirv.OpFOrdLessThanEqual:      {f, [4]bool{true, true, false, false}},
		spirv.OpFUnordLessThanEqual:    {f, [4]bool{true, true, false, true}},
		spirv.OpFOrdGreaterThanEqual:   {f, [4]bool{false, true, true, false}},
		spirv.OpFUnordGreaterThanEqual: {f, [4]bool{false, true, true, true}},
	}
	require.Len(t, models, len(compareLGo))
	both(t, func(t *testing.T) {
		r := random()
		for op, m := range models {
			vv, ok := CompareL(op)
			require.True(t, ok)
			vs, sv, ok := CompareLS(op)
			require.True(t, ok)
			for _, n := range someLengths {
				a, b, dst := longs(r, n), longs(r, n), make([]uint32, n)
				for i := range a {
					if r.IntN(3) == 0 {
						b[i] = a[i]
					}
				}

				expect := func(x, y uint64) uint32 { return boolean(m.want[m.of(x, y)+1]) }
				vv(dst, a, b)
				for i := range dst {
					equal(t, expect(a[i], b[i]), dst[i], "%v(%#x, %#x)", op, a[i], b[i])
				}

				if n == 0 {
					continue
				}

				vs(dst, a, b[0])
				for i := range dst {
					equal(t, expect(a[i], b[0]), dst[i], "%v(%#x, %#x)", op, a[i], b[0])
				}

				sv(dst, a, b[0])
				for i := range dst {
					equal(t, expect(b[0], a[i]), dst[i], "%v(%#x, %#x)", op, b[0], a[i])
				}
			}
		}
	})
}

func TestUnaryL(t *testing.T) {
	through := func(f func(float64) float64) func(uint64) uint64 {
		return func(x uint64) uint64 { return bL(f(fL(x))) }
	}

	clamp := func(x uint64, lo, hi *big.Int) uint64 {
		if nanL(x) {
			return 0
		}

		if math.IsInf(fL(x), 0) {
			if fL(x) > 0 {
				return low64(hi)
			}
			return low64(lo)
		}

		v, _ := big.NewFloat(fL(x)).Int(nil)
		if v.Cmp(lo) < 0 {
			v = lo
		}
		if v.Cmp(hi) > 0 {
			v = hi
		}

		return low64(v)
	}

	core := map[spirv.Opcode]func(uint64) uint64{
		spirv.OpNot:     func(x uint64) uint64 { return math.MaxUint64 - x },
		spirv.OpSNegate: func(x uint64) uint64 { return low64(new(big.Int).Neg(signed(x))) },
		spirv.OpFNegate: func(x uint64) uint64 { return x + 1<<63 },
		spirv.OpConvertFToS: func(x uint64) uint64 {
			return clamp(x, big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64))
		},
		spirv.OpConvertFToU: func(x uint64) uint64 { return clamp(x, new(big.Int), unsigned(math.MaxUint64)) },
		spirv.OpConvertSToF: func(x uint64) uint64 { f, _ := new(big.Float).SetInt(signed(x)).Float64(); return bL(f) },
		spirv.OpConvertUToF: func(x uint64) uint64 { f, _ := new(big.Float).SetInt(unsigned(x)).Float64(); return bL(f) },
	}

	glsl := map[spirv.GLSL]func(uint64) uint64{
		spirv.GLSLRound:     through(math.RoundToEven),
		spirv.GLSLRoundEven: through(math.RoundToEven),
		spirv.GLSLTrunc:     through(math.Trunc),
		spirv.GLSLFloor:     through(math.Floor),
		spirv.GLSLCeil:      through(math.Ceil),
		spirv.GLSLFract:     through(func(x float64) float64 { return x - math.Floor(x) }),
		spirv.GLSLFAbs:      func(x uint64) uint64 { return x << 1 >> 1 },
		spirv.GLSLSAbs:      func(x uint64) uint64 { return low64(new(big.Int).Abs(signed(x))) },
		spirv.GLSLSSign:     func(x uint64) uint64 { return uint64(int64(signed(x).Sign())) },
		spirv.GLSLFSign: func(x uint64) uint64 {
			switch {
			case fL(x) > 0:
				return bL(1)
			case fL(x) < 0:
				return bL(-1)
			}
			return 0
		},
		spirv.GLSLSqrt:        through(math.Sqrt),
		spirv.GLSLInverseSqrt: through(func(x float64) float64 { return 1 / math.Sqrt(x) }),
	}

	require.Len(t, core, len(unaryLGo))
	require.Len(t, glsl, len(unaryLGoGLSL)+1)
	r := random()
	check := func(name string, f Op1L, m func(uint64) uint64) {
		for _, n := range someLengths {
			a := longs(r, n)
			dst := make([]uint64, n)
			f(dst, a)
			for i := range dst {
				if !sameL(dst[i], m(a[i])) {
					t.Fatalf("%s(%#x) is %#x, not %#x", name, a[i], dst[i], m(a[i]))
				}
			}
		}
	}

	for op, m := range core {
		f, ok := UnaryL(op)
		require.True(t, ok)
		check(op.String(), f, m)
	}

	for g, m := range glsl {
		f, ok := GLSL1L(g)
		require.True(t, ok)
		check(g.String(), f, m)
	}
}

func TestTernaryL(t *testing.T) {
	lo, hi := leastL(below, false), leastL(above, false)
	nlo, nhi := leastL(below, true), leastL(above, true)
	models := map[spirv.GLSL]func(x, y, z uint64) uint64{
		spirv.GLSLFClamp: func(x, y, z uint64) uint64 { return lo(hi(x, y), z) },
		spirv.GLSLNClamp: func(x, y, z uint64) uint64 { return nlo(nhi(x, y), z) },
		spirv.GLSLUClamp: func(x, y, z uint64) uint64 { return min(max(x, y), z) },
		spirv.GLSLSClamp: func(x, y, z uint64) uint64 { return uint64(min(max(int64(x), int64(y)), int64(z))) },
		spirv.GLSLFMix: func(x, y, a uint64) uint64 {
			l, r := fL(x)*(1-fL(a)), fL(y)*fL(a)
			return bL(l + r)
		},
		spirv.GLSLSmoothStep: func(x, y, z uint64) uint64 {
			q := (fL(z) - fL(x)) / (fL(y) - fL(x))
			if q < 0 {
				q = 0
			}
			if q > 1 {
				q = 1
			}
			u := q * q
			return bL(u * (3 - 2*q))
		},
		spirv.GLSLFma: func(x, y, z uint64) uint64 { return bL(math.FMA(fL(x), fL(y), fL(z))) },
	}
	require.Len(t, models, len(ternaryLGoGLSL))
	r := random()
	for g, m := range models {
		f, ok := GLSL3L(g)
		require.True(t, ok)
		for _, n := range someLengths {
			a, b, c, dst := longs(r, n), longs(r, n), longs(r, n), make([]uint64, n)
			f(dst, a, b, c)
			for i := range dst {
				require.True(t, sameL(dst[i], m(a[i], b[i], c[i])), "%v(%#x, %#x, %#x) is %#x", g, a[i], b[i], c[i], dst[i])
			}
		}
	}
}

func TestHigh(t *testing.T) {
	carry := func(of func(uint64) *big.Int, f func(z, x, y *big.Int) *big.Int, bits uint) func(x, y uint64) uint64 {
		return func(x, y uint64) uint64 {
			v := f(new(big.Int), of(x), of(y))
			return low64(v.Rsh(v, bits)) & (1<<bits - 1)
		}
	}

	s32 := func(x uint64) *big.Int { return big.NewInt(int64(int32(x))) }
	r := random()
	for op, f := range map[spirv.Opcode]func(z, x, y *big.Int) *big.Int{
		spirv.OpIAddCarry: (*big.Int).Add, spirv.OpISubBorrow: (*big.Int).Sub,
		spirv.OpUMulExtended: (*big.Int).Mul, spirv.OpSMulExtended: (*big.Int).Mul,
	} {
		of, ofL := unsigned, unsigned
		if op == spirv.OpSMulExtended {
			of, ofL = s32, signed
		}

		g, ok := High(op)
		require.True(t, ok)
		gL, ok := HighL(op)
		require.True(t, ok)
		a, b, dst := words(r, 999), words(r, 999), make([]uint32, 999)
		aL, bL, dstL := longs(r, 999), longs(r, 999), make([]uint64, 999)
		g(dst, a, b)
		gL(dstL, aL, bL)
		for i := range dst {
			w, wL := carry(of, f, 32)(uint64(a[i]), uint64(b[i])), carry(ofL, f, 64)(aL[i], bL[i])
			if op == spirv.OpISubBorrow { // -1 above, where there is a borrow
				w, wL = w&1, wL&1
			}
			equal(t, uint32(w), dst[i], "%v(%#x, %#x)", op, a[i], b[i])
			equal(t, wL, dstL[i], "%v(%#x, %#x)", op, aL[i], bL[i])
		}
	}
}
