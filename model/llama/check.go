package llama

import (
	"fmt"

	"capgpu/gpuerr"
	"capgpu/model"
)

// checkFile returns why a file is no model of its family, naming the tensor. Loaders
// have checked much of it; the rest of this package relies on all of it.
func checkFile(f *model.File) error {
	c, w := &f.Config, &f.Weights
	if err := c.Check(); err != nil {
		return err
	}
	if len(w.Layers) != c.Layers {
		return gpuerr.New(gpuerr.Invalid, "layers: the weights have %d, the shape says %d", len(w.Layers), c.Layers)
	}

	var err error
	matrix := func(name string, t *model.Tensor, rows, cols int) {
		if err == nil {
			err = checkMatrix(name, t, rows, cols)
		}
	}

	vector := func(name string, t *model.Tensor, n int) {
		matrix(name, t, 1, n)
		if err == nil && t.Type != model.F32 {
			err = gpuerr.New(gpuerr.Invalid, "%s: is of type %v; norms and factors are f32", name, t.Type)
		}
	}

	matrix("embed", &w.Embed, c.Vocab, c.Dim)
	for i := range w.Layers {
		for _, p := range c.Parts(&w.Layers[i]) {
			name := fmt.Sprintf("layers.%d.%s", i, p.Name)
			if p.Rows == 0 {
				vector(name, p.Tensor, p.Cols)
			} else {
				matrix(name, p.Tensor, p.Rows, p.Cols)
			}
		}
	}

	vector("norm", &w.Norm, c.Dim)
	matrix("output", &w.Output, c.Vocab, c.Dim)
	if w.RopeFactors.Data != nil {
		vector("ropeFactors", &w.RopeFactors, c.TurnedDim()/2)
	}

	if c.LongAfter != 0 {
		vector("longFactors", &w.LongFactors, c.TurnedDim()/2)
	}

	return err
}

func checkMatrix(name string, t *model.Tensor, rows, cols int) error {
	if t.Type >= model.Types {
		return gpuerr.New(gpuerr.Invalid, "%s: %v is no type of a tensor", name, t.Type)
	}
	if t.Rows != rows || t.Cols != cols {
		return gpuerr.New(gpuerr.Invalid, "%s: has %d×%d elements where the shape says %d×%d", name, t.Rows, t.Cols, rows, cols)
	}

	elements, _ := t.Type.Block()
	if cols%elements != 0 {
		return gpuerr.New(gpuerr.Invalid, "%s: rows of %d elements are not whole blocks of %d", name, cols, elements)
	}
	if len(t.Data) != t.Bytes() {
		return gpuerr.New(gpuerr.Invalid, "%s: has %d bytes where the shape says %d", name, len(t.Data), t.Bytes())
	}
	if t.Type != model.I8 {
		return nil
	}
	if t.Group < 1 || cols%t.Group != 0 {
		return gpuerr.New(gpuerr.Invalid, "%s: groups of %d do not divide rows of %d", name, t.Group, cols)
	}
	if want := rows * cols / t.Group * 4; len(t.Scales) != want {
		return gpuerr.New(gpuerr.Invalid, "%s: has %d bytes of scales where the shape says %d", name, len(t.Scales), want)
	}

	return nil
}
