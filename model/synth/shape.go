package synth

import (
	"slices"
	"strings"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/quant"
)

// Options describe the model to generate.
type Options struct {
	Name                string
	Dim, Hidden, Layers int
	Heads, KVHeads      int // HeadDim is Dim/Heads
	Vocab, Context      int
	Tied                bool       // the classifier is the table of embeddings
	Type                model.Type // of matrices; vectors are F32
	Group               int        // of I8; 0: quant.GroupFor
	Seed                uint64
	ByteLevel           bool       // the vocabulary is byte-level BPE, not SentencePiece
	Rope                model.Rope // the order of queries and keys
	Arch                model.Arch // families beside Llama's have RopeHalves
}

// shapes are those of llama2.c's models, and one that is small.
var shapes = map[string]Options{
	"tiny": {Dim: 64, Hidden: 128, Layers: 2, Heads: 4, KVHeads: 2, Vocab: 512, Context: 256},
	"260k": {Dim: 64, Hidden: 172, Layers: 5, Heads: 8, KVHeads: 4, Vocab: 512, Context: 512, Tied: true},
	"15m":  {Dim: 288, Hidden: 768, Layers: 6, Heads: 6, KVHeads: 6, Vocab: 32000, Context: 256, Tied: true},
	"42m":  {Dim: 512, Hidden: 1376, Layers: 8, Heads: 8, KVHeads: 8, Vocab: 32000, Context: 1024, Tied: true},
	"110m": {Dim: 768, Hidden: 2048, Layers: 12, Heads: 12, KVHeads: 12, Vocab: 32000, Context: 1024, Tied: true},
}

// Shape is the options of a known shape: tiny, 260k, 15m, 42m, 110m.
func Shape(name string) (Options, error) {
	o, ok := shapes[name]
	if !ok {
		return o, gpuerr.New(gpuerr.Invalid, "shape: %q is none of %s", name, strings.Join(Shapes(), ", "))
	}
	o.Name = "synth-" + name
	return o, nil
}

// Shapes are the names that Shape knows, the smallest first.
func Shapes() []string {
	var names []string
	for name := range shapes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return shapes[a].Dim*100 + shapes[a].Layers - shapes[b].Dim*100 - shapes[b].Layers
	})
	return names
}

// config checks the options.
func (o *Options) config() (c model.Config, err error) {
	if o.Heads < 1 || o.Dim < 1 || o.Dim%o.Heads != 0 {
		return c, gpuerr.New(gpuerr.Invalid, "heads: %d do not divide dim %d", o.Heads, o.Dim)
	}

	c = model.Config{
		Arch: o.Arch,
		Dim:  o.Dim, Hidden: o.Hidden, Layers: o.Layers, Heads: o.Heads, KVHeads: o.KVHeads, HeadDim: o.Dim / o.Heads,
		Vocab: o.Vocab, Context: o.Context, NormEps: 1e-5, RopeBase: 10000, Rope: o.Rope,
	}

	family(&c)
	if err := c.Check(); err != nil {
		return c, err
	}
	if o.Vocab < minVocab {
		return c, gpuerr.New(gpuerr.Invalid, "vocab: %d have no room for all bytes; ask for %d or more", o.Vocab, minVocab)
	}
	if o.Type == model.I8 && o.Group == 0 {
		o.Group = quant.GroupFor(&c)
	}

	return c, nil
}

// family sets what models of the family have, with windows that a context of this length
// has use for.
func family(c *model.Config) {
	if c.Arch != model.Llama {
		c.Rope = model.RopeHalves
	}

	switch c.Arch {
	case model.Qwen2, model.Qwen3:
		c.NormEps, c.RopeBase = 1e-6, 1e6
	case model.Gemma, model.Gemma2, model.Gemma3:
		c.NormEps = 1e-6
	}

	switch c.Arch {
	case model.Gemma2:
		c.Window, c.GlobalEvery, c.ScoreCap, c.LogitCap = max(1, c.Context/8), 2, 50, 30
	case model.Gemma3:
		c.Window, c.GlobalEvery, c.RopeBase, c.LocalRopeBase = max(1, c.Context/8), 6, 1e6, 10000
	}
}
