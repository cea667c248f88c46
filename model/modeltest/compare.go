package modeltest

import (
	"math"

	"capgpu/model/tokenizer"
)

// Argmax is the index of the largest value, the first of equals.
func Argmax[T ~float32 | ~float64](x []T) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// MaxDiff is the largest distance between two rows, and its index. Rows of
// different length, and NaN, are infinitely far apart.
func MaxDiff[A, B ~float32 | ~float64](got []A, want []B) (diff float64, at int) {
	if len(got) != len(want) {
		return math.Inf(1), min(len(got), len(want))
	}
	for i := range got {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			return math.Inf(1), i
		}
		if d > diff {
			diff, at = d, i
		}
	}
	return diff, at
}

// Greedy continues a prompt up to this many positions in all, as llama2.c counts
// steps: the prompt's tokens after the first count too. It returns the tokens after
// the first and, except for the prompt's, the logits of which each was the largest.
// It ends early before a second beginning, as llama2.c does.
func (r *Reference) Greedy(prompt []int32, steps int) (tokens []int32, logits [][]float64) {
	token := prompt[0]
	for position := range steps {
		row := r.Step(token, position)
		logits = append(logits, row)
		if position+1 < len(prompt) {
			token = prompt[position+1]
		} else {
			token = Argmax(row)
		}
		if token == prompt[0] {
			break
		}
		tokens = append(tokens, token)
	}
	return tokens, logits
}

// Text is the text of tokens.
func Text(t *tokenizer.Tokenizer, tokens ...int32) string {
	d, text := t.Decoder(), ""
	for _, id := range tokens {
		text += d.Add(id)
	}
	return text + d.Flush()
}
