package gguf_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/modeltest"
	"capgpu/model/quant"
	"capgpu/model/synth"
	"capgpu/model/tokenizer"
)

// small is a model of one layer.
func small(t testing.TB, change func(o *synth.Options)) *model.File {
	t.Helper()
	o := synth.Options{Name: "small", Dim: 32, Hidden: 64, Layers: 1, Heads: 2, KVHeads: 1, Vocab: 260, Context: 16, Tied: true}
	if change != nil {
		change(&o)
	}
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	return f
}

func written(t testing.TB, f *model.File) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, gguf.Write(&b, f, nil))
	return b.Bytes()
}

// A file reads back as the model that was written, for every type and both
// vocabularies.
func TestRoundTrip(t *testing.T) {
	for _, typ := range []model.Type{model.F32, model.F16, model.BF16, model.Q8_0, model.Q4_0} {
		for _, tied := range []bool{false, true} {
			f := small(t, func(o *synth.Options) { o.Type, o.Tied, o.ByteLevel, o.Layers = typ, tied, tied, 2 })
			f.Template = "{{ messages }}"
			got, err := gguf.Load(written(t, f))
			require.NoError(t, err)
			require.Equal(t, f.Config, got.Config)
			require.Equal(t, f.Weights, got.Weights)
			require.Equal(t, tied, got.Weights.Tied())
			require.Equal(t, f.Tokenizer.Spec(), got.Tokenizer.Spec())
			require.Equal(t, f.Template, got.Template)
			require.Equal(t, "small", got.Name)
			require.Equal(t, "gguf", got.Format)
		}
	}
}

// Version 2 has the same layout.
func TestVersion2(t *testing.T) {
	f := small(t, nil)
	data := written(t, f)
	require.Equal(t, byte(3), data[4])
	data[4] = 2
	got, err := gguf.Load(data)
	require.NoError(t, err)
	require.Equal(t, f.Weights, got.Weights)
}

// The same model, supplied tensor by tensor, gives the same file.
func TestContent(t *testing.T) {
	o, err := synth.Shape("tiny")
	require.NoError(t, err)
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, gguf.Write(&b, m.Plan, m.Content))
	require.True(t, bytes.Equal(written(t, f), b.Bytes()))

	short := func(x *model.Tensor) (model.Tensor, error) {
		got, err := m.Content(x)
		got.Data = got.Data[1:]
		return got, err
	}

	require.ErrorContains(t, gguf.Write(&b, m.Plan, short), "tensor token_embd.weight: ")
}

// A model with heads in halves, and with positions stretched as in Llama 3.1, gives
// another file and the same model.
func TestArranged(t *testing.T) {
	f := small(t, func(o *synth.Options) { o.Rope = model.RopeHalves })
	f.Config.Scaling = model.RopeScaling{Factor: 8, LowFactor: 1, HighFactor: 4, Original: 8}
	got, err := gguf.Load(written(t, f))
	require.NoError(t, err)
	require.Equal(t, model.RopeAdjacent, got.Config.Rope)
	require.NotEqual(t, f.Weights.Layers[0].Q, got.Weights.Layers[0].Q)
	require.NotEmpty(t, got.Weights.RopeFactors.Data)
	a, err := modeltest.New(f)
	require.NoError(t, err)
	b, err := modeltest.New(got)
	require.NoError(t, err)
	for i, id := range []int32{1, 40, 40, 7, 200, 90} {
		diff, _ := modeltest.MaxDiff(a.Step(id, i), b.Step(id, i))
		require.Less(t, diff, 1e-5)
	}
}

func TestWriteRefuses(t *testing.T) {
	var b bytes.Buffer
	err := gguf.Write(&b, small(t, func(o *synth.Options) { o.Type = model.I8 }), nil)
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "tensor token_embd.weight: ")

	f := small(t, nil)
	s := f.Tokenizer.Spec()
	s.SpaceOnce = true
	f.Tokenizer, err = tokenizer.New(s)
	require.NoError(t, err)
	require.ErrorContains(t, gguf.Write(&b, f, nil), "SpaceOnce")
	f.Tokenizer = nil
	require.ErrorContains(t, gguf.Write(&b, f, nil), "tokenizer: ")
}

// The real model, converted, is written and read back.
func TestStories(t *testing.T) {
	f := stories(t)
	for _, typ := range []model.Type{model.F16, model.BF16, model.Q8_0, model.Q4_0} {
		q, err := quant.Convert(f, typ, 0)
		require.NoError(t, err)
		require.Equal(t, typ, q.Weights.Layers[0].Q.Type)
		got, err := gguf.Load(written(t, q))
		require.NoError(t, err)
		require.Equal(t, q.Weights, got.Weights)
		require.Equal(t, q.Tokenizer.Spec(), got.Tokenizer.Spec())
	}
}
