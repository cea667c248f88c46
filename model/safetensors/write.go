package safetensors

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
	"capgpu/model/quant"
)

// Options of Write.
type Options struct {
	// ShardBytes bounds the bytes of tensors in one file, unless a single tensor is
	// larger; 0: all go into SingleFile.
	ShardBytes int64
}

// Create makes one file of a folder; put writes its content.
type Create func(name string, put func(w io.Writer) error) error

// Write stores a model as a folder. With a nil content it writes the tensors' own
// bytes. Queries and keys are put in the order of the format. It returns
// gpuerr.Invalid for anything that the format cannot hold: quantised tensors,
// factors of the positions, rules of a tokenizer.
func Write(create Create, f *model.File, o Options, content quant.Content) error {
	if content == nil {
		content = quant.Own
	}
	if err := f.Config.Check(); err != nil {
		return err
	}
	if f.Weights.RopeFactors.Data != nil && f.Config.LongAfter == 0 {
		return gpuerr.New(gpuerr.Invalid, "rope factors: the format has none for each pair")
	}
	if f.Tokenizer == nil {
		return gpuerr.New(gpuerr.Invalid, "tokenizer: the model has none")
	}

	content = quant.Arranged(f, model.RopeHalves, content)
	shape, err := configOf(f)
	if err != nil {
		return err
	}
	texts := map[string]any{ConfigFile: shape, GenerationFile: generationOf(f)}
	if texts[TokenizerFile], texts[TokenizerConfigFile], err = tokenizerOf(f); err != nil {
		return err
	}

	shards, err := cut(f, o.ShardBytes, content)
	if err != nil {
		return err
	}

	index := map[string]string{}
	total := 0
	for i, s := range shards {
		name := SingleFile
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		for _, t := range s {
			index[t.name] = name
			total += t.Bytes()
		}
		if err := create(name, func(w io.Writer) error { return writeShard(w, s) }); err != nil {
			return err
		}
	}

	if len(shards) > 1 {
		texts[IndexFile] = map[string]any{"metadata": map[string]int{"total_size": total}, "weight_map": index}
	}

	for _, name := range []string{IndexFile, TokenizerFile, TokenizerConfigFile, GenerationFile, ConfigFile} {
		if texts[name] == nil {
			continue
		}
		err := create(name, func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			e.SetEscapeHTML(false)
			return e.Encode(texts[name])
		})
		if err != nil {
			return err
		}
	}

	return nil
}

type named struct {
	name   string
	vector bool
	*model.Tensor
	content quant.Content
}

// cut divides the tensors among files.
func cut(f *model.File, shardBytes int64, content quant.Content) ([][]named, error) {
	w := &f.Weights
	norms := content
	if f.Config.Arch.Traits().MinusOne {
		norms = func(t *model.Tensor) (model.Tensor, error) {
			got, err := content(t)
			if err != nil {
				return got, err
			}
			return plus(&got, -1)
		}
	}

	all := []named{{"model.embed_tokens.weight", false, &w.Embed, content}}
	for i := range w.Layers {
		for _, s := range stacks(&f.Config, &w.Layers[i], i) {
			t, c, err := quant.Stacked(&s, content)
			if err != nil {
				return nil, err
			}
			if s.Parts[0].Norm {
				c = norms
			}
			all = append(all, named{s.Name, s.Rows() == 0, t, c})
		}
	}

	all = append(all, named{"model.norm.weight", true, &w.Norm, norms})
	if !w.Tied() {
		all = append(all, named{"lm_head.weight", false, &w.Output, content})
	}

	shards := [][]named{nil}
	size := int64(0)
	for _, t := range all {
		if typeName(t.Type) == "" {
			return nil, gpuerr.New(gpuerr.Invalid, "tensor %s: the format cannot hold %s", t.name, t.Type)
		}
		last := len(shards) - 1
		if n := int64(t.Bytes()); shardBytes > 0 && size > 0 && size+n > shardBytes {
			shards, size, last = append(shards, nil), 0, last+1
		}
		shards[last] = append(shards[last], t)
		size += int64(t.Bytes())
	}

	return shards, nil
}

func typeName(t model.Type) string {
	for name, typ := range types {
		if typ == t {
			return name
		}
	}
	return ""
}

