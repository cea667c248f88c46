package quant

import (
	"fmt"
	"math"

	"capgpu/gpuerr"
	"capgpu/model"
	"capgpu/model/mapped"
)

// Content supplies the bytes of one tensor to a writer, if the model's own tensor
// has only a type and shape. A model need therefore never be in memory as a whole.
// The tensor is named by its place, &f.Weights.Layers[3].Q. A writer asks for every
// tensor once, in the order of the file.
type Content func(t *model.Tensor) (model.Tensor, error)

// Own is the Content of a model with its bytes in memory.
func Own(t *model.Tensor) (model.Tensor, error) { return *t, nil }

// Fetch returns the content for t, after checking that it has the type and shape of
// t.
func (c Content) Fetch(name string, t *model.Tensor) (model.Tensor, error) {
	got, err := c(t)
	if err == nil && (got.Type != t.Type || got.Rows != t.Rows || got.Cols != t.Cols || got.Group != t.Group) {
		err = gpuerr.New(gpuerr.Invalid, "is %d rows of %d as %s, and was announced as %d of %d as %s", got.Rows, got.Cols, got.Type, t.Rows, t.Cols, t.Type)
	}
	if err == nil {
		err = Check(&got)
	}
	if err != nil {
		return got, fmt.Errorf("tensor %s: %w", name, err)
	}
	return got, nil
}

// Stacked is a tensor of a file that has the parts of a stack, and its Content.
func Stacked(s *model.Stack, c Content) (*model.Tensor, Content, error) {
	first := s.Parts[0].Tensor
	if len(s.Parts) == 1 {
		return first, c, nil
	}

	whole := &model.Tensor{Type: first.Type, Rows: s.Rows(), Cols: first.Cols}
	for _, p := range s.Parts {
		if p.Tensor.Type != first.Type || first.Type == model.I8 {
			return nil, nil, gpuerr.New(gpuerr.Invalid, "tensor %s: the format has %s and %s in one tensor", s.Name, first.Type, p.Tensor.Type)
		}
	}

	return whole, func(*model.Tensor) (model.Tensor, error) {
		t := *whole
		for _, p := range s.Parts {
			got, err := c(p.Tensor)
			if err != nil {
				return t, err
			}
			t.Data = append(t.Data, got.Data...)
		}
		return t, nil
	}, nil
}

// Matrices are the tensors of a model except vectors; Output only if it is not
// tied.
func Matrices(w *model.Weights) []*model.Tensor {
	all := []*model.Tensor{&w.Embed}
	for i := range w.Layers {
		l := &w.Layers[i]
		all = append(all, &l.Q, &l.K, &l.V, &l.O, &l.Gate, &l.Up, &l.Down)
	}
	if !w.Tied() {
		all = append(all, &w.Output)
	}
	return all
}

// GroupFor is the largest power of two up to 64 that divides the rows of all matrices.
func GroupFor(c *model.Config) int {
	group := 64
	for c.Dim%group != 0 || c.Hidden%group != 0 || c.Heads*c.HeadDim%group != 0 {
		group /= 2
	}
	return group
}

// Convert makes a model with matrices of the given type, in memory of its own;
// vectors, tokenizer and all else are f's. A matrix with rows that are not whole
// blocks of the type becomes F32. group is only for I8; 0 is GroupFor.
func Convert(f *model.File, typ model.Type, group int) (*model.File, error) {
	out := *f
	out.Weights.Layers = append([]model.Layer(nil), f.Weights.Layers...)
	if typ == model.I8 && group == 0 {
		group = GroupFor(&f.Config)
	}

	tied := f.Weights.Tied()
	err := mapped.Guard(func() error {
		for i, t := range Matrices(&out.Weights) {
			x, err := Decode(t)
			if err != nil {
				return fmt.Errorf("matrix %d: %w", i, err)
			}
			to := typ
			if per, _ := typ.Block(); t.Cols%per != 0 {
				to = model.F32
			}
			if *t, err = Encode(to, t.Rows, t.Cols, group, x); err != nil {
				return fmt.Errorf("matrix %d: %w", i, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if tied {
		out.Weights.Output = out.Weights.Embed
	}

	return model.NewFile(out, nil), nil
}

// Arranged is the Content of f with the rows of its queries and keys in the order
// of another Rope. The result of the model is the same.
func Arranged(f *model.File, rope model.Rope, c Content) Content {
	if f.Config.Rope == rope {
		return c
	}

	heads := map[*model.Tensor]bool{}
	for i := range f.Weights.Layers {
		heads[&f.Weights.Layers[i].Q] = true
		heads[&f.Weights.Layers[i].K] = true
	}

	return func(t *model.Tensor) (model.Tensor, error) {
		got, err := c(t)
		if err != nil || !heads[t] {
			return got, err
		}
		if err := Check(&got); err != nil {
			return got, err
		}
		return arrange(got, f.Config.HeadDim, rope), nil
	}
}

// arrange moves the rows within each head: (2i, 2i+1) to (i, i+n/2) for RopeHalves, and
// back for RopeAdjacent.
func arrange(t model.Tensor, headDim int, rope model.Rope) model.Tensor {
	out := t
	out.Data = make([]byte, len(t.Data))
	if t.Scales != nil {
		out.Scales = make([]byte, len(t.Scales))
	}

	data, scales := len(t.Data)/t.Rows, len(t.Scales)/t.Rows
	for r := range t.Rows {
		head, i := r/headDim*headDim, r%headDim
		adjacent := head + i%(headDim/2)*2 + i/(headDim/2) // where element i of halves is in pairs
		from, to := adjacent, r
		if rope == model.RopeAdjacent {
			from, to = r, adjacent
		}
		copy(out.Data[to*data:][:data], t.Data[from*data:])
		copy(out.Scales[to*scales:][:scales], t.Scales[from*scales:])
	}

	return out
}

// Factors are the divisors of the frequency of each pair of a head: the model's
// scaling and its own factors together; nil if there are none. RopeFactors is read
// within Guard.
func Factors(f *model.File) ([]float32, error) {
	c := &f.Config
	if c.Scaling.Factor == 0 && f.Weights.RopeFactors.Data == nil {
		return nil, nil
	}

	out := make([]float32, c.TurnedDim()/2)
	for i := range out {
		out[i] = 1
	}

	if own := &f.Weights.RopeFactors; own.Data != nil {
		err := mapped.Guard(func() (err error) {
			if own.Rows*own.Cols != len(out) {
				return gpuerr.New(gpuerr.Invalid, "rope factors: %d for %d pairs", own.Rows*own.Cols, len(out))
			}
			out, err = Decode(own)
			return err
		})
		if err != nil {
			return nil, err
		}
	}

	if s := c.Scaling; s.Factor != 0 {
		for i := range out {
			waves := math.Pow(c.RopeBase, 2*float64(i)/float64(c.HeadDim)) * 2 * math.Pi // positions of a full turn
			turns := float64(s.Original) / waves
			by := 1.0
			switch {
			case turns < s.LowFactor:
				by = s.Factor
			case turns <= s.HighFactor:
				smooth := (turns - s.LowFactor) / (s.HighFactor - s.LowFactor)
				by = 1 / ((1-smooth)/s.Factor + smooth)
			}
			out[i] *= float32(by)
		}
	}

	return out, nil
}
