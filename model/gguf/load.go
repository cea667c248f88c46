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
	if f.Config.Arch, err = h.architecture(); err != nil {
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

	// A layer has at least six tensors, so the allocation is in proportion to the file.
	if c.Layers > len(h.Tensors)/6 {
		return gpuerr.New(gpuerr.Invalid, "%s.block_count: %d layers, and the file has %d tensors", c.Arch, c.Layers, len(h.Tensors))
	}

	w.Layers = make([]model.Layer, c.Layers)
	for i := range w.Layers {
		for _, s := range stacks(c, &w.Layers[i], i) {
			if s.Rows() == 0 {
				*s.Parts[0].Tensor = g.vector(s.Name, s.Parts[0].Cols)
			} else if t := g.get(s.Name, s.Rows(), s.Parts[0].Cols); g.err == nil {
				s.Split(t)
			}
		}
	}

	if h.Tensor("rope_freqs.weight") != nil {
		w.RopeFactors = g.vector("rope_freqs.weight", c.TurnedDim()/2)
	}
	if c.LongAfter != 0 {
		w.RopeFactors, w.LongFactors = g.vector(shortFactors, c.TurnedDim()/2), g.vector(longFactors, c.TurnedDim()/2)
	}
	if g.err != nil {
		return g.err
	}

	for i := range h.Tensors {
		name := h.Tensors[i].Name
		// Old converters left tables of angles, which are recomputed.
		if !g.used[name] && !strings.HasSuffix(name, ".attn_rot_embd") && name != "rope_freqs" {
			return gpuerr.New(gpuerr.Invalid, "tensor %s: is not of a %s model as it is supported", name, c.Arch)
		}
	}

	by, err := h.stretch(c)
	if err != nil {
		return err
	}
	if err := stretched(&w.RopeFactors, "rope_freqs.weight", by, c.TurnedDim()/2); err != nil {
		return err
	}
	if c.LongAfter == 0 {
		return nil
	}
	return stretched(&w.LongFactors, longFactors, by, c.TurnedDim()/2)
}

// stretched merges a stretch of all positions into factors, and checks them.
func stretched(t *model.Tensor, name string, by float64, n int) error {
	if by == 1 && t.Data == nil {
		return nil
	}

	data := make([]byte, 4*n)
	for i := range n {
		x := float32(1)
		if t.Data != nil {
			x = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
			if !(x > 0 && x <= math.MaxFloat32) {
				return gpuerr.New(gpuerr.Invalid, "tensor %s: element %d is %g", name, i, x)
			}
		}
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x*float32(by)))
	}

	*t = model.Tensor{Type: model.F32, Rows: 1, Cols: n, Data: data}
	return nil
}