func writeShard(w io.Writer, all []named) error {
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := 0
	for _, t := range all {
		dims := []int{t.Rows, t.Cols}
		if t.vector {
			dims = dims[1:]
		}
		header[t.name] = map[string]any{"dtype": typeName(t.Type), "shape": dims, "data_offsets": []int{at, at + t.Bytes()}}
		at += t.Bytes()
	}

	text, err := json.Marshal(header)
	if err != nil {
		return err
	}

	for len(text)%8 != 0 {
		text = append(text, ' ')
	}

	out := bufio.NewWriterSize(w, 1<<20)
	out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	out.Write(text)
	for _, t := range all {
		err := mapped.Guard(func() error {
			got, err := t.content.Fetch(t.name, t.Tensor)
			if err == nil {
				_, err = out.Write(got.Data)
			}
			return err
		})
		if err != nil {
			return err
		}
	}

	return out.Flush()
}

// configOf is the config.json of a model.
func configOf(f *model.File) (map[string]any, error) {
	c, traits := &f.Config, f.Config.Arch.Traits()
	class, kind := traits.Classes[0], traits.Types[0]
	if c.Arch == model.Llama && c.Window != 0 {
		class, kind = traits.Classes[1], traits.Types[1]
	}
	m := map[string]any{
		"architectures": []string{class}, "model_type": kind, "hidden_act": "silu",
		"hidden_size": c.Dim, "intermediate_size": c.Hidden, "num_hidden_layers": c.Layers,
		"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "head_dim": c.HeadDim,
		"vocab_size": c.Vocab, "max_position_embeddings": c.Context, "rms_norm_eps": c.NormEps,
		"rope_theta": c.RopeBase, "tie_word_embeddings": f.Weights.Tied(), "attention_bias": false, "mlp_bias": false,
		"torch_dtype": map[model.Type]string{model.F32: "float32", model.F16: "float16", model.BF16: "bfloat16"}[f.Weights.Embed.Type],
	}

	if s := c.Scaling; s.Factor != 0 {
		m["rope_scaling"] = map[string]any{
			"rope_type": "llama3", "factor": s.Factor, "low_freq_factor": s.LowFactor, "high_freq_factor": s.HighFactor,
			"original_max_position_embeddings": s.Original,
		}
	}

	if err := setOptions(m, f); err != nil {
		return nil, err
	}
	for key, value := range generationOf(f) {
		m[key] = value
	}

	return m, nil
}

// setOptions sets what only some families have.
func setOptions(m map[string]any, f *model.File) error {
	c, traits := &f.Config, f.Config.Arch.Traits()
	if traits.GELU {
		m["hidden_act"] = "gelu_pytorch_tanh"
	}
	if c.Window != 0 {
		m["sliding_window"] = c.Window
	}
	if traits.PostNorms && c.ScoreScale != 0 {
		m["query_pre_attn_scalar"] = 1 / (c.ScoreScale * c.ScoreScale)
	}

	switch c.Arch {
	case model.Gemma2:
		m["attn_logit_softcapping"], m["final_logit_softcapping"] = c.ScoreCap, c.LogitCap
	case model.Gemma3:
		m["sliding_window_pattern"], m["rope_local_base_freq"] = c.GlobalEvery, c.LocalRopeBase
	}

	if c.Turned != 0 {
		m["partial_rotary_factor"] = float64(c.Turned) / float64(c.HeadDim)
	}
	if c.LongAfter == 0 {
		return nil
	}
	short, err := quant.Decode(&f.Weights.RopeFactors)
	if err != nil {
		return err
	}
	long, err := quant.Decode(&f.Weights.LongFactors)
	if err != nil {
		return err
	}
	m["original_max_position_embeddings"] = c.LongAfter
	m["rope_scaling"] = map[string]any{
		"type": "longrope", "short_factor": short, "long_factor": long,
		"attention_factor": cmp.Or(c.RopeScale, 1),
	}
	return nil
}

// generationOf is the tokens that begin and end a text.
func generationOf(f *model.File) map[string]any {
	s := f.Tokenizer.Spec()
	m := map[string]any{}
	if s.BOS >= 0 {
		m["bos_token_id"] = s.BOS
	}
	var ends []int
	for _, id := range append([]int{s.EOS, s.EOT}, s.Ends...) {
		if id >= 0 {
			ends = append(ends, id)
		}
	}
	if len(ends) > 0 {
		m["eos_token_id"] = ends
	}
	return m
}
