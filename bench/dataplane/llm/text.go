package llm

import (
	"fmt"
	"math"
)

// Passes is a model that runs one pass at a time, with logits that the host reads:
// Served and InProcess.
type Passes interface {
	// Step is one pass; rows of one sequence ascend.
	Step(rows []Row) error
	Logits(i int) []float32
}

// Sampled fills out with the tokens after a token, as a host does that chooses each
// token itself from the logits: here, the most likely one.
func Sampled(m Passes, token int32, out []int32) error {
	rows := make([]Row, 1)
	for at := range out {
		rows[0] = Row{Position: at, Token: token, Logits: true}
		if err := m.Step(rows); err != nil {
			return err
		}
		token = Largest(m.Logits(0))
		out[at] = token
	}
	return nil
}

// Crowd does the same for several sequences together, one for each text of out,
// each beginning with another token, from first on. All texts have one length.
func Crowd(m Passes, first int32, out [][]int32) error {
	rows := make([]Row, len(out))
	for at := range out[0] {
		for i := range rows {
			token := first + int32(i)
			if at > 0 {
				token = out[i][at-1]
			}
			rows[i] = Row{Sequence: i, Position: at, Token: token, Logits: true}
		}
		if err := m.Step(rows); err != nil {
			return err
		}
		for i := range out {
			out[i][at] = Largest(m.Logits(i))
		}
	}

	return nil
}

// Prompt takes a whole prompt in one pass and returns the next token.
func Prompt(m Passes, prompt []int32) (next int32, err error) {
	rows := make([]Row, len(prompt))
	for at, token := range prompt {
		rows[at] = Row{Position: at, Token: token, Logits: at == len(prompt)-1}
	}
	if err := m.Step(rows); err != nil {
		return 0, err
	}
	return Largest(m.Logits(0)), nil
}

// Agreed follows a text after a token and counts where the most likely token is the
// text's. Two models that round differently diverge at the first near tie, after
// which comparing their texts is meaningless.
func Agreed(m Passes, token int32, text []int32) (agreed int, err error) {
	for at, next := range text {
		if err := m.Step([]Row{{Position: at, Token: token, Logits: true}}); err != nil {
			return 0, err
		}
		if Largest(m.Logits(0)) == next {
			agreed++
		}
		token = next
	}
	return agreed, nil
}

// Largest is the index of the largest number, the lowest of equals, and 0 if there
// is none.
func Largest(logits []float32) int32 {
	at, most := 0, float32(math.Inf(-1))
	for i, v := range logits {
		if v > most {
			at, most = i, v
		}
	}
	return int32(at)
}

// SameBits generates a text both ways, step by step, and compares the bits of all
// logits.
func SameBits(a, b Passes, token int32, steps int) error {
	for at := range steps {
		row := []Row{{Position: at, Token: token, Logits: true}}
		if err := a.Step(row); err != nil {
			return err
		}
		if err := b.Step(row); err != nil {
			return err
		}

		left, right := a.Logits(0), b.Logits(0)
		if len(left) != len(right) {
			return fmt.Errorf("position %d: %d logits, and %d", at, len(left), len(right))
		}

		for i := range left {
			if math.Float32bits(left[i]) != math.Float32bits(right[i]) {
				return fmt.Errorf("position %d: logit %d is %v, and %v", at, i, left[i], right[i])
			}
		}

		token = Largest(left)
	}
	return nil
}

// SameTokens reports where two texts first differ.
func SameTokens(a, b []int32) error {
	if n := Common(a, b); n < max(len(a), len(b)) {
		return fmt.Errorf("the texts part after %d tokens of %d and %d", n, len(a), len(b))
	}
	return nil
}

// Common is the length of two texts' common beginning.
func Common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
