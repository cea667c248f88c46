package safetensors

import (
	"encoding/json"
	"slices"

	"capgpu/gpuerr"
	"capgpu/model"
)

// config is a config.json; a missing member is nil.
type config struct {
	Architectures []string        `json:"architectures"`
	ModelType     string          `json:"model_type"`
	Hidden        *int            `json:"hidden_size"`
	Intermediate  *int            `json:"intermediate_size"`
	Layers        *int            `json:"num_hidden_layers"`
	Heads         *int            `json:"num_attention_heads"`
	KVHeads       *int            `json:"num_key_value_heads"`
	HeadDim       *int            `json:"head_dim"`
	Vocab         *int            `json:"vocab_size"`
	Context       *int            `json:"max_position_embeddings"`
	NormEps       *float64        `json:"rms_norm_eps"`
	RopeTheta     *float64        `json:"rope_theta"`
	RopeScaling   *scaling        `json:"rope_scaling"`
	RopeParams    *scaling        `json:"rope_parameters"` // of later versions: both in one
	PartialRotary *float64        `json:"partial_rotary_factor"`
	Tied          *bool           `json:"tie_word_embeddings"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	Act           string          `json:"hidden_act"`
	Activation    string          `json:"hidden_activation"` // Gemma's name of it, which counts
	Sliding       *int            `json:"sliding_window"`
	UseSliding    bool            `json:"use_sliding_window"`
	Pattern       *int            `json:"sliding_window_pattern"`
	LayerTypes    []string        `json:"layer_types"`
	QueryScalar   *float64        `json:"query_pre_attn_scalar"`
	ScoreCap      *float64        `json:"attn_logit_softcapping"`
	LogitCap      *float64        `json:"final_logit_softcapping"`
	LocalTheta    *float64        `json:"rope_local_base_freq"`
	Original      *int            `json:"original_max_position_embeddings"`
	BothWays      bool            `json:"use_bidirectional_attention"`
	Quantised     json.RawMessage `json:"quantization_config"`
	EOS           tokens          `json:"eos_token_id"`
	Text          json.RawMessage `json:"text_config"` // of a model that also takes images

	angles *scaling // the one that counts, or nil
	images bool     // the part for text of a model that also takes images
}

// scaling is the scaling of positions.
type scaling struct {
	Type     string   `json:"rope_type"`
	OldType  string   `json:"type"`
	Theta    *float64 `json:"rope_theta"`
	Factor   *float64 `json:"factor"`
	Low      *float64 `json:"low_freq_factor"`
	High     *float64 `json:"high_freq_factor"`
	Original *int     `json:"original_max_position_embeddings"`

	Short     []float32 `json:"short_factor"`
	Long      []float32 `json:"long_factor"`
	Attention *float64  `json:"attention_factor"`

	Full    *scaling `json:"full_attention"` // of later versions: one for each kind of layer
	Sliding *scaling `json:"sliding_attention"`
}

// tokens is a number or a list of them.
type tokens []int

const maxEnds = 64

func (t *tokens) UnmarshalJSON(b []byte) error {
	var one int
	if string(b) == "null" {
		return nil
	}
	if err := json.Unmarshal(b, &one); err == nil {
		*t = tokens{one}
		return nil
	}

	var all []int
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	if len(all) > maxEnds {
		return gpuerr.New(gpuerr.Invalid, "%d tokens that end a text are more than %d", len(all), maxEnds)
	}

	*t = all
	return nil
}

// readConfig reads the shape in a config.json. by divides all frequencies.
func readConfig(b []byte) (c *config, m model.Config, by float64, err error) {
	c = &config{}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, m, 0, gpuerr.New(gpuerr.Invalid, "%v", err)
	}
	if slices.Contains(c.Architectures, withImages) {
		if c, err = c.textPart(); err != nil {
			return nil, m, 0, err
		}
	}
	if m.Arch, err = c.arch(); err != nil {
		return nil, m, 0, err
	}
	if err := c.supported(m.Arch); err != nil {
		return nil, m, 0, err
	}

	for _, f := range []struct {
		name     string
		from, to *int
		most     int
	}{
		{"hidden_size", c.Hidden, &m.Dim, model.MaxDim}, {"intermediate_size", c.Intermediate, &m.Hidden, model.MaxHidden},
		{"num_hidden_layers", c.Layers, &m.Layers, model.MaxLayers}, {"num_attention_heads", c.Heads, &m.Heads, model.MaxHeads},
		{"vocab_size", c.Vocab, &m.Vocab, model.MaxVocab}, {"max_position_embeddings", c.Context, &m.Context, model.MaxContext},
	} {
		if f.from == nil {
			return nil, m, 0, gpuerr.New(gpuerr.Invalid, "%s: is missing", f.name)
		}
		if *f.from < 1 || *f.from > f.most {
			return nil, m, 0, gpuerr.New(gpuerr.Invalid, "%s: %d is not within 1 to %d", f.name, *f.from, f.most)
		}
		*f.to = *f.from
	}

	m.KVHeads, m.HeadDim = m.Heads, m.Dim/m.Heads
	if c.KVHeads != nil {
		m.KVHeads = *c.KVHeads
	}

	if c.HeadDim != nil {
		m.HeadDim = *c.HeadDim
	} else if d := standard[m.Arch].headDim; d != 0 {
		m.HeadDim = d
	} else if m.Dim%m.Heads != 0 {
		return nil, m, 0, gpuerr.New(gpuerr.Invalid, "num_attention_heads: %d do not divide hidden_size %d", m.Heads, m.Dim)
	}

	m.NormEps, m.RopeBase, m.Rope = 1e-6, 10000, model.RopeHalves // transformers' own
	if t := standard[m.Arch].theta; t != 0 {
		m.RopeBase = t
	}
	if c.NormEps != nil {
		m.NormEps = float32(*c.NormEps)
	}
	if c.PartialRotary != nil && *c.PartialRotary != 1 {
		m.Turned = int(float64(m.HeadDim) * *c.PartialRotary)
	}
	if by, err = c.positions(&m); err != nil {
		return nil, m, 0, err
	}

	if err := m.Check(); err != nil {
		return nil, m, 0, err
	}
	return c, m, by, c.options(&m)
}

// supported refuses options that would change the result.
func (c *config) supported(arch model.Arch) error {
	act := c.Act
	if c.Activation != "" {
		act = c.Activation
	}
	want := []string{"", "silu"}
	if arch.Traits().GELU {
		want = []string{"", "gelu_pytorch_tanh", "gelu"} // old files of Gemma mean the same with both
	}

	switch {
	case !slices.Contains(want, act):
		return gpuerr.New(gpuerr.Invalid, "hidden_act: %.40q is not supported; %s is", act, want[1])
	case c.AttentionBias:
		return gpuerr.New(gpuerr.Invalid, "attention_bias: biases are not supported")
	case c.MLPBias:
		return gpuerr.New(gpuerr.Invalid, "mlp_bias: biases are not supported")

	case c.Sliding != nil && c.slides(arch) == refused, c.UseSliding:
		return gpuerr.New(gpuerr.Invalid, "sliding_window: is not supported")
	case c.BothWays:
		return gpuerr.New(gpuerr.Invalid, "use_bidirectional_attention: is not supported")
	case arch != model.Gemma2 && (c.ScoreCap != nil || c.LogitCap != nil):
		return gpuerr.New(gpuerr.Invalid, "attn_logit_softcapping, final_logit_softcapping: are not supported in this family")
	case c.PartialRotary != nil && *c.PartialRotary != 1 && (arch != model.Phi3 || !(*c.PartialRotary > 0 && *c.PartialRotary < 1)):
		return gpuerr.New(gpuerr.Invalid, "partial_rotary_factor: %g is not supported; 1 is", *c.PartialRotary)

	case len(c.Quantised) > 0 && string(c.Quantised) != "null":
		return quantised(c.Quantised)
	case c.RopeScaling != nil && c.RopeParams != nil:
		return gpuerr.New(gpuerr.Invalid, "rope_parameters: are there beside rope_scaling")
	}
	return nil
}

// quantised refuses quantised tensors by the name of their method (gptq, awq, fp8).
func quantised(b []byte) error {
	var q struct {
		Method string `json:"quant_method"`
	}
	if err := json.Unmarshal(b, &q); err != nil || q.Method == "" {
		return gpuerr.New(gpuerr.Invalid, "quantization_config: quantised tensors are not supported in this format; a GGUF of the model is")
	}
	return gpuerr.New(gpuerr.Invalid, "quantization_config: quant_method: %.40q is not supported; F32, F16 and BF16 are, or a GGUF of the model", q.Method)
}

// positions reads the base of the angles and the scaling of positions.
func (c *config) positions(m *model.Config) (by float64, err error) {
	s, field := c.RopeScaling, "rope_scaling"
	if c.RopeParams != nil {
		s, field = c.RopeParams, "rope_parameters"
		if s.Full != nil {
			s, field = s.Full, "rope_parameters.full_attention"
		}
	}

	c.angles = s
	theta := c.RopeTheta
	if s != nil && s.Theta != nil {
		theta = s.Theta
	}
	if theta != nil {
		m.RopeBase = *theta
	}
	if s == nil {
		return 1, nil
	}

	kind := s.Type
	if kind == "" {
		kind = s.OldType
	}

	switch kind {
	case "", "default":
		return 1, nil

	case "linear":
		if s.Factor == nil || !(*s.Factor >= 1 && *s.Factor <= 1e6) {
			return 0, gpuerr.New(gpuerr.Invalid, "%s.factor: is missing, or not within 1 to 1e6", field)
		}
		return *s.Factor, nil

	case "longrope", "su":
		if m.Arch != model.Phi3 {
			break
		}
		return 1, c.long(m, s, field)

	case "llama3":
		if s.Factor == nil || s.Low == nil || s.High == nil || s.Original == nil {
			return 0, gpuerr.New(gpuerr.Invalid, "%s: factor, low_freq_factor, high_freq_factor or original_max_position_embeddings is missing", field)
		}
		if *s.Factor == 0 {
			return 0, gpuerr.New(gpuerr.Invalid, "%s.factor: is 0", field)
		}
		m.Scaling = model.RopeScaling{Factor: *s.Factor, LowFactor: *s.Low, HighFactor: *s.High, Original: *s.Original}
		return 1, nil
	}

	return 0, gpuerr.New(gpuerr.Invalid, "%s.rope_type: %.40q is not supported; default, linear and llama3 are", field, kind)
}
