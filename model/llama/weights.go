package llama

import (
	"math"
	"slices"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
)

// upload is a piece that Load fills from the file.
type upload struct {
	to   piece
	from []byte // in the mapped file
}

// matrix is the operand of a linear_*: one tensor, or several of one type and width
// that lie behind each other.
type matrix struct {
	typ               model.Type
	rows, cols, group int
	at                int // of its first row in the projection's output
	w, scales         piece
}

// tensors places the tensors of the file.
type tensors struct {
	layout  *layout
	uploads []upload

	turned, headDim int             // turned is 0 where all of a head is
	heads           []*model.Tensor // queries and keys
}

func (t *tensors) put(name string, data ...[]byte) piece {
	var bytes uint64
	for _, d := range data {
		bytes += uint64(len(d))
	}
	p := t.layout.place(weights, name, bytes)
	var off uint64
	for _, d := range data {
		t.uploads = append(t.uploads, upload{p.part(off, uint64(len(d))), d})
		off += uint64(len(d))
	}
	return p
}

// matrices places the parts of a projection in as few matrices as possible.
func (t *tensors) matrices(name string, parts ...*model.Tensor) []matrix {
	one := true
	for _, p := range parts[1:] {
		one = one && p.Type == parts[0].Type && p.Cols == parts[0].Cols && p.Group == parts[0].Group
	}
	if one {
		return []matrix{t.stacked(name, 0, parts)}
	}
	var all []matrix
	at := 0
	for i, p := range parts {
		all = append(all, t.stacked(name, at, parts[i:i+1]))
		at += p.Rows
	}
	return all
}

func (t *tensors) stacked(name string, at int, parts []*model.Tensor) matrix {
	m := matrix{typ: parts[0].Type, cols: parts[0].Cols, group: parts[0].Group, at: at}
	var data, scales [][]byte
	for _, p := range parts {
		m.rows += p.Rows
		data, scales = append(data, t.inOrder(p)...), append(scales, p.Scales)
	}
	m.w = t.put(name, data...)
	if m.typ == model.I8 {
		m.scales = t.put(name+".scales", scales...)
	}
	return m
}

// inOrder is a tensor's data in the order in which its rows are placed. Where only a part
// of a head is turned, pair i is rows i and i+turned/2 of the head in the file, and i and
// i+headDim/2 here, where the kernel has it; the rest of a head lies around. Queries and
// keys in the same order have the same products.
func (t *tensors) inOrder(p *model.Tensor) [][]byte {
	if t.turned == 0 || !slices.Contains(t.heads, p) {
		return [][]byte{p.Data}
	}

	var all [][]byte
	size, half, rest := len(p.Data)/p.Rows, t.turned/2, (t.headDim-t.turned)/2
	for head := 0; head < p.Rows; head += t.headDim {
		for _, r := range [][2]int{{0, half}, {t.turned, rest}, {half, half}, {t.turned + rest, rest}} {
			all = append(all, p.Data[(head+r[0])*size:][:r[1]*size])
		}
	}
	return all
}

// allFrequencies are the frequencies of the layers that attend to all positions, and
// those of local ones where they differ, for sequences of this many positions.
func allFrequencies(f *model.File, context int) (all [2][]float32, err error) {
	c := &f.Config
	factors := &f.Weights.RopeFactors
	if c.LongAfter != 0 && context > c.LongAfter {
		factors = &f.Weights.LongFactors
	}

	if all[0], err = frequencies(c.RopeBase, c.TurnedDim(), &c.Scaling, factors); err != nil {
		return all, err
	}
	all[0] = append(all[0], make([]float32, c.HeadDim/2-len(all[0]))...) // the rest stays as it is
	if c.LocalRopeBase != 0 {
		all[1], err = frequencies(c.LocalRopeBase, c.HeadDim, &model.RopeScaling{}, &model.Tensor{})
	}
	return all, err
}

// frequencies are the angles by which the pairs of a head turn per position, with
// the model's scaling applied.
func frequencies(base float64, headDim int, scaling *model.RopeScaling, factors *model.Tensor) ([]float32, error) {
	n := headDim / 2
	own := make([]byte, 4*n)
	if factors.Data != nil {
		if err := mapped.Copy(own, factors.Data); err != nil {
			return nil, err
		}
	}

	all := make([]float32, n)
	for i := range all {
		f := math.Pow(base, -float64(2*i)/float64(headDim))
		if factors.Data != nil {
			factor := float64(math.Float32frombits(le32(own[4*i:])))
			if !(factor > 0 && factor <= math.MaxFloat32) {
				return nil, gpuerr.New(gpuerr.Invalid, "ropeFactors: element %d is %g", i, factor)
			}
			f /= factor
		}
		all[i] = float32(stretch(scaling, f))
	}

	return all, nil
}

// stretch is the frequency scaling of Llama 3.1. It divides the frequencies of
// waves longer than the context of the training, keeps short waves, and blends in
// between (llama3 of rope_type, Hugging Face transformers, modeling_rope_utils.py).
func stretch(s *model.RopeScaling, f float64) float64 {
	if s.Factor == 0 {
		return f
	}
	wave := 2 * math.Pi / f
	switch low, high := float64(s.Original)/s.LowFactor, float64(s.Original)/s.HighFactor; {
	case wave > low:
		return f / s.Factor
	case wave < high:
		return f
	}
	smooth := (float64(s.Original)/wave - s.LowFactor) / (s.HighFactor - s.LowFactor)
	return (1-smooth)*f/s.Factor + smooth*f
}
