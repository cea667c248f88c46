package llama2c_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/llama2c"
	"capgpu/model/modeltest"
	"capgpu/model/quant"
	"capgpu/model/synth"
	"capgpu/model/tokenizer"
)

func small(t testing.TB, change func(o *synth.Options)) *model.File {
	t.Helper()
	o := synth.Options{Dim: 16, Hidden: 24, Layers: 2, Heads: 2, KVHeads: 1, Vocab: 260, Context: 8, Tied: true}
	if change != nil {
		change(&o)
	}
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	return f
}

func written(t testing.TB, f *model.File, version int) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, llama2c.Write(&b, f, version, nil))
	return b.Bytes()
}

func typeOf(version int) model.Type {
	if version == 2 {
		return model.I8
	}
	return model.F32
}

func TestRoundTrip(t *testing.T) {
	for version := range 3 {
		for _, tied := range []bool{false, true} {
			f := small(t, func(o *synth.Options) { o.Tied, o.Type = tied, typeOf(version) })
			data := written(t, f, version)
			require.Equal(t, version > 0, llama2c.Is(data))
			got, err := llama2c.Load(data)
			require.NoError(t, err)
			require.Equal(t, f.Config, got.Config)
			require.Equal(t, f.Weights, got.Weights)
			require.Equal(t, tied, got.Weights.Tied())
		}
	}
}

// stories260K is rewritten byte for byte, except its tables of angles; and as int8.
func TestStories(t *testing.T) {
	dir := modeltest.Stories(t)
	want, err := os.ReadFile(filepath.Join(dir, "stories260K.bin"))
	require.NoError(t, err)
	f, err := llama2c.Load(want)
	require.NoError(t, err)
	got := written(t, f, 0)
	angles := len(want) - 512*8/2*2*4
	require.True(t, bytes.Equal(want[:angles], got[:angles]))
	floats := func(b []byte) []float64 {
		x, err := modeltest.Floats(&model.Tensor{Rows: 1, Cols: len(b) / 4, Data: b})
		require.NoError(t, err)
		return x
	}

	diff, _ := modeltest.MaxDiff(floats(got[angles:]), floats(want[angles:]))
	require.Less(t, diff, 1e-4)

	q, err := quant.Convert(f, model.I8, 0)
	require.NoError(t, err)
	back, err := llama2c.Load(written(t, q, 2))
	require.NoError(t, err)
	require.Equal(t, q.Weights, back.Weights)
	require.Equal(t, 4, back.Weights.Embed.Group)

	bin, err := os.ReadFile(filepath.Join(dir, "tok512.bin"))
	require.NoError(t, err)
	tok, err := tokenizer.FromLlama2c(bin, 512)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, llama2c.WriteTokenizer(&out, tok.Spec()))
	require.Equal(t, bin, out.Bytes())
}

func TestWriteRefuses(t *testing.T) {
	var b bytes.Buffer
	for name, err := range map[string]error{
		"version": llama2c.Write(&b, small(t, nil), 3, nil),
		"tensors": llama2c.Write(&b, small(t, nil), 2, nil),
		"config": func() error {
			f := small(t, nil)
			f.Config.NormEps = 1e-6
			return llama2c.Write(&b, f, 0, nil)
		}(),
		"tokenizer": llama2c.WriteTokenizer(&b, small(t, func(o *synth.Options) { o.ByteLevel = true }).Tokenizer.Spec()),
	} {
		require.ErrorIs(t, err, gpuerr.Invalid)
		require.ErrorContains(t, err, name+": ")
	}
	require.Zero(t, b.Len())
}
