package model

// Part is a tensor of a layer, and the shape that the Config makes it.
type Part struct {
	Name       string // of the field of Layer, in lower case: "attnNorm"
	Rows, Cols int    // Rows is 0 for a vector, which is of F32
	Norm       bool   // a vector of factors of a norm
	Tensor     *Tensor
}

// Parts are the tensors that a layer of the family has, in the order of a pass.
func (c *Config) Parts(l *Layer) []Part {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	traits := c.Arch.Traits()
	parts := []Part{
		{"attnNorm", 0, c.Dim, true, &l.AttnNorm},
		{"q", q, c.Dim, false, &l.Q}, {"k", kv, c.Dim, false, &l.K}, {"v", kv, c.Dim, false, &l.V},
	}
	if traits.Biases {
		parts = append(parts, Part{"qBias", 0, q, false, &l.QBias}, Part{"kBias", 0, kv, false, &l.KBias}, Part{"vBias", 0, kv, false, &l.VBias})
	}
	if traits.HeadNorms {
		parts = append(parts, Part{"qNorm", 0, c.HeadDim, true, &l.QNorm}, Part{"kNorm", 0, c.HeadDim, true, &l.KNorm})
	}
	parts = append(parts, Part{"o", c.Dim, q, false, &l.O})
	if traits.PostNorms {
		parts = append(parts, Part{"attnAfter", 0, c.Dim, true, &l.AttnAfter})
	}

	parts = append(parts, Part{"ffnNorm", 0, c.Dim, true, &l.FFNNorm},
		Part{"gate", c.Hidden, c.Dim, false, &l.Gate}, Part{"up", c.Hidden, c.Dim, false, &l.Up}, Part{"down", c.Dim, c.Hidden, false, &l.Down})
	if traits.PostNorms {
		parts = append(parts, Part{"ffnAfter", 0, c.Dim, true, &l.FFNAfter})
	}

	return parts
}

// Stack is a tensor of a layer as a file has it: one part, or several by rows.
type Stack struct {
	Name  string
	Parts []Part
}

// Rows is the sum of the parts' rows.
func (s *Stack) Rows() int {
	n := 0
	for _, p := range s.Parts {
		n += p.Rows
	}
	return n
}

// Split gives the parts their rows of the file's tensor.
func (s *Stack) Split(t Tensor) {
	at := 0
	for _, p := range s.Parts {
		*p.Tensor = Tensor{Type: t.Type, Rows: max(p.Rows, 1), Cols: p.Cols}
		n := p.Tensor.Bytes()
		p.Tensor.Data = t.Data[at : at+n : at+n]
		at += n
	}
}

// Stacks are the tensors of a layer as a file has them: name is a part's name in the file,
// and parts that follow each other under one name are one tensor.
func (c *Config) Stacks(l *Layer, name func(part string) string) []Stack {
	var all []Stack
	for _, p := range c.Parts(l) {
		n := name(p.Name)
		if last := len(all) - 1; last >= 0 && all[last].Name == n {
			all[last].Parts = append(all[last].Parts, p)
			continue
		}
		all = append(all, Stack{n, []Part{p}})
	}
	return all
}
