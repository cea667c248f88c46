package safetensors

import (
	"math"
	"slices"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/quant"
)

// standard is what a config.json of a family means where it says nothing (the families'
// configuration classes in Hugging Face transformers).
var standard = map[model.Arch]struct {
	headDim int
	theta   float64
}{
	model.Qwen3: {headDim: 128}, model.Gemma: {headDim: 256}, model.Gemma2: {headDim: 256}, model.Gemma3: {headDim: 256, theta: 1e6},
}

// lacking is what models of other classes need.
var lacking = map[string]string{
	"MixtralForCausalLM": "experts", "Qwen2MoeForCausalLM": "experts", "Qwen3MoeForCausalLM": "experts", "PhiMoEForCausalLM": "experts",
	"Llama4ForCausalLM": "experts, attention in chunks", "GptOssForCausalLM": "experts, attention sinks",
	"DeepseekV2ForCausalLM": "experts, latent attention", "DeepseekV3ForCausalLM": "experts, latent attention",
	"Gemma3nForCausalLM": "embeddings of each layer",
	"PhiForCausalLM":     "GELU, biases, layer norms", "GPT2LMHeadModel": "learned positions, biases, layer norms",
	"GPTNeoXForCausalLM": "biases, layer norms, parallel blocks", "FalconForCausalLM": "layer norms, parallel blocks",
	"GraniteForCausalLM": "scaled residuals and logits", "Olmo2ForCausalLM": "norms of whole queries and keys, none before",
	"SmolLM3ForCausalLM": "layers without positions", "Glm4ForCausalLM": "heads that are turned in part",
}

// arch finds the family.
func (c *config) arch() (model.Arch, error) {
	var known []string
	for a := range model.Archs {
		traits := a.Traits()
		for _, class := range traits.Classes {
			if !slices.Contains(c.Architectures, class) {
				continue
			}
			if c.ModelType != "" && !slices.Contains(traits.Types, c.ModelType) {
				return a, gpuerr.New(gpuerr.Invalid, "model_type: %.40q is not supported with %s", c.ModelType, class)
			}
			return a, nil
		}
		known = append(known, traits.Classes...)
	}

	why := ""
	for _, class := range c.Architectures {
		if needs := lacking[class]; needs != "" {
			why = ": it needs " + needs
		}
	}
	return 0, gpuerr.New(gpuerr.Invalid, "architectures: %.80q are not supported, %s are%s", c.Architectures, strings.Join(known, ", "), why)
}

// sliding says how a family takes sliding_window.
type sliding uint8

const (
	refused sliding = iota
	ignored         // unless use_sliding_window says otherwise
	used
)

func (c *config) slides(arch model.Arch) sliding {
	switch arch {
	case model.Qwen2, model.Qwen3:
		return ignored
	case model.Gemma2, model.Gemma3, model.Phi3:
		return used
	case model.Llama:
		if slices.Contains(c.Architectures, "MistralForCausalLM") {
			return used
		}
	}
	return refused
}

// tied reports whether the classifier is the table of embeddings.
func (c *config) tied(arch model.Arch) bool {
	if c.Tied == nil {
		return arch.Traits().Tied
	}
	return *c.Tied
}

// options reads what only some families have.
func (c *config) options(m *model.Config) error {
	or := func(x *float64, absent float64) float64 {
		if x == nil {
			return absent
		}
		return *x
	}

	if c.Sliding != nil && c.slides(m.Arch) == used {
		if *c.Sliding < 1 || *c.Sliding > model.MaxWindow {
			return gpuerr.New(gpuerr.Invalid, "sliding_window: %d is not within 1 to %d", *c.Sliding, model.MaxWindow)
		}
		m.Window = *c.Sliding
	}

	switch m.Arch {
	case model.Gemma2:
		m.GlobalEvery, m.ScoreCap, m.LogitCap = 2, or(c.ScoreCap, 0), or(c.LogitCap, 0)
	case model.Gemma3:
		m.GlobalEvery, m.LocalRopeBase = c.pattern(), or(c.LocalTheta, 10000)
		if p := c.RopeParams; p != nil && p.Sliding != nil {
			m.LocalRopeBase = or(p.Sliding.Theta, m.LocalRopeBase)
		}
	}

	if by := c.QueryScalar; by != nil && *by != float64(m.HeadDim) && m.Arch.Traits().PostNorms {
		if !(*by > 0) {
			return gpuerr.New(gpuerr.Invalid, "query_pre_attn_scalar: %g is not above 0", *by)
		}
		m.ScoreScale = 1 / math.Sqrt(*by)
	}

	for i, kind := range c.LayerTypes {
		want := map[bool]string{false: "full_attention", true: "sliding_attention"}[i < m.Layers && m.Local(i)]
		if i >= m.Layers || kind != want {
			return gpuerr.New(gpuerr.Invalid, "layer_types: layer %d is %.40q, and only %q is supported there", i, kind, want)
		}
	}

	return m.Check()
}

// pattern is the distance of Gemma 3's layers that attend to all positions.
func (c *config) pattern() int {
	if c.Pattern != nil {
		return *c.Pattern
	}
	if i := slices.Index(c.LayerTypes, "full_attention"); i > 0 {
		return i + 1
	}
	return 6
}

// long reads Phi-3's factors of frequencies, and the factor of angles that goes with them
// (transformers, modeling_rope_utils.py, _compute_longrope_parameters).
func (c *config) long(m *model.Config, s *scaling, field string) error {
	original := c.Original
	if s.Original != nil {
		original = s.Original
	}
	if original == nil || *original < 1 {
		return gpuerr.New(gpuerr.Invalid, "original_max_position_embeddings: is missing, or not above 0")
	}

	pairs := m.TurnedDim() / 2
	if len(s.Short) != pairs || len(s.Long) != pairs {
		return gpuerr.New(gpuerr.Invalid, "%s: short_factor and long_factor have %d and %d elements for %d pairs", field, len(s.Short), len(s.Long), pairs)
	}
	for _, x := range slices.Concat(s.Short, s.Long) {
		if !(x > 0) {
			return gpuerr.New(gpuerr.Invalid, "%s: a factor is %g", field, x)
		}
	}

	m.LongAfter = *original
	by := 1.0
	factor := float64(m.Context) / float64(*original)
	if s.Factor != nil {
		factor = *s.Factor
	}
	if factor > 1 && *original > 1 {
		by = math.Sqrt(1 + math.Log(factor)/math.Log(float64(*original)))
	}
	if s.Attention != nil {
		by = *s.Attention
	}
	if by != 1 {
		m.RopeScale = by
	}
	return nil
}

// factors sets the factors of frequencies that a config.json has; by divides all of them.
func (c *config) factors(f *model.File, by float64) (err error) {
	n := f.Config.TurnedDim() / 2
	put := func(to *model.Tensor, x []float32) {
		if err == nil {
			*to, err = quant.Encode(model.F32, 1, n, 0, x)
		}
	}

	if f.Config.LongAfter != 0 {
		put(&f.Weights.RopeFactors, c.angles.Short)
		put(&f.Weights.LongFactors, c.angles.Long)
	} else if by != 1 {
		put(&f.Weights.RopeFactors, slices.Repeat([]float32{float32(by)}, n))
	}
	return err
}
