// Package sample chooses the next token from logits.
package sample

// Params is how to choose. The zero value takes the most likely token.
type Params struct {
	Temperature float32 // 0: the most likely token, and what follows but the penalties has no effect
	TopK        int     // of so many most likely tokens; 0: all
	TopP        float32 // of the fewest whose probabilities make this much; 0 or 1: all
	MinP        float32 // of those at least this times as likely as the most likely; 0: all
	// Repetition divides positive logits of tokens of the last PenaltyLast and multiplies
	// negative ones; 0 or 1: none.
	Repetition float32
	Presence   float32 // subtracted from logits of tokens that came
	Frequency  float32 // subtracted once for each time they came
	// PenaltyLast is how many tokens count, prompt included; 0: 64, negative: all.
	PenaltyLast int
	Seed        uint64
	Seeded      bool              // Seed is to be used; otherwise each request has its own
	Bias        map[int32]float32 // added to logits; at most 1,024
}
