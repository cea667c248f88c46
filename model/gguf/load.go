package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/quant"
	"capgpu/model/tokenizer"
)

const maxTemplate = 1 << 20 // bytes of a chat template

// Load is the model of a file, or of the files that it was split into, in order. Its
// tensors stay in them, except those that must be
// converted: norms in half precision, and factors of the positions. Errors are
// gpuerr.Invalid and name the part.
func Load(files ...[]byte) (*model.File, error) {
	h, err := join(files)
	if err != nil {
		return nil, err
	}

	f := &model.File{Format: "gguf"}
	if err := h.architecture(); err != nil {
		return nil, err
	}

	spec, err := h.Spec()
	if err != nil {
		return nil, err
	}
	if err := h.config(&f.Config, len(spec.Pieces)); err != nil {
		return nil, err
	}
	if err := h.weights(f); err != nil {
		return nil, err
	}
	if f.Name, err = h.text("general.name", 4096); err != nil {
		return nil, err
	}
	if f.Template, err = h.text("tokenizer.chat_template", maxTemplate); err != nil {
		return nil, err
	}
	if f.Tokenizer, err = tokenizer.New(spec); err != nil {
		return nil, fmt.Errorf("tokenizer.ggml: %w", err)
	}

	return f, nil
}

// lacking lists features of related architectures that the kernels lack.
var lacking = map[string]string{
	"llama4": "experts, attention in chunks", "mistral3": "scaled attention", "mixtral": "experts",
	"qwen2": "biases of query, key and value", "qwen2moe": "biases and experts", "qwen3": "norms of query and key",
	"qwen3moe": "norms of query and key, experts", "gemma": "GELU, scaled embeddings", "gemma2": "GELU, scaled embeddings, norms after, soft caps",
	"gemma3": "GELU, scaled embeddings, norms of query and key, sliding windows", "phi2": "GELU, biases, layer norms", "phi3": "stacked projections",
	"gpt2": "learned positions, biases, layer norms", "gptneox": "biases, layer norms, parallel blocks", "falcon": "layer norms, parallel blocks",
	"bloom": "ALiBi positions, biases", "mpt": "ALiBi positions", "starcoder2": "biases, layer norms", "stablelm": "layer norms",
	"mamba": "state spaces", "rwkv6": "linear recurrence", "bert": "an encoder", "deepseek2": "experts, latent attention",
	"olmo": "norms without weights", "olmo2": "norms after, norms of query and key", "granite": "scaled residuals and logits",
	"command-r": "layer norms, parallel blocks", "gpt-oss": "experts, attention sinks", "minicpm": "scaled residuals",
}

// architecture checks that the file's architecture is fully supported.
func (h *Header) architecture() error {
	arch, err := h.text("general.architecture", 64)
	switch {
	case err != nil:
		return err
	case arch == "":
		return gpuerr.New(gpuerr.Invalid, "general.architecture: is missing")
	case arch != "llama":
		why := lacking[arch]
		if why == "" {
			why = "it is not known"
		} else {
			why = "it needs " + why
		}
		return gpuerr.New(gpuerr.Invalid, "general.architecture: %q is not supported, only \"llama\" is: %s", arch, why)
	}

	return nil
}

