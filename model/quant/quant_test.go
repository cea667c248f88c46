package quant

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/gpuerr"
	"capgpu/model"
)

// nearest is the slow, obvious rounding: it searches all finite values of a 16-bit
// form for the one nearest to x, the even one of two.
func nearest(x float32, decode func(uint16) float32) uint16 {
	best, dist := uint16(0), math.Inf(1)
	for i := range 1 << 16 {
		v := float64(decode(uint16(i)))
		if math.IsInf(v, 0) || math.IsNaN(v) || math.Signbit(v) != math.Signbit(float64(x)) {
			continue
		}
		if d := math.Abs(v - float64(x)); d < dist || d == dist && i&1 == 0 {
			best, dist = uint16(i), d
		}
	}
	return best
}

func TestHalvesRoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		for _, f := range []struct {
			name string
			back uint16
			val  float32
		}{{"f16", F16(FromF16(h)), FromF16(h)}, {"bf16", BF16(FromBF16(h)), FromBF16(h)}} {
			if f.val != f.val {
				if v := f.back; v&0x7FFF <= 0x7C00 {
					t.Fatalf("%s: %#x is not a number, and %#x after", f.name, h, v)
				}
			} else if f.back != h {
				t.Fatalf("%s: %#x became %g became %#x", f.name, h, f.val, f.back)
			}
		}
	}

	require.Equal(t, float32(65504), FromF16(0x7BFF))
	require.Equal(t, float32(1)/(1<<24), FromF16(1))
	require.Equal(t, float32(1), FromF16(0x3C00))
	require.Equal(t, uint16(0x7C00), F16(65520))
	require.Equal(t, uint16(0x7BFF), F16(65519))
	require.Equal(t, uint16(0xFC00), F16(float32(math.Inf(-1))))
}

func TestHalvesAgainstTheNearest(t *testing.T) {
	xs := []float32{0, 1e-8, 2.98e-8, 2.9802322e-8, 2.9802326e-8, 5.96e-8, 6.1e-5, 6.097555e-5, 1, 1.00048828125, 1.0014648, 3.14159, 65503, -0.1, -6e-8}
	for _, x := range xs {
		require.Equal(t, nearest(x, FromF16), F16(x), "f16 of %g", x)
	}
	for _, x := range append(xs, 1e30, -1e-30, 1.00390625, 1.01171875) {
		require.Equal(t, nearest(x, FromBF16), BF16(x), "bf16 of %g", x)
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Float32Range(-65504, 65504).Draw(t, "x")
		if want, got := nearest(a, FromF16), F16(a); want != got {
			t.Fatalf("f16 of %g: %#x, want %#x", a, got, want)
		}
	})
}

// The error of each type is half a step and, if the scale is an F16, the effect of
// the scale's rounding.
func TestEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := model.Type(rapid.IntRange(0, int(model.I8)).Draw(t, "type"))
		rows, cols := rapid.IntRange(1, 3).Draw(t, "rows"), 32*rapid.IntRange(1, 3).Draw(t, "blocks")
		group := rapid.SampledFrom([]int{1, 8, 32}).Draw(t, "group")
		src := rapid.SliceOfN(rapid.Float32Range(-100, 100), rows*cols, rows*cols).Draw(t, "src")
		m, err := Encode(typ, rows, cols, group, src)
		if err != nil {
			t.Fatal(err)
		}

		back, err := Decode(&m)
		if err != nil {
			t.Fatal(err)
		}

		for i, x := range src {
			var step float64
			n := map[model.Type]int{model.Q8_0: 32, model.Q4_0: 32, model.I8: group}[typ]
			switch typ {
			case model.F16:
				step = math.Abs(float64(x))/1024 + 1e-7
			case model.BF16:
				step = math.Abs(float64(x))/128 + 1e-40
			case model.Q8_0, model.I8:
				step = float64(abs(largest(src[i/n*n:][:n]))) / 127
			case model.Q4_0:
				step = float64(abs(largest(src[i/n*n:][:n]))) / 4 // the other end is clipped at 7 of 8
			}
			if d := math.Abs(float64(x) - float64(back[i])); d > step/2+math.Abs(float64(x))/2000+1e-6 {
				t.Fatalf("%s: element %d is %g, was %g, a step is %g", typ, i, back[i], x, step)
			}
		}
	})
}

// The bytes of one block, worked out by hand.
func TestBlocks(t *testing.T) {
	src := make([]float32, 32)
	src[0], src[1], src[16], src[31] = -8, 7, 4, 1
	m, err := Encode(model.Q4_0, 1, 32, 0, src)
	require.NoError(t, err)
	want := make([]byte, 18)
	want[0], want[1] = 0x00, 0x3C // 1
	for i := range 16 {
		want[2+i] = 0x88
	}

	want[2], want[3], want[17] = 0xC0, 0x8F, 0x98
	require.Equal(t, want, m.Data)

	src[0] = -127
	m, err = Encode(model.Q8_0, 1, 32, 0, src)
	require.NoError(t, err)
	want = make([]byte, 34)
	want[1], want[2], want[3], want[18], want[33] = 0x3C, 0x81, 7, 4, 1
	require.Equal(t, want, m.Data)
}

// Numbers too small for a scale become 0.
func TestTiny(t *testing.T) {
	for _, typ := range []model.Type{model.Q8_0, model.Q4_0, model.I8} {
		src := make([]float32, 32)
		src[3] = 1e-44
		m, err := Encode(typ, 1, 32, 32, src)
		require.NoError(t, err)
		back, err := Decode(&m)
		require.NoError(t, err)
		require.Equal(t, make([]float32, 32), back, typ)
	}
}

func TestEncodeRefuses(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, f := range map[string]func() error{
		"short":    func() error { _, err := Encode(model.F32, 2, 2, 0, make([]float32, 3)); return err },
		"blocks":   func() error { _, err := Encode(model.Q8_0, 1, 33, 0, make([]float32, 33)); return err },
		"group":    func() error { _, err := Encode(model.I8, 1, 32, 5, make([]float32, 32)); return err },
		"infinite": func() error { _, err := Encode(model.F32, 1, 1, 0, []float32{inf}); return err },
		"large":    func() error { _, err := Encode(model.F16, 1, 1, 0, []float32{1e6}); return err },
		"largeBF":  func() error { _, err := Encode(model.BF16, 1, 1, 0, []float32{math.MaxFloat32}); return err },
		"largeQ8": func() error {
			_, err := Encode(model.Q8_0, 1, 32, 0, append(make([]float32, 31), 1e8))
			return err
		},
		"type": func() error { _, err := Encode(model.I8+1, 1, 1, 0, make([]float32, 1)); return err },
		"data": func() error { _, err := Decode(&model.Tensor{Rows: 1, Cols: 1}); return err },
		"scales": func() error {
			_, err := Decode(&model.Tensor{Type: model.I8, Rows: 1, Cols: 1, Group: 1, Data: []byte{1}})
			return err
		},
	} {
		require.ErrorIs(t, f(), gpuerr.Invalid, name)
	}
}
