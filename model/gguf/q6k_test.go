package gguf

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/model"
	"capgpu/model/load/loadtest"
	"capgpu/model/quant"
)

// packQ6K assembles a block as ggml's quantize_row_q6_K does: levels are 0 to 63.
func packQ6K(levels []uint8, scales []int8, d float32) []byte {
	var ql [128]byte
	var qh [64]byte
	for j := 0; j < 256; j += 128 {
		for l := range 32 {
			a, b, c, e := levels[j+l], levels[j+l+32], levels[j+l+64], levels[j+l+96]
			ql[j/2+l] = a&15 | c&15<<4
			ql[j/2+l+32] = b&15 | e&15<<4
			qh[j/4+l] = a>>4 | b>>4<<2 | c>>4<<4 | e>>4<<6
		}
	}
	out := append(ql[:], qh[:]...)
	for _, s := range scales {
		out = append(out, byte(s))
	}
	return le.AppendUint16(out, quant.F16(d))
}

func TestQ6K(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := rapid.SliceOfN(rapid.Uint8Range(0, 63), 256, 256).Draw(t, "levels")
		scales := rapid.SliceOfN(rapid.Int8(), 16, 16).Draw(t, "scales")
		d := float32(rapid.IntRange(-64, 64).Draw(t, "d")) / 1024 // an F16
		out := make([]float32, 256)
		decodeQ6K((*[q6kBytes]byte)(packQ6K(levels, scales, d)), out)
		for i, x := range out {
			if want := d * float32(scales[i/16]) * float32(int(levels[i])-32); x != want {
				t.Fatalf("element %d is %g, not %g", i, x, want)
			}
		}
	})
}

// Load converts a classifier of q6_k to q8_0.
func TestLoadQ6K(t *testing.T) {
	f := loadtest.Tiny(t, model.F32)
	x := make([]float32, 4*256)
	for i := range x {
		x[i] = float32(i%11) - 5
	}

	c := &f.Config
	c.Dim, c.Heads, c.KVHeads, c.HeadDim = 256, 64, 64, 4
	matrix := func(rows, cols int) model.Tensor {
		m, err := quant.Encode(model.F32, rows, cols, 0, make([]float32, rows*cols))
		require.NoError(t, err)
		return m
	}

	w := &f.Weights
	l := &w.Layers[0]
	w.Embed, w.Norm, l.AttnNorm, l.FFNNorm = matrix(4, 256), matrix(1, 256), matrix(1, 256), matrix(1, 256)
	l.Q, l.K, l.V, l.O = matrix(256, 256), matrix(256, 256), matrix(256, 256), matrix(256, 256)
	l.Gate, l.Up, l.Down = matrix(4, 256), matrix(4, 256), matrix(256, 4)
	w.Output = matrix(4, 256)
	var b bytes.Buffer
	require.NoError(t, Write(&b, f, nil))

	// The tensor's place in the file stays; q6_k is shorter.
	h, err := Parse(b.Bytes())
	require.NoError(t, err)
	out := h.Tensor("output.weight")
	var packed []byte
	levels, scales := make([]uint8, 256), bytes.Repeat([]byte{2}, 16)
	for i := range levels {
		levels[i] = uint8(i * 7 % 64)
	}

	for range 4 {
		packed = append(packed, packQ6K(levels, asSigned(scales), 0.5)...)
	}

	copy(out.Data, packed)
	data := b.Bytes()
	name := []byte("output.weight\x02\x00\x00\x00")
	data[bytes.LastIndex(data[:30000], append([]byte{13, 0, 0, 0, 0, 0, 0, 0}, name...))+8+len(name)+16] = typeQ6K

	err = loadtest.Load(t, len(data), 64, func() (*model.File, error) { return Load(data) })
	require.NoError(t, err)
	got, err := Load(data)
	require.NoError(t, err)
	require.Equal(t, model.Q8_0, got.Weights.Output.Type)
	back, err := quant.Decode(&got.Weights.Output)
	require.NoError(t, err)
	for i, x := range back {
		want := float64(int(levels[i%256]) - 32)
		require.LessOrEqual(t, math.Abs(float64(x)-want), 32.0/127/2+0.02, "element %d", i)
	}
}

func asSigned(b []byte) []int8 {
	out := make([]int8, len(b))
	for i, x := range b {
		out[i] = int8(x)
	}
	return out
}
