package modeltest

import (
	"math"

	"capgpu/model"
)

// family is what the models of a family do that Llama's do not, from the families' papers.
// It says the same as model.Traits, in words of its own.
type family struct {
	biases, headNorms, postNorms, gelu, scaled bool
}

var families = map[model.Arch]family{
	model.Qwen2:  {biases: true},
	model.Qwen3:  {headNorms: true},
	model.Gemma:  {gelu: true, scaled: true},
	model.Gemma2: {gelu: true, scaled: true, postNorms: true},
	model.Gemma3: {gelu: true, scaled: true, postNorms: true, headNorms: true},
}

// take takes the vectors of a layer that the family has.
func (f *family) take(l *loading, from *model.Layer, to *layer) {
	if f.biases {
		to.qBias = l.vector("qBias", &from.QBias, from.Q.Rows)
		to.kBias = l.vector("kBias", &from.KBias, from.K.Rows)
		to.vBias = l.vector("vBias", &from.VBias, from.V.Rows)
	}
	if f.headNorms {
		to.qNorm = l.vector("qNorm", &from.QNorm, from.QNorm.Cols)
		to.kNorm = l.vector("kNorm", &from.KNorm, from.KNorm.Cols)
	}
	if f.postNorms {
		to.attnAfter = l.vector("attnAfter", &from.AttnAfter, from.O.Rows)
		to.ffnAfter = l.vector("ffnAfter", &from.FFNAfter, from.Down.Rows)
	}
}

// activation is SiLU, or GELU in its approximation by tanh.
func (f *family) activation(x float64) float64 {
	if f.gelu {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*math.Pow(x, 3))))
	}
	return x / (1 + math.Exp(-x))
}

// within keeps x within -limit and limit; 0 is no limit.
func within(x, limit float64) float64 {
	if limit == 0 {
		return x
	}
	return limit * math.Tanh(x/limit)
}

// normHeads normalises each head.
func (r *Reference) normHeads(x, weight []float64) {
	for at := 0; at < len(x); at += len(weight) {
		copy(x[at:], r.rmsnorm(x[at:at+len(weight)], weight))
	}
}

// takeFrequencies takes the frequencies of each layer, and its window. Every
// GlobalEvery-th layer, counted from 1, attends to all positions.
func (r *Reference) takeFrequencies(l *loading, w *model.Weights) {
	c := &r.c
	r.freqs = frequencies(c)
	factors := &w.RopeFactors
	if c.LongAfter > 0 && c.Context > c.LongAfter {
		factors = &w.LongFactors
	}
	if len(factors.Data) > 0 {
		for i, f := range l.vector("ropeFactors", factors, len(r.freqs)) {
			r.freqs[i] /= f
		}
	}

	r.local = r.freqs
	if c.LocalRopeBase != 0 {
		r.local = frequencies(&model.Config{HeadDim: c.HeadDim, RopeBase: c.LocalRopeBase})
	}

	for i := range r.layers {
		r.layers[i].freqs = r.freqs
		if c.Window > 0 && (c.GlobalEvery == 0 || i%c.GlobalEvery != c.GlobalEvery-1) {
			r.layers[i].freqs, r.layers[i].window = r.local, c.Window
		}
	}
}

// frequencies is base^(-2i/n), stretched as Llama 3.1 does (transformers,
// modeling_rope_utils.py, _compute_llama3_parameters).
func frequencies(c *model.Config) []float64 {
	n := c.HeadDim
	if c.Turned > 0 {
		n = c.Turned
	}
	freqs := make([]float64, n/2)
	for i := range freqs {
		f := math.Pow(c.RopeBase, -2*float64(i)/float64(n))
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
