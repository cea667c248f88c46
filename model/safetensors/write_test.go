package safetensors_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/modeltest"
	"capgpu/model/safetensors"
	"capgpu/model/synth"
	"capgpu/model/tokenizer"
)

func small(t testing.TB, change func(o *synth.Options)) *model.File {
	t.Helper()
	o := synth.Options{Dim: 16, Hidden: 24, Layers: 2, Heads: 2, KVHeads: 1, Vocab: 512, Context: 8, Tied: true, Rope: model.RopeHalves}
	if change != nil {
		change(&o)
	}
	m, err := synth.New(o)
	require.NoError(t, err)
	f, err := m.File()
	require.NoError(t, err)
	return f
}

// folder is a model as the files of a folder, in memory.
func folder(t testing.TB, f *model.File, o safetensors.Options) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	create := func(name string, put func(w io.Writer) error) error {
		var b bytes.Buffer
		err := put(&b)
		files[name] = b.Bytes()
		return err
	}
	require.NoError(t, safetensors.Write(create, f, o, nil))
	return files
}

func parts(files map[string][]byte) safetensors.Parts {
	p := safetensors.Parts{
		Config: files[safetensors.ConfigFile], Index: files[safetensors.IndexFile], Tokenizer: files[safetensors.TokenizerFile],
		TokenizerConfig: files[safetensors.TokenizerConfigFile], Generation: files[safetensors.GenerationFile], Shards: map[string][]byte{},
	}
	for name, b := range files {
		if strings.HasSuffix(name, ".safetensors") {
			p.Shards[name] = b
		}
	}
	return p
}

var texts = []string{"Once upon a time there was a little girl", "çà 漢字 \U0001F600\n\ttab", "a  b   c\x00\x7F", "don't 12345 stop!", "", " the and"}

func TestRoundTrip(t *testing.T) {
	for _, typ := range []model.Type{model.F32, model.F16, model.BF16} {
		for _, tied := range []bool{false, true} {
			for _, shard := range []int64{0, 4000} {
				f := small(t, func(o *synth.Options) { o.Type, o.Tied, o.ByteLevel = typ, tied, tied })
				f.Template = "{{ messages }}"
				f.Config.Scaling = model.RopeScaling{Factor: 8, LowFactor: 1, HighFactor: 4, Original: 4}
				files := folder(t, f, safetensors.Options{ShardBytes: shard})
				require.Equal(t, shard != 0, files[safetensors.IndexFile] != nil)
				got, err := safetensors.Load(parts(files))
				require.NoError(t, err)
				require.Equal(t, f.Config, got.Config)
				require.Equal(t, f.Weights, got.Weights)
				require.Equal(t, tied, got.Weights.Tied())
				require.Equal(t, f.Template, got.Template)
				a, b := f.Tokenizer, got.Tokenizer
				require.Equal(t, a.BOS(), b.BOS())
				require.Equal(t, a.Vocab(), b.Vocab())
				require.Equal(t, a.Spec().EOS, b.Spec().EOS)
				for _, text := range texts {
					require.Equal(t, a.Encode(text, tokenizer.Encode{}), b.Encode(text, tokenizer.Encode{}), "%q", text)
				}
			}
		}
	}
}

// A model with adjacent pairs is written with heads in halves, and stays the same
// model.
func TestArranged(t *testing.T) {
	f := small(t, func(o *synth.Options) { o.Rope = model.RopeAdjacent })
	got, err := safetensors.Load(parts(folder(t, f, safetensors.Options{})))
	require.NoError(t, err)
	require.Equal(t, model.RopeHalves, got.Config.Rope)
	a, err := modeltest.New(f)
	require.NoError(t, err)
	b, err := modeltest.New(got)
	require.NoError(t, err)
	for i, id := range []int32{1, 40, 40, 7, 200, 90} {
		diff, _ := modeltest.MaxDiff(a.Step(id, i), b.Step(id, i))
		require.Less(t, diff, 1e-9)
	}
}

func TestWriteRefuses(t *testing.T) {
	none := func(string, func(io.Writer) error) error { t.Fatal("something was written"); return nil }
	err := safetensors.Write(none, small(t, func(o *synth.Options) { o.Type, o.Dim, o.Hidden = model.Q8_0, 32, 32 }), safetensors.Options{}, nil)
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "tensor model.embed_tokens.weight: ")
	f := small(t, nil)
	f.Weights.RopeFactors = f.Weights.Norm
	require.ErrorContains(t, safetensors.Write(none, f, safetensors.Options{}, nil), "rope factors: ")
	f = small(t, nil)
	f.Tokenizer = nil
	require.ErrorContains(t, safetensors.Write(none, f, safetensors.Options{}, nil), "tokenizer: ")
}

// A file of tied tensors may have either name.
func TestTiedAlias(t *testing.T) {
	f := small(t, func(o *synth.Options) { o.Tied = true })
	files := swap(t, folder(t, f, safetensors.Options{}), safetensors.SingleFile, "model.embed_tokens.weight", "lm_head.weight")
	got, err := safetensors.Load(parts(files))
	require.NoError(t, err)
	require.True(t, got.Weights.Tied())
	require.Equal(t, f.Weights.Embed, got.Weights.Embed)

	untied := swap(t, files, safetensors.ConfigFile, `"tie_word_embeddings": true`, `"tie_word_embeddings": false`)
	_, err = safetensors.Load(parts(untied))
	require.ErrorContains(t, err, "tensor model.embed_tokens.weight: is missing")
}
