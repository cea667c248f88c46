package safetensors_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/load/loadtest"
	"capgpu/model/quant"
	"capgpu/model/safetensors"
	"capgpu/model/synth"
)

func ofFamily(t testing.TB, arch model.Arch) *model.File {
	t.Helper()
	return small(t, func(o *synth.Options) { o.Arch, o.Vocab, o.Tied = arch, 270, arch.Traits().Tied })
}

// A model of each family reads back as it was written, under Hugging Face's names; norms
// of Gemma are there less 1.
func TestFamilies(t *testing.T) {
	has := map[model.Arch]string{
		model.Llama: "mlp.gate_proj.weight", model.Qwen2: "self_attn.v_proj.bias", model.Qwen3: "self_attn.q_norm.weight",
		model.Gemma: "post_attention_layernorm.weight", model.Gemma2: "pre_feedforward_layernorm.weight",
		model.Gemma3: "post_feedforward_layernorm.weight", model.Phi3: "mlp.gate_up_proj.weight",
	}
	for arch := range model.Archs {
		f := ofFamily(t, arch)
		files := folder(t, f, safetensors.Options{})
		got, err := safetensors.Load(parts(files))
		require.NoError(t, err, arch)
		require.NoError(t, loadtest.Check(got))
		require.Equal(t, f.Config, got.Config)
		require.Equal(t, f.Weights, got.Weights)
		name := "model.layers.1." + has[arch]
		require.ErrorContains(t, loadLie(t, swap(t, files, safetensors.SingleFile, name, name+"s")), "tensor "+name+": is missing")
	}
}

// configWith is the configuration that a config.json with some members changed gives.
func configWith(t *testing.T, f *model.File, changes map[string]any) (model.Config, *model.File, error) {
	t.Helper()
	files := folder(t, f, safetensors.Options{})
	var c map[string]any
	require.NoError(t, json.Unmarshal(files[safetensors.ConfigFile], &c))
	for key, value := range changes {
		if c[key] = value; value == nil {
			delete(c, key)
		}
	}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	files = but(files, safetensors.ConfigFile, text)
	if err := loadLie(t, files); err != nil {
		return model.Config{}, nil, err
	}
	got, err := safetensors.Load(parts(files))
	require.NoError(t, err)
	return got.Config, got, nil
}

type object = map[string]any

// A config.json means what it means to the families' own code.
func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		arch    model.Arch
		changes object
		want    func(c *model.Config)
	}{
		"mistral":      {model.Llama, object{"architectures": []string{"MistralForCausalLM"}, "model_type": "mistral", "sliding_window": 4}, func(c *model.Config) { c.Window = 4 }},
		"mistral 0.3":  {model.Llama, object{"architectures": []string{"MistralForCausalLM"}, "model_type": "mistral"}, func(c *model.Config) {}},
		"qwen2":        {model.Qwen2, object{"sliding_window": 4, "use_sliding_window": false, "layer_types": []string{"full_attention", "full_attention"}}, func(c *model.Config) {}},
		"scalar":       {model.Gemma2, object{"query_pre_attn_scalar": 4}, func(c *model.Config) { c.ScoreScale = 0.5 }},
		"own scalar":   {model.Gemma2, object{"query_pre_attn_scalar": 8}, func(c *model.Config) {}},
		"no caps":      {model.Gemma2, object{"attn_logit_softcapping": nil, "final_logit_softcapping": nil}, func(c *model.Config) { c.ScoreCap, c.LogitCap = 0, 0 }},
		"pattern":      {model.Gemma3, object{"sliding_window_pattern": 2}, func(c *model.Config) { c.GlobalEvery = 2 }},
		"layer types":  {model.Gemma3, object{"sliding_window_pattern": nil, "layer_types": []string{"sliding_attention", "full_attention"}}, func(c *model.Config) { c.GlobalEvery = 2 }},
		"both of rope": {model.Gemma3, object{"rope_theta": nil, "rope_local_base_freq": nil, "rope_parameters": object{"full_attention": object{"rope_theta": 5e5, "rope_type": "default"}, "sliding_attention": object{"rope_theta": 5000}}}, func(c *model.Config) { c.RopeBase, c.LocalRopeBase = 5e5, 5000 }},
		"in part":      {model.Phi3, object{"partial_rotary_factor": 0.75}, func(c *model.Config) { c.Turned = 6 }},
		"activation":   {model.Gemma, object{"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": nil}, func(c *model.Config) {}},
	} {
		f := ofFamily(t, c.arch)
		got, _, err := configWith(t, f, c.changes)
		require.NoError(t, err, name)
		want := f.Config
		c.want(&want)
		require.Equal(t, want, got, name)
	}
}

