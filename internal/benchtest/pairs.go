// Package benchtest compares what two ways of doing a thing cost, on a machine that
// has other things to do.
package benchtest

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Side is one of two that are compared.
type Side struct {
	// Prepare comes before Do, and takes no part in the comparison; may be nil.
	Prepare func() error
	Do      func() error
	// Timed is instead of Do, and says itself how long what counts has taken.
	Timed func() (time.Duration, error)
}

// Figure is what Compare has found.
type Figure struct {
	// Ratio of the time of ours to that of the peer: the median over pairs that ran
	// one right after the other.
	Ratio float64
	// Ours and Peer are medians. Between two runs they say little.
	Ours, Peer time.Duration
}

func (f Figure) String() string {
	return fmt.Sprintf("%.3f x the peer (%v against %v)", f.Ratio, f.Ours, f.Peer)
}

// Compare runs ours and the peer in turns, pairs times, each of them first in every
// other pair.
func Compare(pairs int, ours, peer Side) (f Figure, err error) {
	if pairs < 1 {
		return f, errors.New("nothing to measure")
	}

	ratios, first, second := make([]float64, pairs), make([]time.Duration, pairs), make([]time.Duration, pairs)
	for i := range pairs {
		both := []struct {
			side Side
			into *time.Duration
		}{{ours, &first[i]}, {peer, &second[i]}}
		if i%2 == 1 {
			slices.Reverse(both)
		}
		for _, s := range both {
			if *s.into, err = s.side.time(); err != nil {
				return f, err
			}
		}
		ratios[i] = float64(first[i]) / float64(second[i])
	}

	return Figure{median(ratios), median(first), median(second)}, nil
}

// Median runs a side on its own.
func Median(rounds int, s Side) (time.Duration, error) {
	if rounds < 1 {
		return 0, errors.New("nothing to measure")
	}
	all := make([]time.Duration, rounds)
	for i := range all {
		var err error
		if all[i], err = s.time(); err != nil {
			return 0, err
		}
	}
	return median(all), nil
}

func (s Side) time() (time.Duration, error) {
	if s.Prepare != nil {
		if err := s.Prepare(); err != nil {
			return 0, err
		}
	}
	if s.Timed != nil {
		return s.Timed()
	}
	start := time.Now()
	err := s.Do()
	return time.Since(start), err
}

func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
