package gguf

import (
	"math"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
)

// lacking lists features of related architectures that the kernels lack.
var lacking = map[string]string{
	"llama4": "experts, attention in chunks", "mistral3": "scaled attention", "mixtral": "experts",
	"qwen2moe": "biases and experts", "qwen3moe": "norms of query and key, experts", "phimoe": "experts",
	"gemma3n": "embeddings of each layer", "phi2": "GELU, biases, layer norms",
	"gpt2": "learned positions, biases, layer norms", "gptneox": "biases, layer norms, parallel blocks", "falcon": "layer norms, parallel blocks",
	"bloom": "ALiBi positions, biases", "mpt": "ALiBi positions", "starcoder2": "biases, layer norms", "stablelm": "layer norms",
	"mamba": "state spaces", "rwkv6": "linear recurrence", "rwkv7": "linear recurrence", "bert": "an encoder", "nomic-bert": "an encoder",
	"deepseek2": "experts, latent attention", "olmo": "norms without weights", "olmo2": "norms of whole queries and keys, none before",
	"granite": "scaled residuals and logits", "command-r": "layer norms, parallel blocks", "gpt-oss": "experts, attention sinks",
	"minicpm": "scaled residuals", "smollm3": "layers without positions", "t5": "an encoder", "glm4": "heads that are turned in part",
}

// architecture finds the family, and refuses others with what they need.
func (h *Header) architecture() (model.Arch, error) {
	name, err := h.text("general.architecture", 64)
	if err != nil {
		return 0, err
	}
	if name == "" {
		return 0, gpuerr.New(gpuerr.Invalid, "general.architecture: is missing")
	}

	var known []string
	for a := range model.Archs {
		if a.String() == name {
			return a, nil
		}
		known = append(known, a.String())
	}

	why := "it is not known"
	if needs := lacking[name]; needs != "" {
		why = "it needs " + needs
	}
	return 0, gpuerr.New(gpuerr.Invalid, "general.architecture: %q is not supported, %s are: %s", name, strings.Join(known, ", "), why)
}

// keys reads metadata under the name of the architecture, and keeps the first error.
type keys struct {
	*Header
	arch string
	err  error
}

func (k *keys) name(key string) string { return k.arch + "." + key }

// needed is the absent value of a key that must be there.
const needed = -1

func (k *keys) number(key string, most, absent int) int {
	n, ok, err := k.uint(k.name(key), uint64(most))
	return int(orAbsent(k, key, float64(n), ok, err, float64(absent)))
}

func (k *keys) real(key string, absent float64) float64 {
	x, ok, err := k.float(k.name(key))
	return orAbsent(k, key, x, ok, err, absent)
}

func orAbsent(k *keys, key string, x float64, ok bool, err error, absent float64) float64 {
	if err == nil && !ok {
		x = absent
		if absent == needed {
			err = gpuerr.New(gpuerr.Invalid, "%s: is missing", k.name(key))
		}
	}
	if k.err == nil {
		k.err = err
	}
	return x
}

// config fills in the shape. vocab is the size of the tokenizer's vocabulary.
func (h *Header) config(c *model.Config, vocab int) error {
	k := &keys{Header: h, arch: c.Arch.String()}
	c.Dim = k.number("embedding_length", model.MaxDim, needed)
	c.Hidden = k.number("feed_forward_length", model.MaxHidden, needed)
	c.Layers = k.number("block_count", model.MaxLayers, needed)
	c.Context = k.number("context_length", model.MaxContext, needed)
	c.Heads = k.number("attention.head_count", model.MaxHeads, needed)
	if k.err != nil {
		return k.err
	}
	if c.Heads == 0 {
		return gpuerr.New(gpuerr.Invalid, "%s: 0 is not within 1 to %d", k.name("attention.head_count"), model.MaxHeads)
	}

	c.KVHeads = k.number("attention.head_count_kv", model.MaxHeads, c.Heads)
	c.HeadDim = k.number("attention.key_length", model.MaxHeadDim, c.Dim/c.Heads)
	c.Vocab = k.number("vocab_size", model.MaxVocab, vocab)
	c.NormEps = float32(k.real("attention.layer_norm_rms_epsilon", needed))
	c.RopeBase = k.real("rope.freq_base", 10000)
	c.Rope = c.Arch.Traits().GGUFRope
	values := k.number("attention.value_length", model.MaxHeadDim, c.HeadDim)
	turned := k.number("rope.dimension_count", model.MaxDim, c.HeadDim)
	if c.Arch == model.Phi3 && turned != c.HeadDim {
		c.Turned = turned
	}
	k.options(c)
	if k.err != nil {
		return k.err
	}

	switch {
	case values != c.HeadDim:
		return gpuerr.New(gpuerr.Invalid, "%s: %d is not the %d of the keys, which is not supported", k.name("attention.value_length"), values, c.HeadDim)
	case turned != c.HeadDim && c.Turned == 0:
		return gpuerr.New(gpuerr.Invalid, "%s: %d of the %d elements of a head; only all are supported", k.name("rope.dimension_count"), turned, c.HeadDim)
	case c.Vocab != vocab:
		return gpuerr.New(gpuerr.Invalid, "%s: %d, and tokenizer.ggml.tokens has %d", k.name("vocab_size"), c.Vocab, vocab)
	}

	if err := k.unsupported(c.Arch); err != nil {
		return err
	}

	return c.Check()
}

