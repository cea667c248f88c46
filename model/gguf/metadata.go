package gguf

import (
	"cmp"

	"capgpu/gpuerr"
	"capgpu/model"
)

func (p *printer) metadata(f *model.File) error {
	c := &f.Config
	arch := c.Arch.String() + "."
	p.setText("general.architecture", c.Arch.String())
	p.setText("general.name", f.Name)
	p.setUint("general.alignment", alignment)
	p.setUint("general.quantization_version", 2)
	p.setUint(arch+"context_length", c.Context)
	p.setUint(arch+"embedding_length", c.Dim)
	p.setUint(arch+"block_count", c.Layers)
	p.setUint(arch+"feed_forward_length", c.Hidden)
	p.setUint(arch+"attention.head_count", c.Heads)
	p.setUint(arch+"attention.head_count_kv", c.KVHeads)
	p.setUint(arch+"attention.key_length", c.HeadDim)
	p.setUint(arch+"attention.value_length", c.HeadDim)
	p.setUint(arch+"rope.dimension_count", c.TurnedDim())
	p.setUint(arch+"vocab_size", c.Vocab)
	p.setFloat(arch+"attention.layer_norm_rms_epsilon", c.NormEps)
	p.setFloat(arch+"rope.freq_base", float32(c.RopeBase))
	if err := p.options(c, arch); err != nil {
		return err
	}
	if f.Template != "" {
		p.setText("tokenizer.chat_template", f.Template)
	}
	if f.Tokenizer == nil {
		return gpuerr.New(gpuerr.Invalid, "tokenizer: the model has none")
	}

	return p.tokenizer(f.Tokenizer.Spec())
}

// options writes what only some families have, and checks that it would be read back the
// same: the format leaves some of it to the family.
func (p *printer) options(c *model.Config, arch string) error {
	if c.Window != 0 {
		p.setUint(arch+"attention.sliding_window", c.Window)
	}
	if c.Arch == model.Gemma2 {
		p.setFloat(arch+"attn_logit_softcapping", float32(c.ScoreCap))
		p.setFloat(arch+"final_logit_softcapping", float32(c.LogitCap))
	}
	if c.Arch == model.Gemma3 {
		p.setUint(arch+"attention.sliding_window_pattern", c.GlobalEvery)
		p.setFloat(arch+"rope.freq_base_swa", float32(c.LocalRopeBase))
	}
	if c.LongAfter != 0 {
		p.setUint(arch+"rope.scaling.original_context_length", c.LongAfter)
		p.setFloat(arch+"rope.scaling.attn_factor", float32(cmp.Or(c.RopeScale, 1)))
	}

	var whole printer
	whole.WriteString(magic)
	whole.u32(3)
	whole.u64(0)
	whole.u64(p.entries)
	whole.Write(p.Bytes())
	h, err := Parse(whole.Bytes())
	if err != nil {
		return err
	}
	back := model.Config{Arch: c.Arch}
	if err := h.config(&back, c.Vocab); err != nil {
		return err
	}
	back.Scaling, back.Rope, back.LongAfter = c.Scaling, c.Rope, c.LongAfter
	back.RopeBase, back.LocalRopeBase = c.RopeBase, c.LocalRopeBase
	if c.LongAfter != 0 {
		back.RopeScale = c.RopeScale
	}
	if back != *c {
		return gpuerr.New(gpuerr.Invalid, "config: the format cannot hold it; it would be %+v, and is %+v", back, *c)
	}
	return nil
}
