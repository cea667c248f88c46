package llama

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"capgpu/model"
	"capgpu/program/library/librarytest"
)

// shape is a small model in which all dimensions differ.
func shape() model.Config {
	return model.Config{
		Dim: 64, Hidden: 96, Layers: 2, Heads: 6, KVHeads: 2, HeadDim: 32, Vocab: 131, Context: 80,
		NormEps: 1e-5, RopeBase: 10000,
	}
}

// seeded is a model of random weights; its matrices cycle through the types.
func seeded(seed uint64, c model.Config, tied bool, types ...model.Type) *model.File {
	r := &weightMaker{Rand: rand.New(rand.NewPCG(seed, 7)), types: types}
	qDim, kvDim := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	w := model.Weights{Embed: r.matrix(c.Vocab, c.Dim), Norm: r.norm(c.Dim)}
	traits := c.Arch.Traits()
	for range c.Layers {
		l := model.Layer{
			AttnNorm: r.norm(c.Dim), FFNNorm: r.norm(c.Dim),
			Q: r.matrix(qDim, c.Dim), K: r.matrix(kvDim, c.Dim), V: r.matrix(kvDim, c.Dim), O: r.matrix(c.Dim, qDim),
			Gate: r.matrix(c.Hidden, c.Dim), Up: r.matrix(c.Hidden, c.Dim), Down: r.matrix(c.Dim, c.Hidden),
		}
		if traits.Biases {
			l.QBias, l.KBias, l.VBias = r.norm(qDim), r.norm(kvDim), r.norm(kvDim)
		}
		if traits.HeadNorms {
			l.QNorm, l.KNorm = r.norm(c.HeadDim), r.norm(c.HeadDim)
		}
		if traits.PostNorms {
			l.AttnAfter, l.FFNAfter = r.norm(c.Dim), r.norm(c.Dim)
		}
		w.Layers = append(w.Layers, l)
	}
	if w.Output = w.Embed; !tied {
		w.Output = r.matrix(c.Vocab, c.Dim)
	}
	return &model.File{Name: "seeded", Format: "test", Config: c, Weights: w}
}

type weightMaker struct {
	*rand.Rand
	types []model.Type
	made  int
}

func (r *weightMaker) norm(n int) model.Tensor {
	t := model.Tensor{Rows: 1, Cols: n}
	for range n {
		t.Data = append(t.Data, f32Bytes(0.5+r.Float32())...)
	}
	return t
}

// i8Group is the number of elements that share a scale.
const i8Group = 32

// matrix has elements of about 1/√cols.
func (r *weightMaker) matrix(rows, cols int) model.Tensor {
	t := model.Tensor{Type: r.types[r.made%len(r.types)], Rows: rows, Cols: cols}
	r.made++
	size := 1 / math.Sqrt(float64(cols))
	if t.Type == model.I8 {
		t.Group = i8Group
		for range rows * cols / t.Group {
			t.Scales = append(t.Scales, f32Bytes(float32(size/64*(0.5+r.Float64())))...)
		}
	}

	elements, bytes := t.Type.Block()
	for range rows * cols / elements {
		block := make([]byte, bytes)
		switch t.Type {
		case model.F32:
			copy(block, f32Bytes(float32(r.NormFloat64()*size)))

		case model.BF16:
			binary.LittleEndian.PutUint16(block, uint16(math.Float32bits(float32(r.NormFloat64()*size))>>16))
		case model.F16:
			binary.LittleEndian.PutUint16(block, half(float32(r.NormFloat64()*size)))

		default: // a scale, and any bytes
			for i := range block {
				block[i] = byte(r.Uint32())
			}
			switch t.Type {
			case model.Q8_0:
				binary.LittleEndian.PutUint16(block, half(float32(size/64*(0.5+r.Float64()))))
			case model.Q4_0:
				binary.LittleEndian.PutUint16(block, half(float32(size/4*(0.5+r.Float64()))))
			case model.I8:
			default:
				packed := librarytest.BlockTypes[t.Type.String()]
				block = packed.Draw(r.Rand)
				packed.Shrink(block, int(math.Ceil(-math.Log2(size))))
			}
		}

		t.Data = append(t.Data, block...)
	}

	return t
}

// half converts a number that is normal as binary16, by truncation.
func half(v float32) uint16 {
	b := math.Float32bits(v)
	exponent := int(b>>23&0xff) - 127 + 15
	if exponent < 1 {
		return uint16(b >> 16 & 0x8000)
	}
	return uint16(b>>16&0x8000) | uint16(exponent<<10) | uint16(b>>13&0x3ff)
}