// Options that would change the result are refused by name.
func TestForeignOptions(t *testing.T) {
	for want, c := range map[string]struct {
		arch    model.Arch
		changes object
	}{
		"sliding_window: is not supported":                            {model.Qwen2, object{"use_sliding_window": true, "sliding_window": 4}},
		"sliding_window: -1 is not within":                            {model.Gemma2, object{"sliding_window": -1}},
		"layer_types: layer 1 is \"sliding_attention\"":               {model.Qwen3, object{"layer_types": []string{"full_attention", "sliding_attention"}}},
		"layer_types: layer 0 is \"full_attention\"":                  {model.Gemma3, object{"sliding_window_pattern": nil, "layer_types": []string{"full_attention", "sliding_attention"}}},
		"layer_types: layer 2 is":                                     {model.Qwen3, object{"layer_types": []string{"full_attention", "full_attention", "full_attention"}}},
		"globalEvery: -1":                                             {model.Gemma3, object{"sliding_window_pattern": -1}},
		"partial_rotary_factor: 2":                                    {model.Phi3, object{"partial_rotary_factor": 2}},
		"turned: 1":                                                   {model.Phi3, object{"partial_rotary_factor": 0.2}},
		"query_pre_attn_scalar: -1":                                   {model.Gemma2, object{"query_pre_attn_scalar": -1}},
		"final_logit_softcapping: are not supported":                  {model.Gemma, object{"final_logit_softcapping": 30}},
		"use_bidirectional_attention":                                 {model.Gemma3, object{"use_bidirectional_attention": true}},
		"hidden_act: \"silu\" is not supported; gelu_pytorch_tanh is": {model.Gemma2, object{"hidden_act": "silu"}},
		"partial_rotary_factor: 0.75":                                 {model.Qwen3, object{"partial_rotary_factor": 0.75}},
		"rope_type: \"longrope\" is not supported":                    {model.Qwen2, object{"rope_scaling": object{"rope_type": "longrope"}}},
		"rope_type: \"yarn\" is not supported":                        {model.Qwen3, object{"rope_scaling": object{"rope_type": "yarn", "factor": 4}}},
		"original_max_position_embeddings: is missing":                {model.Phi3, object{"rope_scaling": object{"type": "su"}}},
		"short_factor and long_factor have 1 and 4 elements":          {model.Phi3, object{"original_max_position_embeddings": 4, "rope_scaling": object{"type": "su", "short_factor": []int{1}, "long_factor": []int{1, 2, 3, 4}}}},
		"a factor is 0":                                               {model.Phi3, object{"original_max_position_embeddings": 4, "rope_scaling": object{"type": "su", "short_factor": []int{1, 2, 3, 4}, "long_factor": []int{1, 2, 3, 0}}}},
		"ropeScale: ":                                                 {model.Phi3, object{"original_max_position_embeddings": 4, "rope_scaling": object{"type": "su", "attention_factor": 1e9, "short_factor": []int{1, 2, 3, 4}, "long_factor": []int{1, 2, 3, 4}}}},
	} {
		_, _, err := configWith(t, ofFamily(t, c.arch), c.changes)
		require.ErrorContains(t, err, want)
	}
}

// Phi-3's factors, wherever they are, and the factor of what is turned that follows from them.
func TestLongContext(t *testing.T) {
	f := ofFamily(t, model.Phi3)
	su := object{"short_factor": []int{1, 1, 1, 1}, "long_factor": []int{1, 2, 3, 4}}
	with := func(kind string, more object) object {
		out := object{"rope_type": kind}
		for k, v := range su {
			out[k] = v
		}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	by := math.Sqrt(1 + math.Log(2)/math.Log(4))
	for _, changes := range []object{
		{"original_max_position_embeddings": 4, "rope_scaling": with("su", nil)},
		{"rope_parameters": with("longrope", object{"original_max_position_embeddings": 4})},
		{"rope_parameters": object{"full_attention": with("longrope", object{"original_max_position_embeddings": 4})}},
	} {
		c, got, err := configWith(t, f, changes)
		require.NoError(t, err)
		require.Equal(t, 4, c.LongAfter)
		require.InDelta(t, by, c.RopeScale, 1e-12)
		long, err := quant.Decode(&got.Weights.LongFactors)
		require.NoError(t, err)
		require.Equal(t, []float32{1, 2, 3, 4}, long)

		again, err := safetensors.Load(parts(folder(t, got, safetensors.Options{})))
		require.NoError(t, err)
		require.Equal(t, c, again.Config)
		require.Equal(t, got.Weights, again.Weights)
	}
}

// The part for text of a model that also takes images is a model of text alone.
func TestTextPart(t *testing.T) {
	f := ofFamily(t, model.Gemma3)
	files := folder(t, f, safetensors.Options{})
	var text object
	require.NoError(t, json.Unmarshal(files[safetensors.ConfigFile], &text))
	delete(text, "architectures")
	whole, err := json.Marshal(object{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3", "text_config": text, "vision_config": object{"layers": 3}})
	require.NoError(t, err)
	for _, prefix := range [][2]string{{"language_model.model.", ""}, {"model.language_model.", "model."}} {
		st := files[safetensors.SingleFile]
		n := binary.LittleEndian.Uint64(st)
		header := strings.ReplaceAll(string(st[8:8+n]), `"model.`, `"`+prefix[0])
		header = strings.Replace(header, "{", `{"`+prefix[1]+`vision_tower.x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},`, 1)
		renamed := but(files, safetensors.SingleFile, append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), st[8+n:]...))
		got, err := safetensors.Load(parts(but(renamed, safetensors.ConfigFile, whole)))
		require.NoError(t, err)
		require.Equal(t, f.Config, got.Config)
		require.Equal(t, f.Weights, got.Weights)

		unknown := swap(t, but(renamed, safetensors.ConfigFile, whole), safetensors.SingleFile, "vision_tower.x", "audio_tower.xx")
		require.ErrorContains(t, loadLie(t, unknown), "audio_tower.xx: is not of a gemma3 model")
	}

	none := but(files, safetensors.ConfigFile, []byte(`{"architectures": ["Gemma3ForConditionalGeneration"]}`))
	require.ErrorContains(t, loadLie(t, none), "text_config: is missing")
	bad := but(files, safetensors.ConfigFile, []byte(`{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"hidden_size": "x"}}`))
	require.ErrorContains(t, loadLie(t, bad), "text_config: ")
}