// config fills in the shape. vocab is the size of the tokenizer's vocabulary.
func (h *Header) config(c *model.Config, vocab int) error {
	var err error
	number := func(key string, most int, absent int) int {
		n, ok, e := h.uint(key, uint64(most))
		if err == nil {
			err = e
		}
		if e == nil && !ok {
			if absent < 0 && err == nil {
				err = gpuerr.New(gpuerr.Invalid, "%s: is missing", key)
			}
			return absent
		}
		return int(n)
	}

	real := func(key string, absent float64) float64 {
		x, ok, e := h.float(key)
		if err == nil {
			err = e
		}
		if e == nil && !ok {
			if absent < 0 && err == nil {
				err = gpuerr.New(gpuerr.Invalid, "%s: is missing", key)
			}
			return absent
		}
		return x
	}

	c.Dim = number("llama.embedding_length", model.MaxDim, -1)
	c.Hidden = number("llama.feed_forward_length", model.MaxHidden, -1)
	c.Layers = number("llama.block_count", model.MaxLayers, -1)
	c.Context = number("llama.context_length", model.MaxContext, -1)
	c.Heads = number("llama.attention.head_count", model.MaxHeads, -1)
	if err != nil {
		return err
	}
	if c.Heads == 0 {
		return gpuerr.New(gpuerr.Invalid, "llama.attention.head_count: 0 is not within 1 to %d", model.MaxHeads)
	}

	c.KVHeads = number("llama.attention.head_count_kv", model.MaxHeads, c.Heads)
	c.HeadDim = number("llama.attention.key_length", model.MaxHeadDim, c.Dim/c.Heads)
	c.Vocab = number("llama.vocab_size", model.MaxVocab, vocab)
	c.NormEps = float32(real("llama.attention.layer_norm_rms_epsilon", -1))
	c.RopeBase = real("llama.rope.freq_base", 10000)
	c.Rope = model.RopeAdjacent
	values := number("llama.attention.value_length", model.MaxHeadDim, c.HeadDim)
	turned := number("llama.rope.dimension_count", model.MaxDim, c.HeadDim)
	if err != nil {
		return err
	}

	switch {
	case values != c.HeadDim:
		return gpuerr.New(gpuerr.Invalid, "llama.attention.value_length: %d is not the %d of the keys, which is not supported", values, c.HeadDim)
	case turned != c.HeadDim:
		return gpuerr.New(gpuerr.Invalid, "llama.rope.dimension_count: %d of the %d elements of a head; only all are supported", turned, c.HeadDim)
	case c.Vocab != vocab:
		return gpuerr.New(gpuerr.Invalid, "llama.vocab_size: %d, and tokenizer.ggml.tokens has %d", c.Vocab, vocab)
	}

	if err := h.unsupported(); err != nil {
		return err
	}

	return c.Check()
}

// unsupported refuses options that would change the result.
func (h *Header) unsupported() error {
	for _, key := range []string{
		"llama.expert_count", "llama.expert_used_count", "llama.attention.sliding_window", "llama.attention.clamp_kqv",
		"llama.attention.max_alibi_bias", "llama.attention.scale", "llama.logit_scale", "llama.residual_scale",
		"llama.embedding_scale", "llama.final_logit_softcapping", "llama.attn_logit_softcapping", "llama.attention.layer_norm_epsilon",
	} {
		x, ok, err := h.float(key)
		if err != nil {
			return err
		}
		if ok && x != 0 {
			return gpuerr.New(gpuerr.Invalid, "%s: %g is not supported", key, x)
		}
	}

	for key, want := range map[string]bool{"llama.use_parallel_residual": false, "llama.attention.causal": true} {
		if b, err := h.bool(key, want); err != nil {
			return err
		} else if b != want {
			return gpuerr.New(gpuerr.Invalid, "%s: %t is not supported", key, b)
		}
	}

	return nil
}

// stretch is the divisor of all positions: rope scaling "linear", in its new and
// its old form. 1 means no scaling.
func (h *Header) stretch() (float64, error) {
	kind, err := h.text("llama.rope.scaling.type", 64)
	if err != nil {
		return 0, err
	}

	key := "llama.rope.scaling.factor"
	switch kind {
	case "none":
		return 1, nil
	case "":
		if _, ok := h.values[key]; !ok {
			key = "llama.rope.scale_linear"
		}
	case "linear":
	default:
		return 0, gpuerr.New(gpuerr.Invalid, "llama.rope.scaling.type: %q is not supported; none and linear are", kind)
	}

	x, ok, err := h.float(key)
	if err != nil || !ok || x == 0 {
		return 1, err
	}
	if !(x >= 1 && x <= 1e6) {
		return 0, gpuerr.New(gpuerr.Invalid, "%s: %g is not within 1 to 1e6", key, x)
	}

	return x, nil
}

// found records which tensors were used.
type found struct {
	*Header
	used map[string]bool
	err  error
}

