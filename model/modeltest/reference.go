package modeltest

import (
	"math"

	"capgpu/gpuerr"
	"capgpu/model"
)

// Reference runs a model in float64, one token at a time, one sequence, in plain
// loops over tensors that it first converts to float64. It shares only model's
// types with the code that is compared with it.
type Reference struct {
	c      model.Config
	embed  [][]float64
	layers []layer
	norm   []float64
	output [][]float64
	freqs  []float64 // radians per position, by pair of a head

	hidden []float64
}

// layer is one block's tensors and its keys and values of each position.
type layer struct {
	attnNorm, ffnNorm          []float64
	q, k, v, o, gate, up, down [][]float64
	keys, values               [][]float64
}

// New takes a model's tensors. A shape or a type that does not fit is gpuerr.Invalid.
func New(f *model.File) (*Reference, error) {
	if err := f.Config.Check(); err != nil {
		return nil, err
	}

	c, w := f.Config, &f.Weights
	if len(w.Layers) != c.Layers {
		return nil, gpuerr.New(gpuerr.Invalid, "layers: %d of %d", len(w.Layers), c.Layers)
	}

	r := &Reference{c: c, layers: make([]layer, c.Layers)}
	l := &loading{}
	r.embed = l.matrix("embed", &w.Embed, c.Vocab, c.Dim)
	r.output = l.matrix("output", &w.Output, c.Vocab, c.Dim)
	r.norm = l.vector("norm", &w.Norm, c.Dim)
	heads, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for i := range r.layers {
		from, to := &w.Layers[i], &r.layers[i]
		to.attnNorm = l.vector("attnNorm", &from.AttnNorm, c.Dim)
		to.ffnNorm = l.vector("ffnNorm", &from.FFNNorm, c.Dim)
		to.q = l.matrix("q", &from.Q, heads, c.Dim)
		to.k = l.matrix("k", &from.K, kv, c.Dim)
		to.v = l.matrix("v", &from.V, kv, c.Dim)
		to.o = l.matrix("o", &from.O, c.Dim, heads)
		to.gate = l.matrix("gate", &from.Gate, c.Hidden, c.Dim)
		to.up = l.matrix("up", &from.Up, c.Hidden, c.Dim)
		to.down = l.matrix("down", &from.Down, c.Dim, c.Hidden)
	}

	r.freqs = frequencies(&c)
	if len(w.RopeFactors.Data) > 0 {
		for i, f := range l.vector("ropeFactors", &w.RopeFactors, c.HeadDim/2) {
			r.freqs[i] /= f
		}
	}

	if l.err != nil {
		return nil, l.err
	}

	return r, nil
}

// frequencies is base^(-2i/n), stretched as Llama 3.1 does (transformers,
// modeling_rope_utils.py, _compute_llama3_parameters).
func frequencies(c *model.Config) []float64 {
	freqs := make([]float64, c.HeadDim/2)
	for i := range freqs {
		f := math.Pow(c.RopeBase, -2*float64(i)/float64(c.HeadDim))
		if s := c.Scaling; s.Factor != 0 {
			length := 2 * math.Pi / f
			long, short := float64(s.Original)/s.LowFactor, float64(s.Original)/s.HighFactor
			switch {
			case length > long:
				f /= s.Factor
			case length >= short:
				smooth := (float64(s.Original)/length - s.LowFactor) / (s.HighFactor - s.LowFactor)
				f = (1-smooth)*f/s.Factor + smooth*f
			}
		}
		freqs[i] = f
	}

	return freqs
}

// Step runs a token at a position, which is at most the number of earlier
// positions, and returns the logits of the next. It forgets later positions.
func (r *Reference) Step(token int32, position int) []float64 {
	x := append([]float64(nil), r.embed[token]...)
	for i := range r.layers {
		l := &r.layers[i]
		add(x, r.attend(l, r.rmsnorm(x, l.attnNorm), position))
		h := r.rmsnorm(x, l.ffnNorm)
		gate, up := multiply(l.gate, h), multiply(l.up, h)
		for j, g := range gate {
			gate[j] = g / (1 + math.Exp(-g)) * up[j]
		}
		add(x, multiply(l.down, gate))
	}
	r.hidden = r.rmsnorm(x, r.norm)
	return multiply(r.output, r.hidden)
}

// Hidden is the last step's row of the final norm, Dim values.
func (r *Reference) Hidden() []float64 { return r.hidden }

// attend is one block's attention over a normalised row.
func (r *Reference) attend(l *layer, h []float64, position int) []float64 {
	c := &r.c
	q, k, v := multiply(l.q, h), multiply(l.k, h), multiply(l.v, h)
	r.turn(q, position)
	r.turn(k, position)
	l.keys, l.values = append(l.keys[:position], k), append(l.values[:position], v)
	out := make([]float64, c.Heads*c.HeadDim)
	for head := range c.Heads {
		at, kvAt := head*c.HeadDim, head/(c.Heads/c.KVHeads)*c.HeadDim
		scores := make([]float64, position+1)
		for p := range scores {
			for i := range c.HeadDim {
				scores[p] += q[at+i] * l.keys[p][kvAt+i]
			}
			scores[p] /= math.Sqrt(float64(c.HeadDim))
		}
		for p, weight := range softmax(scores) {
			for i := range c.HeadDim {
				out[at+i] += weight * l.values[p][kvAt+i]
			}
		}
	}

	return multiply(l.o, out)
}

// turn rotates the pairs of each head by the position.
func (r *Reference) turn(x []float64, position int) {
	n := r.c.HeadDim
	for at := 0; at < len(x); at += n {
		for i, f := range r.freqs {
			a, b := at+2*i, at+2*i+1
			if r.c.Rope == model.RopeHalves {
				a, b = at+i, at+i+n/2
			}
			sin, cos := math.Sincos(float64(position) * f)
			x[a], x[b] = x[a]*cos-x[b]*sin, x[a]*sin+x[b]*cos
		}
	}
}

func (r *Reference) rmsnorm(x, weight []float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+float64(r.c.NormEps))
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * scale * weight[i]
	}
	return y
}

func multiply(m [][]float64, x []float64) []float64 {
	y := make([]float64, len(m))
	for i, row := range m {
		for j, v := range row {
			y[i] += v * x[j]
		}
	}
	return y
}

func softmax(x []float64) []float64 {
	most := math.Inf(-1)
	for _, v := range x {
		most = math.Max(most, v)
	}
	y, sum := make([]float64, len(x)), 0.0
	for i, v := range x {
		y[i] = math.Exp(v - most)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

func add(x, y []float64) {
	for i, v := range y {
		x[i] += v
	}
}
