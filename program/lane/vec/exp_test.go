package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/program/spirv"
)

// Exp and Exp2 against package math, over all orders of magnitude: the f32 results
// differ only in the few cases with a double by chance at the middle of two of
// them.
func TestExp(t *testing.T) {
	both(t, func(t *testing.T) {
		r := random()
		for g, f := range map[spirv.GLSL]func(float64) float64{spirv.GLSLExp: math.Exp, spirv.GLSLExp2: math.Exp2} {
			op, ok := GLSL1(g)
			require.True(t, ok)
			a, dst := make([]uint32, 100_000), make([]uint32, 100_000)
			for i := range a {
				switch i % 4 {
				case 0:
					a[i] = r.Uint32()
				case 1:
					a[i] = fb(r.Float64()*220 - 120)
				case 2:
					a[i] = fb(math.Ldexp(r.Float64()*2-1, -r.IntN(30)))
				default:
					a[i] = fb(float64(r.IntN(320) - 160))
				}
			}

			op(dst, a)
			wrong := 0
			for i := range a {
				w := fb(f(fl(a[i])))
				if same32(false, w, dst[i]) {
					continue
				}
				wrong++
				if d := int32(w - dst[i]); d > 1 || d < -1 {
					t.Fatalf("%v(%v) is %v, not %v", g, fl(a[i]), fl(dst[i]), fl(w))
				}
			}

			require.LessOrEqual(t, wrong, 2, g)
		}
	})
}

// The same bits from Go and assembly, on every exponent.
func TestExpSame(t *testing.T) {
	if !hasFast {
		t.Skip("no assembly for this processor")
	}

	r := random()
	a, slow, fast := make([]uint32, 1<<17), make([]uint32, 1<<17), make([]uint32, 1<<17)
	for i := range a {
		a[i] = uint32(i)<<15 | r.Uint32()&0x7FFF
	}

	for _, g := range []spirv.GLSL{spirv.GLSLExp, spirv.GLSLExp2, spirv.GLSLInverseSqrt} {
		was := ForceGo(true)
		op, _ := GLSL1(g)
		op(slow, a)
		ForceGo(was)
		op, _ = GLSL1(g)
		op(fast, a)
		for i := range a {
			if !same32(false, slow[i], fast[i]) {
				t.Fatalf("%v(%#x) is %#x in Go, %#x in assembly", g, a[i], slow[i], fast[i])
			}
		}
	}
}
