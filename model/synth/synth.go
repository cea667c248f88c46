package synth

import (
	"fmt"
	"hash/fnv"
	"math"

	"capgpu/model"
	"capgpu/model/quant"
	"capgpu/model/tokenizer"
)

// Model is a model to be generated: File has no weights yet, Content makes them one
// by one.
type Model struct {
	Plan *model.File // its tensors have types and shapes; Data only says whether the classifier is tied

	seed    uint64
	recipes map[*model.Tensor]recipe
}

// recipe describes the contents of a tensor.
type recipe struct {
	name  string
	scale float64   // of a matrix: the standard deviation; of a vector: the mean
	rows  []float32 // if not nil: the factors of each row's elements
}

// The gains. A matrix of gain 1 preserves the size of its input. Embeddings are
// small beside the layers' contributions, because a tied classifier would otherwise
// repeat the last token forever; the last norm makes up for it, so that logits have
// logitSpread.
const (
	embedSpread = 0.1
	qkGain      = 2
	valueGain   = 1.5
	ffnGain     = 2
	biasMean    = 0.1
	logitSpread = 3
	// rareSpread is for tokens that do not read well (bytes that are no character
	// of their own) and for those that end a text, so that they are seldom the most
	// likely.
	rareSpread = 0.375
)

// New plans a model. Errors (gpuerr.Invalid) name the option.
func New(o Options) (*Model, error) {
	c, err := o.config()
	if err != nil {
		return nil, err
	}

	spec := sentencePiece(o.Vocab)
	if o.ByteLevel {
		spec = byteLevel(o.Vocab)
	}

	t, err := tokenizer.New(spec)
	if err != nil {
		return nil, err
	}

	f := &model.File{Name: o.Name, Format: "synth", Config: c, Tokenizer: t}
	if f.Name == "" {
		f.Name = "synth"
	}

	m := &Model{Plan: f, seed: o.Seed, recipes: map[*model.Tensor]recipe{}}
	w := &f.Weights
	matrix := func(t *model.Tensor, name string, rows, cols int, gain float64) {
		*t = model.Tensor{Type: o.Type, Rows: rows, Cols: cols}
		if per, _ := o.Type.Block(); cols%per != 0 {
			t.Type = model.F32
		}
		if o.Type == model.I8 {
			t.Group = o.Group
		}
		m.recipes[t] = recipe{name: name, scale: gain / math.Sqrt(float64(cols))}
	}

	sized := func(t *model.Tensor, name string, mean float64, cols int) {
		*t = model.Tensor{Type: model.F32, Rows: 1, Cols: cols}
		m.recipes[t] = recipe{name: name, scale: mean}
	}
	vector := func(t *model.Tensor, name string, mean float64) { sized(t, name, mean, c.Dim) }

	wide := math.Sqrt(float64(c.Dim))
	tokens := func(t *model.Tensor, name string) {
		matrix(t, name, c.Vocab, c.Dim, embedSpread*wide/c.EmbedScale())
		r := m.recipes[t]
		r.rows = spreads(&spec)
		m.recipes[t] = r
	}

	tokens(&w.Embed, "embed")
	vector(&w.Norm, "norm", logitSpread/(embedSpread*wide)*c.EmbedScale())
	if o.Tied {
		w.Embed.Data = make([]byte, 1) // marks them as one
		w.Output = w.Embed
	} else {
		tokens(&w.Output, "output")
	}

	traits := c.Arch.Traits()
	w.Layers = make([]model.Layer, c.Layers)
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	for i := range w.Layers {
		l := &w.Layers[i]
		name := func(part string) string { return fmt.Sprintf("%s.%d", part, i) }
		vector(&l.AttnNorm, name("attnNorm"), 1)
		vector(&l.FFNNorm, name("ffnNorm"), 1)
		matrix(&l.Q, name("q"), q, c.Dim, qkGain)
		matrix(&l.K, name("k"), kv, c.Dim, qkGain)
		matrix(&l.V, name("v"), kv, c.Dim, valueGain)
		matrix(&l.O, name("o"), c.Dim, q, valueGain)
		matrix(&l.Gate, name("gate"), c.Hidden, c.Dim, ffnGain)
		matrix(&l.Up, name("up"), c.Hidden, c.Dim, ffnGain)
		matrix(&l.Down, name("down"), c.Dim, c.Hidden, ffnGain)
		if traits.Biases {
			sized(&l.QBias, name("qBias"), biasMean, q)
			sized(&l.KBias, name("kBias"), biasMean, kv)
			sized(&l.VBias, name("vBias"), biasMean, kv)
		}
		if traits.HeadNorms {
			sized(&l.QNorm, name("qNorm"), qkGain, c.HeadDim)
			sized(&l.KNorm, name("kNorm"), qkGain, c.HeadDim)
		}
		if traits.PostNorms {
			vector(&l.AttnAfter, name("attnAfter"), 1)
			vector(&l.FFNAfter, name("ffnAfter"), 1)
		}
	}

	return m, nil
}

