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
	local  []float64 // of local layers
	family family

	hidden []float64
}

// layer is one block's tensors and its keys and values of each position.
type layer struct {
	attnNorm, ffnNorm          []float64
	q, k, v, o, gate, up, down [][]float64
	keys, values               [][]float64

	qBias, kBias, vBias, qNorm, kNorm, attnAfter, ffnAfter []float64

	freqs  []float64
	window int // positions that count; 0: all
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

	r := &Reference{c: c, layers: make([]layer, c.Layers), family: families[c.Arch]}
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
		r.family.take(l, from, to)
	}

	r.takeFrequencies(l, w)

	if l.err != nil {
		return nil, l.err
	}

	return r, nil
}

// Step runs a token at a position, which is at most the number of earlier
// positions, and returns the logits of the next. It forgets later positions.
func (r *Reference) Step(token int32, position int) []float64 {
	x := append([]float64(nil), r.embed[token]...)
	if r.family.scaled {
		for i := range x {
			x[i] *= math.Sqrt(float64(len(x)))
		}
	}

	for i := range r.layers {
		l := &r.layers[i]
		a := r.attend(l, r.rmsnorm(x, l.attnNorm), position)
		if r.family.postNorms {
			a = r.rmsnorm(a, l.attnAfter)
		}
		add(x, a)
		h := r.rmsnorm(x, l.ffnNorm)
		gate, up := multiply(l.gate, h), multiply(l.up, h)
		for j, g := range gate {
			gate[j] = r.family.activation(g) * up[j]
		}
		f := multiply(l.down, gate)
		if r.family.postNorms {
			f = r.rmsnorm(f, l.ffnAfter)
		}
		add(x, f)
	}

	r.hidden = r.rmsnorm(x, r.norm)
	logits := multiply(r.output, r.hidden)
	for i := range logits {
		logits[i] = within(logits[i], r.c.LogitCap)
	}
	return logits
}

// Hidden is the last step's row of the final norm, Dim values.
func (r *Reference) Hidden() []float64 { return r.hidden }

// attend is one block's attention over a normalised row.
func (r *Reference) attend(l *layer, h []float64, position int) []float64 {
	c := &r.c
	q, k, v := multiply(l.q, h), multiply(l.k, h), multiply(l.v, h)
	if r.family.biases {
		add(q, l.qBias)
		add(k, l.kBias)
		add(v, l.vBias)
	}
	if r.family.headNorms {
		r.normHeads(q, l.qNorm)
		r.normHeads(k, l.kNorm)
	}
	r.turn(q, position, l.freqs)
	r.turn(k, position, l.freqs)
	l.keys, l.values = append(l.keys[:position], k), append(l.values[:position], v)
	out := make([]float64, c.Heads*c.HeadDim)
	for head := range c.Heads {
		at, kvAt := head*c.HeadDim, head/(c.Heads/c.KVHeads)*c.HeadDim
		scores := make([]float64, position+1)
		for p := range scores {
			if l.window > 0 && p <= position-l.window {
				scores[p] = math.Inf(-1)
				continue
			}
			for i := range c.HeadDim {
				scores[p] += q[at+i] * l.keys[p][kvAt+i]
			}
			if c.ScoreScale != 0 {
				scores[p] *= c.ScoreScale
			} else {
				scores[p] /= math.Sqrt(float64(c.HeadDim))
			}
			scores[p] = within(scores[p], c.ScoreCap)
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
func (r *Reference) turn(x []float64, position int, freqs []float64) {
	n := r.c.HeadDim
	for at := 0; at < len(x); at += n {
		for i, f := range freqs {
			a, b := at+2*i, at+2*i+1
			if r.c.Rope == model.RopeHalves {
				a, b = at+i, at+i+len(freqs)
			}
			sin, cos := math.Sincos(float64(position) * f)
			if r.c.RopeScale != 0 {
				sin, cos = sin*r.c.RopeScale, cos*r.c.RopeScale
			}
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
