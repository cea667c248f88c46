package safetensors

import (
	"fmt"

	"capgpu/model"
)

// partNames are the names of a layer's parts (Hugging Face transformers, modeling files of
// the families).
var partNames = map[string]string{
	"attnNorm": "input_layernorm.weight",
	"q":        "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight",
	"qBias": "self_attn.q_proj.bias", "kBias": "self_attn.k_proj.bias", "vBias": "self_attn.v_proj.bias",
	"qNorm": "self_attn.q_norm.weight", "kNorm": "self_attn.k_norm.weight",
	"o": "self_attn.o_proj.weight", "ffnNorm": "post_attention_layernorm.weight",
	"gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
}

// stackedNames are those of parts that a file has in one tensor.
var stackedNames = map[string]string{
	"q": "self_attn.qkv_proj.weight", "k": "self_attn.qkv_proj.weight", "v": "self_attn.qkv_proj.weight",
	"gate": "mlp.gate_up_proj.weight", "up": "mlp.gate_up_proj.weight",
}

// postNames are those of families with Traits.PostNorms.
var postNames = map[string]string{
	"attnAfter": "post_attention_layernorm.weight", "ffnNorm": "pre_feedforward_layernorm.weight",
	"ffnAfter": "post_feedforward_layernorm.weight",
}

// stacks are the tensors of layer i.
func stacks(c *model.Config, l *model.Layer, i int) []model.Stack {
	traits := c.Arch.Traits()
	return c.Stacks(l, func(part string) string {
		name := partNames[part]
		if post := postNames[part]; traits.PostNorms && post != "" {
			name = post
		}
		if stacked := stackedNames[part]; traits.Stacked && stacked != "" {
			name = stacked
		}
		return fmt.Sprintf("model.layers.%d.%s", i, name)
	})
}