// Content makes one tensor of Plan: a quant.Content.
func (m *Model) Content(t *model.Tensor) (model.Tensor, error) {
	r, ok := m.recipes[t]
	if !ok {
		return model.Tensor{}, fmt.Errorf("synth: no tensor of this model")
	}
	x := m.numbers(r, t.Rows*t.Cols, t.Rows == 1)
	return quant.Encode(t.Type, t.Rows, t.Cols, t.Group, x)
}

// numbers are n numbers of a bell-like distribution; for a vector, around a mean
// and within a few percent of it.
func (m *Model) numbers(r recipe, n int, vector bool) []float32 {
	h := fnv.New64a()
	h.Write([]byte(r.name))
	state := mix(m.seed) ^ h.Sum64()
	const deviation = 37837.23 // of the sum of four numbers below 65536
	scale, mean := float32(r.scale/deviation), float32(0)
	if vector {
		scale, mean = float32(r.scale/deviation/20), float32(r.scale)
	}

	x := make([]float32, n)
	for i := range x {
		state += 0x9E3779B97F4A7C15
		z := mix(state)
		sum := int(z&0xFFFF) + int(z>>16&0xFFFF) + int(z>>32&0xFFFF) + int(z>>48) - 2*0xFFFF
		v := float32(sum) * scale
		x[i] = mean + float32(v) // the conversion keeps the two roundings apart
		if r.rows != nil {
			x[i] *= r.rows[i/(n/len(r.rows))]
		}
	}

	return x
}

// spreads are the factors by which the tokens' rows differ from each other.
func spreads(s *tokenizer.Spec) []float32 {
	out := make([]float32, len(s.Pieces))
	for i, p := range s.Pieces {
		out[i] = 1
		alone := s.Scheme == tokenizer.ByteLevel && i < 256 && p.Text[0] >= 0x80
		if p.Kind != tokenizer.Normal || alone {
			out[i] = rareSpread
		}
	}
	return out
}

// mix is the finaliser of SplitMix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// File makes the whole model in memory.
func (m *Model) File() (*model.File, error) {
	f := *m.Plan
	from, to := &m.Plan.Weights, &f.Weights
	to.Layers = make([]model.Layer, len(from.Layers))
	var err error
	set := func(to, from *model.Tensor) {
		if err == nil {
			*to, err = m.Content(from)
		}
	}

	set(&to.Embed, &from.Embed)
	set(&to.Norm, &from.Norm)
	for i := range to.Layers {
		parts := f.Config.Parts(&from.Layers[i])
		for k, p := range f.Config.Parts(&to.Layers[i]) {
			set(p.Tensor, parts[k].Tensor)
		}
	}

	if from.Tied() {
		to.Output = to.Embed
	} else {
		set(&to.Output, &from.Output)
	}

	if err != nil {
		return nil, err
	}

	return model.NewFile(f, nil), nil
}
