package modeltest

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
)

// TestFrequencies: with Llama 3.1's parameters the fast frequencies stay, the slow
// ones are stretched in full, and there is no step between.
func TestFrequencies(t *testing.T) {
	c := model.Config{HeadDim: 128, RopeBase: 500000}
	plain := frequencies(&c)
	require.Equal(t, 1.0, plain[0])
	require.InDelta(t, math.Exp(-math.Log(500000)*126/128), plain[63], 1e-18)
	c.Scaling = model.RopeScaling{Factor: 8, LowFactor: 1, HighFactor: 4, Original: 8192}
	scaled := frequencies(&c)
	kept, stretched := 0, 0
	for i, f := range scaled {
		switch ratio := plain[i] / f; {
		case ratio == 1:
			kept++
			require.LessOrEqual(t, 2*math.Pi/plain[i], 8192.0/4)
		case ratio == 8:
			stretched++
			require.GreaterOrEqual(t, 2*math.Pi/plain[i], 8192.0/1)
		default:
			require.True(t, ratio > 1 && ratio < 8, "pair %d", i)
		}
		if i > 0 {
			require.Less(t, f, scaled[i-1])
		}
	}

	require.Equal(t, 29, kept)
	require.Equal(t, 29, stretched)

	// Values just inside the borders are close to those just outside.
	for _, wave := range []float64{2048, 8192} {
		near := func(wave float64) float64 {
			c := model.Config{HeadDim: 4, RopeBase: math.Pow(wave/(2*math.Pi), 2), Scaling: c.Scaling}
			return frequencies(&c)[1]
		}
		require.InEpsilon(t, near(wave*1.0001), near(wave*0.9999), 0.002)
	}
}

// TestFactors: a file's own factors divide the existing frequencies.
func TestFactors(t *testing.T) {
	c := model.Config{Dim: 4, Hidden: 1, Layers: 1, Heads: 1, KVHeads: 1, HeadDim: 4, Vocab: 1, Context: 1, RopeBase: 10000}
	tensor := func(rows, cols int, of float32) model.Tensor {
		t := model.Tensor{Type: model.F32, Rows: rows, Cols: cols}
		for range rows * cols {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(of))
		}
		return t
	}

	f := &model.File{Config: c, Weights: model.Weights{
		Embed: tensor(1, 4, 1), Output: tensor(1, 4, 1), Norm: tensor(1, 4, 1), RopeFactors: tensor(1, 2, 2),
		Layers: []model.Layer{{AttnNorm: tensor(1, 4, 1), FFNNorm: tensor(1, 4, 1), Q: tensor(4, 4, 1), K: tensor(4, 4, 1), V: tensor(4, 4, 1), O: tensor(4, 4, 1),
			Gate: tensor(1, 4, 1), Up: tensor(1, 4, 1), Down: tensor(4, 1, 1)}},
	}}

	r, err := New(f)
	require.NoError(t, err)
	for i, plain := range frequencies(&c) {
		require.Equal(t, plain/2, r.freqs[i])
	}
}
