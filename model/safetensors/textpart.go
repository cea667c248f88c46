package safetensors

import (
	"encoding/json"
	"strings"

	"capgpu/gpuerr"
)

// withImages is the class of Gemma 3 models that also take images. Their part for text is
// a Gemma3ForCausalLM, in a member of config.json and under names of its own.
const withImages = "Gemma3ForConditionalGeneration"

// textPart is the configuration of the part for text. Where the file says nothing, the
// numbers are those of Gemma3TextConfig.
func (c *config) textPart() (*config, error) {
	number := func(n int) *int { return &n }
	t := &config{
		Heads: number(8), KVHeads: number(4), HeadDim: number(256), Vocab: number(262208), Context: number(131072), Sliding: number(4096),
		Act: "gelu_pytorch_tanh", Tied: c.Tied, EOS: c.EOS, Quantised: c.Quantised,
	}
	if len(c.Text) == 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "text_config: is missing")
	}
	if err := json.Unmarshal(c.Text, t); err != nil {
		return nil, gpuerr.New(gpuerr.Invalid, "text_config: %v", err)
	}
	t.Architectures = []string{"Gemma3ForCausalLM"}
	t.images = true
	return t, nil
}

// textTensors are the tensors of the part for text, under the names that they have in a
// model of text alone.
func textTensors(all map[string]*tensor) map[string]*tensor {
	text := map[string]*tensor{}
	for name, t := range all {
		if of, ok := strings.CutPrefix(name, "language_model."); ok {
			text[of] = t
			continue
		}
		if of, ok := strings.CutPrefix(name, "model.language_model."); ok {
			text["model."+of] = t
			continue
		}
		images := false
		for _, part := range []string{"vision_tower.", "multi_modal_projector."} {
			images = images || strings.HasPrefix(strings.TrimPrefix(name, "model."), part)
		}
		if !images {
			text[name] = t // lm_head.weight, or one that weights does not know
		}
	}
	return text
}
