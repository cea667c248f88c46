package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/load/loadtest"
	"capgpu/model/safetensors"
	"capgpu/model/synth"
)

// times bounds the bytes allocated for each byte of the files: JSON and the
// tokenizer.
const times = 64

func loadLie(t testing.TB, files map[string][]byte) error {
	t.Helper()
	size := 0
	for _, b := range files {
		size += len(b)
	}
	return loadtest.Load(t, size, times, func() (*model.File, error) { return safetensors.Load(parts(files)) })
}

func base(t testing.TB) map[string][]byte {
	return folder(t, small(t, func(o *synth.Options) { o.Layers, o.Vocab, o.Type = 1, 270, model.BF16 }), safetensors.Options{})
}

// but is the files with one of them replaced.
func but(files map[string][]byte, name string, b []byte) map[string][]byte {
	files = maps.Clone(files)
	files[name] = b
	return files
}

// swap replaces text in a file. In a file of tensors it keeps the header's length.
func swap(t testing.TB, files map[string][]byte, name, from, to string) map[string][]byte {
	t.Helper()
	b := files[name]
	require.Contains(t, string(b), from)
	if strings.HasSuffix(name, ".safetensors") {
		n := binary.LittleEndian.Uint64(b)
		header := strings.Replace(string(b[8:8+n]), from, to, 1)
		out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return but(files, name, append(append(out, header...), b[8+n:]...))
	}
	return but(files, name, []byte(strings.Replace(string(b), from, to, 1)))
}