// get returns a tensor of the given shape; with rows 0 it is a vector.
func (g *found) get(name string, rows, cols int) model.Tensor {
	if g.err != nil {
		return model.Tensor{}
	}

	t := g.Tensor(name)
	if t == nil {
		g.err = gpuerr.New(gpuerr.Invalid, "tensor %s: is missing", name)
		return model.Tensor{}
	}
	typ, ok := elementOf(t.Type)
	if !ok {
		g.err = gpuerr.New(gpuerr.Invalid, "tensor %s: type %s is not supported; f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k to q6_k, iq4_nl, iq4_xs and mxfp4 are", name, typeName(t.Type))
		return model.Tensor{}
	}

	want := []uint64{uint64(cols), uint64(max(rows, 1))}
	for i, d := range t.Dims {
		if (i < 2 && d != want[i]) || (i >= 2 && d != 1) || (len(t.Dims) == 1 && want[1] != 1) {
			g.err = gpuerr.New(gpuerr.Invalid, "tensor %s: dimensions %d, and the model's shape makes it %d", name, t.Dims, want)
			return model.Tensor{}
		}
	}

	g.used[name] = true
	return model.Tensor{Type: typ, Rows: int(want[1]), Cols: cols, Data: t.Data}
}

func typeName(ggml uint32) string {
	if t, ok := elementOf(ggml); ok {
		return t.String()
	}
	if name, ok := typeNames[ggml]; ok {
		return name
	}
	return fmt.Sprint(ggml)
}

// vector returns a tensor of one row as F32, whatever its type in the file.
func (g *found) vector(name string, n int) model.Tensor {
	t := g.get(name, 0, n)
	if g.err != nil {
		return t
	}
	t, err := quant.Vector(&t)
	if err != nil {
		g.err = fmt.Errorf("tensor %s: %w", name, err)
	}
	return t
}

func (h *Header) weights(f *model.File) error {
	c, w := &f.Config, &f.Weights
	g := &found{Header: h, used: map[string]bool{}}
	w.Embed = g.get("token_embd.weight", c.Vocab, c.Dim)
	w.Norm = g.vector("output_norm.weight", c.Dim)
	w.Output = w.Embed
	if h.Tensor("output.weight") != nil {
		w.Output = g.get("output.weight", c.Vocab, c.Dim)
	}

	// A layer has nine tensors, so the allocation is in proportion to the file.
	if c.Layers > len(h.Tensors)/9 {
		return gpuerr.New(gpuerr.Invalid, "llama.block_count: %d layers, and the file has %d tensors", c.Layers, len(h.Tensors))
	}

	w.Layers = make([]model.Layer, c.Layers)
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for i := range w.Layers {
		l := &w.Layers[i]
		name := func(part string) string { return fmt.Sprintf("blk.%d.%s.weight", i, part) }
		l.AttnNorm = g.vector(name("attn_norm"), c.Dim)
		l.Q = g.get(name("attn_q"), q, c.Dim)
		l.K = g.get(name("attn_k"), kv, c.Dim)
		l.V = g.get(name("attn_v"), kv, c.Dim)
		l.O = g.get(name("attn_output"), c.Dim, q)
		l.FFNNorm = g.vector(name("ffn_norm"), c.Dim)
		l.Gate = g.get(name("ffn_gate"), c.Hidden, c.Dim)
		l.Up = g.get(name("ffn_up"), c.Hidden, c.Dim)
		l.Down = g.get(name("ffn_down"), c.Dim, c.Hidden)
	}

	if h.Tensor("rope_freqs.weight") != nil {
		w.RopeFactors = g.vector("rope_freqs.weight", c.HeadDim/2)
	}
	if g.err != nil {
		return g.err
	}

	for i := range h.Tensors {
		name := h.Tensors[i].Name
		// Old converters left tables of angles, which are recomputed.
		if !g.used[name] && !strings.HasSuffix(name, ".attn_rot_embd") && name != "rope_freqs" {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: is not of a llama model as it is supported", name)
		}
	}

	return h.factors(c, w)
}

// factors merges a stretch of all positions into the factors, and checks them.
func (h *Header) factors(c *model.Config, w *model.Weights) error {
	by, err := h.stretch()
	if err != nil {
		return err
	}
	if by == 1 && w.RopeFactors.Data == nil {
		return nil
	}

	data := make([]byte, c.HeadDim/2*4)
	for i := range c.HeadDim / 2 {
		x := float32(1)
		if w.RopeFactors.Data != nil {
			x = math.Float32frombits(binary.LittleEndian.Uint32(w.RopeFactors.Data[4*i:]))
			if !(x > 0 && x <= math.MaxFloat32) {
				return gpuerr.New(gpuerr.Invalid, "tensor rope_freqs.weight: element %d is %g", i, x)
			}
		}
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x*float32(by)))
	}

	w.RopeFactors = model.Tensor{Type: model.F32, Rows: 1, Cols: c.HeadDim / 2, Data: data}
	return nil
}
