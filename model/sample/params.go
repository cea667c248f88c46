package sample

import (
	"math"

	"capgpu/gpuerr"
)

// The bounds of Params.
const (
	MaxBias        = 1024
	MaxTemperature = 100
	MaxPenaltyLast = 1 << 20
	defaultLast    = 64
)

// Params are the parameters of a choice. The zero value takes the most likely
// token.
type Params struct {
	Temperature float32 // 0: the most likely token; then only the penalties below have an effect
	TopK        int     // choose among this many most likely tokens; 0: all
	TopP        float32 // choose among the fewest tokens with this total probability; 0 or 1: all
	MinP        float32 // choose among tokens at least this times as likely as the most likely; 0: all
	// Repetition divides positive logits of tokens of the last PenaltyLast and multiplies
	// negative ones; 0 or 1: none.
	Repetition float32
	Presence   float32 // subtracted from logits of earlier tokens
	Frequency  float32 // subtracted for each earlier occurrence
	// PenaltyLast is the number of tokens that count, prompt included; 0: 64,
	// negative: all.
	PenaltyLast int
	Seed        uint64
	Seeded      bool              // use Seed; otherwise each request has its own
	Bias        map[int32]float32 // added to logits; at most 1,024
}

// Check returns gpuerr.Invalid, naming the field, if a value is impossible for a
// vocabulary of this size.
func (p *Params) Check(vocab int) error {
	for _, f := range []struct {
		name               string
		value, least, most float32
	}{
		{"temperature", p.Temperature, 0, MaxTemperature}, {"topP", p.TopP, 0, 1}, {"minP", p.MinP, 0, 1},
		{"repetition", p.Repetition, 0, 100}, {"presence", p.Presence, -100, 100}, {"frequency", p.Frequency, -100, 100},
	} {
		if !(f.value >= f.least && f.value <= f.most) {
			return gpuerr.New(gpuerr.Invalid, "%s: %g is not within %g to %g", f.name, f.value, f.least, f.most)
		}
	}

	switch {
	case p.TopK < 0:
		return gpuerr.New(gpuerr.Invalid, "topK: %d is negative", p.TopK)
	case p.PenaltyLast > MaxPenaltyLast:
		return gpuerr.New(gpuerr.Invalid, "penaltyLast: %d is more than %d", p.PenaltyLast, MaxPenaltyLast)
	case len(p.Bias) > MaxBias:
		return gpuerr.New(gpuerr.Invalid, "bias: %d tokens are more than %d", len(p.Bias), MaxBias)
	}

	for id, b := range p.Bias {
		if id < 0 || int(id) >= vocab {
			return gpuerr.New(gpuerr.Invalid, "bias: token %d is not of the %d of the vocabulary", id, vocab)
		}
		if math.IsNaN(float64(b)) || math.IsInf(float64(b), 1) {
			return gpuerr.New(gpuerr.Invalid, "bias: %g for token %d", b, id)
		}
	}

	return nil
}

// Plain reports whether the choice is the most likely token of the unchanged
// logits.
func (p *Params) Plain() bool { return p.Temperature == 0 && len(p.Bias) == 0 && !p.penalises() }

// penalises reports whether earlier tokens change logits.
func (p *Params) penalises() bool {
	return p.Repetition != 0 && p.Repetition != 1 || p.Presence != 0 || p.Frequency != 0
}