func TestLies(t *testing.T) {
	files := base(t)
	require.NoError(t, loadLie(t, files))
	const st = safetensors.SingleFile
	raw := func(header string, data int) []byte {
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return append(append(b, header...), make([]byte, data)...)
	}

	length := func(n uint64) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), make([]byte, 100)...)
	}

	for name, lie := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"short":      {but(files, st, []byte("1234567")), "header: a file of 7 bytes"},
		"length":     {but(files, st, length(101)), "header: 101 bytes in a file of 108"},
		"lengthHuge": {but(files, st, length(math.MaxUint64)), "header: 18446744073709551615 bytes"},
		"noJSON":     {but(files, st, raw("x", 0)), "header: is no object"},
		"array":      {but(files, st, raw("[]", 0)), "header: is no object"},
		"open":       {but(files, st, raw("{", 0)), "header: "},
		"after":      {but(files, st, raw("{} {}", 0)), "header: something follows"},
		"deep":       {but(files, st, raw(`{"a":`+strings.Repeat("[", 100000), 0)), "tensor a: "},
		"deepMeta":   {but(files, st, raw(`{"__metadata__":`+strings.Repeat("[", 100000), 0)), "header: __metadata__"},
		"dims":       {but(files, st, raw(`{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}`, 4)), "tensor a: more than 8 dimensions"},
		"negative":   {but(files, st, raw(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4)), "tensor a: "},
		"overflow":   {but(files, st, raw(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}`, 4)), "tensor a: 4 bytes for"},
		"beyond":     {but(files, st, raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4)), "tensor a: data_offsets 0 to 8"},
		"backwards":  {but(files, st, raw(`{"a":{"dtype":"F32","shape":[],"data_offsets":[4,0]}}`, 4)), "tensor a: data_offsets 4 to 0"},
		"size":       {but(files, st, raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4)), "tensor a: 4 bytes for [2]"},
		"twice":      {but(files, st, raw(`{"a":{"dtype":"U8","shape":[],"data_offsets":[0,0]},"a":{}}`, 4)), "tensor a: is there twice"},
		"overlap":    {but(files, st, raw(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}`, 4)), "tensor b: lies over tensor a"},
		"longName":   {but(files, st, raw(`{"`+strings.Repeat("n", 300)+`":{}}`, 4)), "a name of more than 256"},
		"missing":    {swap(t, files, st, "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_pro.weight"), "tensor model.layers.0.mlp.up_proj.weight: is missing"},
		"unknown":    {swap(t, files, st, `{"__metadata__"`, `{"x.bias":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"__metadata__"`), "tensor x.bias: is not of a llama model"},
		"dtype":      {swap(t, files, st, `"BF16"`, `"I16"`), ": type \"I16\" is not supported"},
		"noShard":    {but(files, st, nil), "header: "},

		"config":       {but(files, safetensors.ConfigFile, []byte("{")), "config.json: "},
		"noConfig":     {but(files, safetensors.ConfigFile, nil), "config.json: "},
		"deepConfig":   {but(files, safetensors.ConfigFile, []byte(strings.Repeat(`{"a":`, 100000))), "config.json: "},
		"architecture": {swap(t, files, safetensors.ConfigFile, "LlamaForCausalLM", "MixtralForCausalLM"), "MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, Phi3ForCausalLM are: it needs experts"},
		"modelType":    {swap(t, files, safetensors.ConfigFile, "LlamaForCausalLM", "Qwen2ForCausalLM"), "model_type: \"llama\" is not supported with Qwen2ForCausalLM"},
		"act":          {swap(t, files, safetensors.ConfigFile, `"silu"`, `"gelu"`), "hidden_act: \"gelu\""},
		"attnBias":     {swap(t, files, safetensors.ConfigFile, `"attention_bias": false`, `"attention_bias": true`), "attention_bias: "},
		"mlpBias":      {swap(t, files, safetensors.ConfigFile, `"mlp_bias": false`, `"mlp_bias": true`), "mlp_bias: "},
		"gptq":         {swap(t, files, safetensors.ConfigFile, `{`, `{"quantization_config": {"quant_method": "gptq"},`), `quant_method: "gptq" is not supported`},
		"awq":          {swap(t, files, safetensors.ConfigFile, `{`, `{"quantization_config": {"quant_method": "awq"},`), `quant_method: "awq" is not supported`},
		"fp8":          {swap(t, files, safetensors.ConfigFile, `{`, `{"quantization_config": {"quant_method": "fp8"},`), `quant_method: "fp8" is not supported`},
		"quantised":    {swap(t, files, safetensors.ConfigFile, `{`, `{"quantization_config": {"bits": 4},`), "quantization_config: "},
		"sliding":      {swap(t, files, safetensors.ConfigFile, `{`, `{"sliding_window": 4096,`), "sliding_window: "},
		"partial":      {swap(t, files, safetensors.ConfigFile, `{`, `{"partial_rotary_factor": 0.5,`), "partial_rotary_factor: 0.5"},
		"rope":         {swap(t, files, safetensors.ConfigFile, `{`, `{"rope_scaling": {"type": "dynamic", "factor": 2},`), "rope_scaling.rope_type: \"dynamic\""},
		"ropeLlama3":   {swap(t, files, safetensors.ConfigFile, `{`, `{"rope_scaling": {"rope_type": "llama3", "factor": 2},`), "rope_scaling: factor, low"},
		"ropeLinear":   {swap(t, files, safetensors.ConfigFile, `{`, `{"rope_scaling": {"type": "linear", "factor": -2},`), "rope_scaling.factor: "},
		"ropeOK":       {swap(t, files, safetensors.ConfigFile, `{`, `{"rope_scaling": {"type": "linear", "factor": 2},`), ""},
		"ropeParams":   {swap(t, files, safetensors.ConfigFile, `{`, `{"rope_parameters": {"rope_type": "default", "rope_theta": 5e5},`), ""},
		"layers":       {swap(t, files, safetensors.ConfigFile, `"num_hidden_layers": 1`, `"num_hidden_layers": 1000`), "num_hidden_layers: 1000 layers"},
		"layersMany":   {swap(t, files, safetensors.ConfigFile, `"num_hidden_layers": 1`, `"num_hidden_layers": 100000`), "num_hidden_layers: 100000 is not within"},
		"heads":        {swap(t, files, safetensors.ConfigFile, `"num_attention_heads": 2`, `"num_attention_heads": 0`), "num_attention_heads: 0"},
		"hidden":       {swap(t, files, safetensors.ConfigFile, `"hidden_size": 16`, `"hidden_size": 32`), "tensor model.embed_tokens.weight: shape"},
		"noHidden":     {swap(t, files, safetensors.ConfigFile, `"hidden_size"`, `"hidden"`), "hidden_size: is missing"},
		"vocab":        {swap(t, files, safetensors.ConfigFile, `"vocab_size": 270`, `"vocab_size": 269`), "tensor model.embed_tokens.weight: shape"},
		"untied":       {swap(t, files, safetensors.ConfigFile, `"tie_word_embeddings": true`, `"tie_word_embeddings": false`), "tensor lm_head.weight: is missing"},
		"eos":          {but(files, safetensors.GenerationFile, []byte(`{"eos_token_id": 270}`)), "eos_token_id: 270"},
		"eosText":      {but(files, safetensors.GenerationFile, []byte(`{"eos_token_id": "x"}`)), "generation_config.json: "},
		"eosList":      {but(files, safetensors.GenerationFile, []byte(`{"eos_token_id": [2, 5]}`)), ""},
		"eosMany":      {but(files, safetensors.GenerationFile, []byte(`{"eos_token_id": [`+strings.Repeat("2,", 100)+`2]}`)), "generation_config.json: "},
		"tokenizer":    {but(files, safetensors.TokenizerFile, []byte(`{}`)), "tokenizer.json: "},
		"noTokenizer":  {but(files, safetensors.TokenizerFile, nil), "tokenizer.json: "},
		"index":        {but(files, safetensors.IndexFile, []byte(`{}`)), "weight_map: 0 files"},
		"indexPath":    {but(files, safetensors.IndexFile, []byte(`{"weight_map":{"a":"../x.safetensors"}}`)), "which is no file of the folder"},
		"indexMissing": {but(files, safetensors.IndexFile, []byte(`{"weight_map":{"a":"x.safetensors"}}`)), "x.safetensors: is missing"},
		"indexOther":   {but(files, safetensors.IndexFile, []byte(`{"weight_map":{"a":"model.safetensors"}}`)), ": is not there after model.safetensors.index.json"},
	} {
		t.Run(name, func(t *testing.T) {
			err := loadLie(t, lie.files)
			if lie.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, lie.want)
			}
		})
	}
}

