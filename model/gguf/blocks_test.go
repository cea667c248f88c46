package gguf

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/load/loadtest"
	"capgpu/model/quant"
	"capgpu/program/library/librarytest"
)

// blocks is a model with matrices of all packed types in turn.
func blocks(t testing.TB) *model.File {
	f := loadtest.Tiny(t, model.F32)
	r := rand.New(rand.NewPCG(1, 2))
	c := &f.Config
	c.Dim, c.Hidden, c.HeadDim, c.Layers = 256, 256, 256, 2
	typ := model.I8
	matrix := func(rows int) model.Tensor {
		if typ++; typ == model.Types {
			typ = model.I8 + 1
		}
		m := model.Tensor{Type: typ, Rows: rows, Cols: 256}
		packed := librarytest.BlockTypes[typ.String()]
		for range rows * 256 / packed.Elements {
			m.Data = append(m.Data, packed.Draw(r)...)
		}
		return m
	}

	norm := func() model.Tensor {
		m, err := quant.Encode(model.F32, 1, 256, 0, make([]float32, 256))
		require.NoError(t, err)
		return m
	}

	w := &f.Weights
	w.Embed, w.Norm, w.Output, w.Layers = matrix(4), norm(), matrix(4), nil
	for range c.Layers {
		w.Layers = append(w.Layers, model.Layer{
			AttnNorm: norm(), FFNNorm: norm(), Q: matrix(256), K: matrix(256), V: matrix(256), O: matrix(256),
			Gate: matrix(256), Up: matrix(256), Down: matrix(256),
		})
	}
	return f
}

// Every block type is loaded as it is: nothing is converted, and the tensors stay in
// the file.
func TestLoadBlocks(t *testing.T) {
	f := blocks(t)
	var b bytes.Buffer
	require.NoError(t, Write(&b, f, nil))
	data := b.Bytes()
	require.NoError(t, loadtest.Load(t, len(data), 64, func() (*model.File, error) { return Load(data) }))

	got, err := Load(data)
	require.NoError(t, err)
	seen := map[model.Type]bool{}
	want := quant.Matrices(&f.Weights)
	for i, m := range quant.Matrices(&got.Weights) {
		seen[m.Type] = true
		require.Equal(t, want[i].Type, m.Type)
		require.True(t, bytes.Equal(want[i].Data, m.Data), m.Type)
		_, err := quant.Decode(m)
		require.ErrorContains(t, err, m.Type.String()+" is decoded by kernels only")
	}
	require.Len(t, seen, int(model.Types-model.I8-1))
}
