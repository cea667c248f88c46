package sample

import (
	"math"
	"math/rand/v2"

	"capgpu/gpuerr"
)

// Choice is the next token.
type Choice struct {
	ID      int32
	LogProb float32    // unless Next was asked for none
	Top     []TopToken // the most likely, the best first
}

// TopToken is an alternative token.
type TopToken struct {
	ID      int32
	LogProb float32
}

// Sampler chooses the tokens of one text. One goroutine at a time uses it.
type Sampler struct {
	p       Params
	vocab   int
	bias    []biased
	random  *rand.Rand
	seen    *window   // if there are penalties
	work    []float32 // the logits of the step; nil after Rest
	changed []changed // logits before the changes, in the order of the changes
	weights []float64 // in proportion to the probabilities, if a token is drawn
	order   []int32   // tokens, for the cuts
	pivot   uint32
}

// biased is an entry of Params.Bias.
type biased struct {
	id int32
	by float32
}

// New checks the parameters (gpuerr.Invalid, which names the field) and makes a Sampler
// for logits of a vocabulary.
func New(p Params, vocab int) (*Sampler, error) {
	if vocab < 1 || vocab > math.MaxInt32 {
		return nil, gpuerr.New(gpuerr.Invalid, "vocab: %d", vocab)
	}
	if err := p.Check(vocab); err != nil {
		return nil, err
	}

	s := &Sampler{p: p, vocab: vocab}
	for id, by := range p.Bias {
		s.bias = append(s.bias, biased{id, by})
	}

	if p.penalises() {
		s.seen = newWindow(p.PenaltyLast, vocab)
	}

	seed := p.Seed
	if !p.Seeded {
		seed = rand.Uint64()
	}

	s.random = rand.New(rand.NewPCG(seed, 0x6361706770750001)) // any constant, and always this one
	s.pivot = 1
	s.begin()
	return s, nil
}

// begin allocates the memory of a step.
func (s *Sampler) begin() {
	s.work = make([]float32, s.vocab)
	if s.p.Temperature > 0 {
		s.weights = make([]float64, s.vocab)
	}
}

// Rest frees the memory that a step needs, and the next step allocates it again. It
// is for a text that pauses for a while. It changes no choice.
func (s *Sampler) Rest() { s.work, s.weights, s.order, s.changed = nil, nil, nil, nil }

// ErrNoNumbers means that all logits are NaN, so that no token can be chosen.
var ErrNoNumbers = gpuerr.New(gpuerr.Internal, "logits: none is a number: no token can be chosen")

// Accept counts tokens of a prompt for the penalties. It ignores numbers that are
// no tokens.
func (s *Sampler) Accept(tokens ...int32) {
	if s.seen == nil {
		return
	}
	for _, id := range tokens {
		s.seen.add(id)
	}
}

// Next chooses a token and counts it for the penalties. With top 0 it returns the
// choice's log-probability, with top above 0 also those of that many most likely
// tokens, and with top below 0 none. Logits of a length other than the vocabulary,
// or with no possible token, are gpuerr.Invalid; logits that are all NaN are
// ErrNoNumbers. It allocates only Top, except after Rest.
func (s *Sampler) Next(logits []float32, top int) (Choice, error) {
	if len(logits) != s.vocab {
		return Choice{}, gpuerr.New(gpuerr.Invalid, "logits: %d of a vocabulary of %d", len(logits), s.vocab)
	}
	if s.work == nil {
		s.begin()
	}

	copy(s.work, logits)
	if !clean(s.work) {
		return Choice{}, ErrNoNumbers
	}

	var c Choice
	var m softmax
	if top >= 0 {
		m = newSoftmax(s.work)
	}
	if top > 0 {
		c.Top = s.likeliest(top, m)
	}

	s.penalise()
	id, ok := s.choose()
	if !ok {
		return Choice{}, gpuerr.New(gpuerr.Invalid, "bias: no token is left that can be chosen")
	}

	c.ID = id
	if top >= 0 {
		c.LogProb = m.logProb(s.raw(id))
	}
	if s.seen != nil {
		s.seen.add(id)
	}

	return c, nil
}