// A token beyond the tokenizer's exists and has no text; ends come from the
// generation's configuration.
func TestFinish(t *testing.T) {
	files := base(t)
	files = but(files, safetensors.GenerationFile, []byte(`{"eos_token_id": [2, 5]}`))
	f, err := safetensors.Load(parts(files))
	require.NoError(t, err)
	require.True(t, f.Tokenizer.IsEnd(2))
	require.True(t, f.Tokenizer.IsEnd(5))
	require.False(t, f.Tokenizer.IsEnd(6))

	// The last token of the vocabulary, "j", has no entry in tokenizer.json any more.
	var file map[string]any
	require.NoError(t, json.Unmarshal(files[safetensors.TokenizerFile], &file))
	vocab := file["model"].(map[string]any)["vocab"].(map[string]any)
	require.Equal(t, 269.0, vocab["j"])
	delete(vocab, "j")
	b, err := json.Marshal(file)
	require.NoError(t, err)
	f, err = safetensors.Load(parts(but(files, safetensors.TokenizerFile, b)))
	require.NoError(t, err)
	require.Equal(t, 270, f.Tokenizer.Vocab())
	require.Empty(t, f.Tokenizer.Piece(269))
	require.Equal(t, "i", string(f.Tokenizer.Piece(268)))
}

// A part that was truncated anywhere is an error.
func TestTruncated(t *testing.T) {
	files := base(t)
	b := files[safetensors.SingleFile]
	for n := range b {
		if n < 400 || n%37 == 0 {
			require.Error(t, loadLie(t, but(files, safetensors.SingleFile, b[:n:n])))
		}
	}
	for _, name := range []string{safetensors.ConfigFile, safetensors.TokenizerFile} {
		b := bytes.TrimRight(files[name], "\n")
		for n := range b {
			if n < 400 || n%97 == 0 {
				require.Error(t, loadLie(t, but(files, name, b[:n:n])), "%s: %d", name, n)
			}
		}
	}
}

func TestEveryByte(t *testing.T) {
	files := base(t)
	b := bytes.Clone(files[safetensors.SingleFile])
	files[safetensors.SingleFile] = b
	end := int(8 + binary.LittleEndian.Uint64(b))
	for at := range end {
		was := b[at]
		for _, lie := range []byte{0, 0xFF, '9', '"', '}', was + 1} {
			b[at] = lie
			_ = loadLie(t, files)
		}
		b[at] = was
	}
	require.NoError(t, loadLie(t, files))
}

func FuzzLoad(f *testing.F) {
	files := folder(f, small(f, func(o *synth.Options) {
		o.Dim, o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Vocab, o.Type = 2, 2, 1, 1, 1, 260, model.BF16
	}), safetensors.Options{})
	require.NoError(f, loadLie(f, files))
	tokenizer := files[safetensors.TokenizerFile]
	f.Add(files[safetensors.SingleFile], files[safetensors.ConfigFile], []byte(nil), files[safetensors.GenerationFile])
	f.Add(files[safetensors.SingleFile], files[safetensors.ConfigFile], []byte(`{"weight_map":{"model.norm.weight":"model.safetensors"}}`), []byte(`{"eos_token_id":[1,2]}`))
	for arch := model.Qwen2; arch < model.Archs; arch++ {
		files := folder(f, small(f, func(o *synth.Options) {
			o.Arch, o.Dim, o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Vocab, o.Type = arch, 2, 2, 1, 1, 1, 260, model.BF16
		}), safetensors.Options{})
		f.Add(files[safetensors.SingleFile], files[safetensors.ConfigFile], []byte(nil), []byte(nil))
	}
	f.Add(files[safetensors.SingleFile], []byte(`{"architectures": ["Gemma3ForConditionalGeneration"], "text_config": {"hidden_size": 2}}`), []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, shard, config, index, generation []byte) {
		all := map[string][]byte{safetensors.SingleFile: shard, safetensors.ConfigFile: config, safetensors.TokenizerFile: tokenizer}
		if len(index) > 0 {
			all[safetensors.IndexFile] = index
		}
		if len(generation) > 0 {
			all[safetensors.GenerationFile] = generation
		}
		_ = loadLie(t, all)
	})
}