// options reads what only some families have. Where a file does not say a number, it is
// the one that all models of the family have; the factors of scores, which no file says,
// are those of the models' configurations (query_pre_attn_scalar).
func (k *keys) options(c *model.Config) {
	switch c.Arch {
	case model.Llama, model.Phi3:
		c.Window = k.number("attention.sliding_window", model.MaxWindow, 0)

	case model.Gemma2:
		c.Window, c.GlobalEvery = k.number("attention.sliding_window", model.MaxWindow, 4096), 2
		c.ScoreCap, c.LogitCap = k.real("attn_logit_softcapping", 50), k.real("final_logit_softcapping", 30)
		if c.Layers == 46 { // 27B
			c.ScoreScale = 1 / math.Sqrt(float64(c.Dim)/float64(c.Heads))
		}

	case model.Gemma3:
		c.Window = k.number("attention.sliding_window", model.MaxWindow, needed)
		c.GlobalEvery = k.number("attention.sliding_window_pattern", model.MaxLayers, 6)
		c.LocalRopeBase = k.real("rope.freq_base_swa", 10000)
		if c.Layers == 62 { // 27B
			c.ScoreScale = 1 / math.Sqrt(float64(c.Dim)/float64(c.Heads))
		}
	}

	if c.Arch == model.Phi3 && k.Tensor(longFactors) != nil {
		c.LongAfter = k.number("rope.scaling.original_context_length", model.MaxContext, needed)
		if c.RopeScale = k.real("rope.scaling.attn_factor", 0); c.RopeScale == 1 {
			c.RopeScale = 0
		}
	}
}

// unsupported refuses options that would change the result.
func (k *keys) unsupported(arch model.Arch) error {
	list := []string{
		"expert_count", "expert_used_count", "attention.clamp_kqv", "attention.max_alibi_bias", "attention.scale", "logit_scale",
		"residual_scale", "embedding_scale", "attention.layer_norm_epsilon", "leading_dense_block_count",
	}
	if arch != model.Gemma2 {
		list = append(list, "final_logit_softcapping", "attn_logit_softcapping")
	}
	if arch == model.Qwen2 || arch == model.Qwen3 || arch == model.Gemma {
		list = append(list, "attention.sliding_window")
	}

	for _, key := range list {
		x, ok, err := k.float(k.name(key))
		if err != nil {
			return err
		}
		if ok && x != 0 {
			return gpuerr.New(gpuerr.Invalid, "%s: %g is not supported", k.name(key), x)
		}
	}

	for key, want := range map[string]bool{"use_parallel_residual": false, "attention.causal": true} {
		if b, err := k.bool(k.name(key), want); err != nil {
			return err
		} else if b != want {
			return gpuerr.New(gpuerr.Invalid, "%s: %t is not supported", k.name(key), b)
		}
	}

	return nil
}

// stretch is the divisor of all positions: rope scaling "linear", in its new and
// its old form. 1 means no scaling.
func (h *Header) stretch(c *model.Config) (float64, error) {
	k := &keys{Header: h, arch: c.Arch.String()}
	kind, err := h.text(k.name("rope.scaling.type"), 64)
	if err != nil {
		return 0, err
	}

	key := k.name("rope.scaling.factor")
	switch {
	case kind == "none" || kind == "longrope" && c.LongAfter != 0:
		return 1, nil
	case kind == "":
		if _, ok := h.values[key]; !ok {
			key = k.name("rope.scale_linear")
		}
	case kind == "linear":
	default:
		return 0, gpuerr.New(gpuerr.Invalid, "%s: %q is not supported; none and linear are", k.name("rope.scaling.type"), kind)
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
