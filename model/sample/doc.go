// Package sample chooses the next token from logits.
//
// The steps, in this order, each on the result of the one before:
//
//	logits ─► bias ─► repetition, presence, frequency ─► temperature ─► top-k ─► top-p ─► min-p ─► draw
//
// Temperature comes before top-p and min-p, so both cut the distribution that is drawn
// from. Probabilities for top-p are those among the top-k. Equal logits rank by token
// number, the lowest first; so the cuts always leave the first tokens of one order, and
// are found by selection, without sorting the vocabulary.
//
// Log-probabilities are those of the model: log-softmax of the unchanged logits,
// before all of the above.
//
// A logit that is NaN is never chosen. Infinite ones count as the largest finite
// number, or as impossible. Logits may be in memory that a device writes, so they
// are read once.
//
// One seed gives one text: a draw takes one number from a PCG that the seed
// initialises.
package sample
