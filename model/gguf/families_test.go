package gguf_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/gguf"
	"capgpu/model/load/loadtest"
	"capgpu/model/synth"
)

// A model of each family reads back as it was written, under the format's own names.
func TestFamilies(t *testing.T) {
	has := map[model.Arch]string{
		model.Qwen2: "blk.1.attn_k.bias", model.Qwen3: "blk.1.attn_k_norm.weight", model.Gemma: "blk.0.ffn_up.weight",
		model.Gemma2: "blk.0.post_ffw_norm.weight", model.Gemma3: "blk.1.post_attention_norm.weight", model.Phi3: "blk.1.attn_qkv.weight",
	}
	for arch := range model.Archs {
		f := small(t, func(o *synth.Options) { o.Arch, o.Layers, o.Rope = arch, 2, arch.Traits().GGUFRope })
		data := written(t, f)
		got, err := gguf.Load(data)
		require.NoError(t, err, arch)
		require.Equal(t, f.Config, got.Config)
		require.Equal(t, f.Weights, got.Weights)
		require.NoError(t, loadtest.Check(got))

		h, err := gguf.Parse(data)
		require.NoError(t, err)
		if name := has[arch]; name != "" {
			require.NotNil(t, h.Tensor(name), name)
			lie := bytes.Replace(data, []byte(name), []byte(strings.Repeat("x", len(name))), 1)
			require.ErrorContains(t, loadLie(t, lie), "tensor "+name+": is missing")
		}
	}
}

// Phi-3's factors for long contexts are read with the length from which they are.
func TestLongContext(t *testing.T) {
	f := small(t, func(o *synth.Options) { o.Arch = model.Phi3 })
	f.Config.Turned = 12
	factors := func(first float32) model.Tensor {
		n := f.Config.TurnedDim() / 2
		x := model.Tensor{Rows: 1, Cols: n, Data: make([]byte, 4*n)}
		for i := range n {
			bits := math.Float32bits(first + float32(i))
			for b := range 4 {
				x.Data[4*i+b] = byte(bits >> (8 * b))
			}
		}
		return x
	}
	f.Config.LongAfter, f.Config.RopeScale = 8, 1.25
	f.Weights.RopeFactors, f.Weights.LongFactors = factors(1), factors(3)
	data := written(t, f)
	got, err := gguf.Load(data)
	require.NoError(t, err)
	require.Equal(t, f.Config, got.Config)
	require.Equal(t, f.Weights, got.Weights)

	lie := bytes.Replace(data, []byte("rope_factors_short"), []byte("rope_factors_shirt"), 1)
	require.ErrorContains(t, loadLie(t, lie), "tensor rope_factors_short.weight: is missing")
	lie = bytes.Replace(data, []byte("original_context_length"), []byte("original_context_lengtH"), 1)
	require.ErrorContains(t, loadLie(t, lie), "phi3.rope.scaling.original_context_length: is missing")
}

// Options that a family does not have are refused by name.
func TestForeignOptions(t *testing.T) {
	for _, c := range []struct {
		arch model.Arch
		key  string
		to   any
		want string
	}{
		{model.Qwen2, "qwen2.attention.sliding_window", uint32(4), "qwen2.attention.sliding_window: 4 is not supported"},
		{model.Qwen3, "qwen3.expert_count", uint32(4), "qwen3.expert_count: 4 is not supported"},
		{model.Gemma, "gemma.final_logit_softcapping", float32(30), "gemma.final_logit_softcapping: 30 is not supported"},
		{model.Gemma3, "gemma3.attention.sliding_window", nil, "gemma3.attention.sliding_window: is missing"},
		{model.Gemma2, "gemma2.attn_logit_softcapping", float32(-1), "scoreCap: -1"},
		{model.Phi3, "phi3.rope.dimension_count", uint32(8), ""},
		{model.Phi3, "phi3.rope.dimension_count", uint32(7), "turned: 7"},
		{model.Phi3, "phi3.rope.dimension_count", uint32(0), "phi3.rope.dimension_count: 0 of the 16 elements"},
		{model.Phi3, "phi3.rope.dimension_count", uint32(18), "turned: 18"},
		{model.Qwen2, "qwen2.rope.dimension_count", uint32(8), "qwen2.rope.dimension_count: 8 of the 16 elements"},
		{model.Phi3, "phi3.rope.scaling.type", "longrope", "phi3.rope.scaling.type: \"longrope\" is not supported"},
		{model.Llama, "llama.attention.sliding_window", uint32(4), ""},
	} {
		f := small(t, func(o *synth.Options) { o.Arch, o.Rope = c.arch, c.arch.Traits().GGUFRope })
		h, err := gguf.Parse(written(t, f))
		require.NoError(t, err)
		err = loadLie(t, gguf.Rewrite(t, h, map[string]any{c.key: c.to}))
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
	}
}
