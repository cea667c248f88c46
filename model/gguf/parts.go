package gguf

import (
	"fmt"

	"capgpu/model"
)

const (
	shortFactors = "rope_factors_short.weight"
	longFactors  = "rope_factors_long.weight"
)

// partNames are the names of a layer's parts (gguf-py, constants.py, TENSOR_NAMES).
var partNames = map[string]string{
	"attnNorm": "attn_norm.weight", "q": "attn_q.weight", "k": "attn_k.weight", "v": "attn_v.weight",
	"qBias": "attn_q.bias", "kBias": "attn_k.bias", "vBias": "attn_v.bias",
	"qNorm": "attn_q_norm.weight", "kNorm": "attn_k_norm.weight",
	"o": "attn_output.weight", "attnAfter": "post_attention_norm.weight",
	"ffnNorm": "ffn_norm.weight", "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight",
	"ffnAfter": "post_ffw_norm.weight",
}

// stackedNames are those of parts that a file has in one tensor.
var stackedNames = map[string]string{
	"q": "attn_qkv.weight", "k": "attn_qkv.weight", "v": "attn_qkv.weight", "gate": "ffn_up.weight", "up": "ffn_up.weight",
}

// stacks are the tensors of layer i.
func stacks(c *model.Config, l *model.Layer, i int) []model.Stack {
	traits := c.Arch.Traits()
	return c.Stacks(l, func(part string) string {
		name := partNames[part]
		if stacked := stackedNames[part]; traits.Stacked && stacked != "" {
			name = stacked
		}
		return fmt.Sprintf("blk.%d.%s", i, name)
	})
}
