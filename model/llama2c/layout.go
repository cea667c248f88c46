package llama2c

import (
	"encoding/binary"
	"fmt"

	"capgpu/gpuerr"
	"capgpu/model"
)

const (
	magic       = 0x616b3432 // "ak42"
	headerBytes = 256        // of versions 1 and 2
	shapeBytes  = 7 * 4
	normEps     = 1e-5
	ropeBase    = 10000
)

var le = binary.LittleEndian

// header is the front of a file.
type header struct {
	version int
	shape   [7]int32 // dim, hidden, layers, heads, kvHeads, vocab, context
	tied    bool
	group   int
	bytes   int // of the front
}

var shapeNames = [...]string{"dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "max_seq_len"}

var shapeMost = [...]int32{
	model.MaxDim, model.MaxHidden, model.MaxLayers, model.MaxHeads, model.MaxHeads, model.MaxVocab, model.MaxContext,
}

// shapeOf is the Config that the format describes.
func shapeOf(h *header) (c model.Config, err error) {
	n := h.shape
	for i, v := range n {
		if v < 1 || v > shapeMost[i] {
			return c, gpuerr.New(gpuerr.Invalid, "%s: %d is not within 1 to %d", shapeNames[i], v, shapeMost[i])
		}
	}
	c = model.Config{
		Dim: int(n[0]), Hidden: int(n[1]), Layers: int(n[2]), Heads: int(n[3]), KVHeads: int(n[4]),
		HeadDim: int(n[0] / n[3]), Vocab: int(n[5]), Context: int(n[6]),
		NormEps: normEps, RopeBase: ropeBase, Rope: model.RopeAdjacent,
	}
	if c.Dim%c.Heads != 0 {
		return c, gpuerr.New(gpuerr.Invalid, "n_heads: %d do not divide dim %d", c.Heads, c.Dim)
	}
	return c, c.Check()
}

// part is a run of bytes of a file: a tensor, or unused bytes.
type part struct {
	name       string
	rows, cols int
	to         *model.Tensor
	quantised  bool
	skip       int // unused bytes, if to is nil
}

// parts are the parts of a file of the given shape, in order. The tensors are those
// of f, with its layers already allocated.
func parts(f *model.File, h *header) []part {
	c, w := &f.Config, &f.Weights
	kv := c.KVHeads * c.HeadDim
	var all []part
	one := func(name string, rows, cols int, t *model.Tensor) {
		all = append(all, part{name: name, rows: rows, cols: cols, to: t, quantised: h.version == 2})
	}

	vector := func(name string, t *model.Tensor) {
		all = append(all, part{name: name, rows: 1, cols: c.Dim, to: t})
	}

	ofLayer := func(name string, i int) string { return fmt.Sprintf("%s of layer %d", name, i) }
	each := func(name string, rows, cols int, of func(l *model.Layer) *model.Tensor) {
		for i := range w.Layers {
			one(ofLayer(name, i), rows, cols, of(&w.Layers[i]))
		}
	}

	embed := func() { one("token_embedding_table", c.Vocab, c.Dim, &w.Embed) }
	norm := func() { vector("rms_final_weight", &w.Norm) }
	attnNorm := func() {
		for i := range w.Layers {
			vector(ofLayer("rms_att_weight", i), &w.Layers[i].AttnNorm)
		}
	}

	ffnNorm := func() {
		for i := range w.Layers {
			vector(ofLayer("rms_ffn_weight", i), &w.Layers[i].FFNNorm)
		}
	}

	attention := func() {
		each("wq", c.Dim, c.Dim, func(l *model.Layer) *model.Tensor { return &l.Q })
		each("wk", kv, c.Dim, func(l *model.Layer) *model.Tensor { return &l.K })
		each("wv", kv, c.Dim, func(l *model.Layer) *model.Tensor { return &l.V })
		each("wo", c.Dim, c.Dim, func(l *model.Layer) *model.Tensor { return &l.O })
	}

	ffn := func() {
		each("w1", c.Hidden, c.Dim, func(l *model.Layer) *model.Tensor { return &l.Gate })
		each("w2", c.Dim, c.Hidden, func(l *model.Layer) *model.Tensor { return &l.Down })
		each("w3", c.Hidden, c.Dim, func(l *model.Layer) *model.Tensor { return &l.Up })
	}

	if h.version == 0 {
		embed()
		attnNorm()
		attention()
		ffnNorm()
		ffn()
		norm()
		all = append(all, part{name: "freq_cis", skip: c.Context * (c.HeadDim / 2) * 2 * 4})
	} else {
		attnNorm()
		ffnNorm()
		norm()
		embed()
		attention()
		ffn()
	}

	if !h.tied {
		one("wcls", c.Vocab, c.Dim, &w.Output)
	}

	return all
}

// sizes are the bytes of a part's data and of its scales.
func (p *part) sizes(group int) (data, scales int) {
	switch {
	case p.to == nil:
		return p.skip, 0
	case p.quantised:
		return p.rows * p.cols, p.rows * p.cols / group * 4
	}
	return p.rows * p.cols * 4, 0
}
