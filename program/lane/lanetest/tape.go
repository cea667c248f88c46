package lanetest

import (
	"math/rand/v2"
	"slices"
)

// Tape is a sequence of choices. It begins with Choices; later ones are drawn from
// a generator, or are 0 if there is none. The same tape makes the same case.
type Tape struct {
	Choices []uint32
	rng     *rand.Rand
	at      int
}

// NewTape is a tape of choices drawn with a seed.
func NewTape(seed uint64) *Tape { return &Tape{rng: rand.New(rand.NewPCG(seed, 7))} }

// Replay is a tape of the choices that were taken from this one, and then of 0.
func (t *Tape) Replay() *Tape {
	return &Tape{Choices: slices.Clone(t.Choices[:min(t.at, len(t.Choices))])}
}

// n is a choice of 0 to below-1. 0 is the simplest.
func (t *Tape) n(below int) int {
	if t.at == len(t.Choices) {
		c := uint32(0)
		if t.rng != nil {
			c = t.rng.Uint32()
		}
		if t.at == 1<<20 {
			return 0
		}
		t.Choices = append(t.Choices, c)
	}
	c := t.Choices[t.at]
	t.at++
	return int(c % uint32(below))
}

// Shrink looks for a shorter tape that still fails: it removes choices, and makes
// them 0. tries bounds the attempts.
func Shrink(t *Tape, tries int, fails func(*Tape) bool) *Tape {
	best := t.Replay()
	try := func(choices []uint32) bool {
		if tries--; tries < 0 {
			return false
		}
		c := &Tape{Choices: choices}
		if !fails(c) {
			return false
		}
		best = c.Replay()
		return true
	}

	for low, high := 0, len(best.Choices); low < high; { // its end
		mid := (low + high) / 2
		if try(slices.Clone(best.Choices[:mid])) {
			high = mid
		} else {
			low = mid + 1
		}
	}

	for at := range min(24, len(best.Choices)) { // the kind of the launch, and the types
		for _, simple := range []uint32{0, 1} {
			blank := slices.Clone(best.Choices)
			if at < len(blank) && blank[at] > simple {
				if blank[at] = simple; try(blank) {
					break
				}
			}
		}
	}

	for size := len(best.Choices) / 8; size > 0 && tries > 0; {
		better := false
		for at := 0; at < len(best.Choices) && tries > 0; {
			end := min(at+size, len(best.Choices))
			cut := slices.Delete(slices.Clone(best.Choices), at, end)
			blank := slices.Clone(best.Choices)
			clear(blank[at:end])
			if !slices.Equal(blank, best.Choices) && try(blank) {
				better = true
			} else if try(cut) {
				better = true
				continue
			}
			at += size
		}

		if !better || size > 8 {
			size /= 2
		}
	}

	return best
}
