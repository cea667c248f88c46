// Package paired compares two ways of doing the same on a machine with other work.
//
// The two sides take turns in slices of some milliseconds, each of them first in
// every other pair. A slice yields the median time of an operation, a pair the
// ratio of two such medians, and the result is the median ratio of all pairs with
// its 10th and 90th percentile. Nothing is a mean, because stalls of the host would
// dominate it.
package paired

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// Side runs one slice: for about this long it measures operations and adds the
// nanoseconds of one operation for each measurement.
type Side func(slice time.Duration, add func(nanos float64)) error

// Options set the amount of measuring.
type Options struct {
	Pairs int
	Slice time.Duration
	// Longest ends the comparison early, but never before one pair is done; 0:
	// never.
	Longest time.Duration
	// At is the place (0 to 1) of the operation that represents its slice; 0: the
	// median.
	At float64
}

// Result is the result of a comparison.
type Result struct {
	// Ratio is ours / peer: the median over the pairs; Low and High are the 10th and
	// the 90th percentile.
	Ratio, Low, High float64
	// Ours and Peer are the medians of the slices' medians, in nanoseconds of one
	// operation. They are not comparable between runs.
	Ours, Peer float64
	Pairs      int
}

// Inverse is peer / ours: how many times faster ours is.
func (r Result) Inverse() Result {
	return Result{Ratio: 1 / r.Ratio, Low: 1 / r.High, High: 1 / r.Low, Ours: r.Ours, Peer: r.Peer, Pairs: r.Pairs}
}

// Compare runs ours and the peer in turns. No garbage is collected within a pair.
func Compare(o Options, ours, peer Side) (r Result, err error) {
	if o.Pairs < 1 || o.Slice <= 0 {
		return r, errors.New("nothing to measure: ask for at least one pair, and slices longer than 0")
	}

	var ratios, first, second []float64
	sides := [2]Side{ours, peer}
	for start := time.Now(); len(ratios) < o.Pairs; {
		var medians [2]float64
		for i := range sides {
			which := (i + len(ratios)) % 2
			if medians[which], err = slice(sides[which], o); err != nil {
				return r, err
			}
		}
		first, second = append(first, medians[0]), append(second, medians[1])
		ratios = append(ratios, medians[0]/medians[1])
		if o.Longest > 0 && time.Since(start) > o.Longest {
			break
		}
	}

	q := Quantiles(ratios, 0.5, 0.1, 0.9)
	return Result{Ratio: q[0], Low: q[1], High: q[2], Ours: Median(first), Peer: Median(second), Pairs: len(ratios)}, nil
}

func slice(side Side, o Options) (stands float64, err error) {
	percent := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(percent)
	var samples []float64
	if err := side(o.Slice, func(nanos float64) { samples = append(samples, nanos) }); err != nil {
		return 0, err
	}
	if len(samples) == 0 {
		return 0, fmt.Errorf("a slice of %v has measured nothing", o.Slice)
	}
	return Quantiles(samples, cmp.Or(o.At, 0.5))[0], nil
}

const (
	// leastMeasured is the minimal duration of a measurement, so that reading the
	// clock is a small part of it.
	leastMeasured = 2 * time.Microsecond
	mostRounds    = 256
)

// Rounds is the side that repeats f, in groups long enough to be timed.
func Rounds(f func() error) Side {
	group := 1
	return func(slice time.Duration, add func(float64)) error {
		for start := time.Now(); ; {
			before := time.Now()
			for range group {
				if err := f(); err != nil {
					return err
				}
			}
			after := time.Now()
			took := after.Sub(before)
			add(float64(took) / float64(group))
			if took < leastMeasured && group < mostRounds {
				group *= 2
			}
			if after.Sub(start) >= slice {
				return nil
			}
		}
	}
}

// Batches is the side that does f, which is this many operations.
func Batches(operations int, f func() error) Side {
	return func(slice time.Duration, add func(float64)) error {
		for start := time.Now(); ; {
			before := time.Now()
			if err := f(); err != nil {
				return err
			}
			after := time.Now()
			add(float64(after.Sub(before)) / float64(operations))
			if after.Sub(start) >= slice {
				return nil
			}
		}
	}
}

// Timed is the side in which f itself reports the time that counts.
func Timed(f func() (time.Duration, error)) Side {
	return func(slice time.Duration, add func(float64)) error {
		for start := time.Now(); ; {
			took, err := f()
			if err != nil {
				return err
			}
			add(float64(took))
			if time.Since(start) >= slice {
				return nil
			}
		}
	}
}

// Per is the side in which each operation is this many of the counted ones.
func (s Side) Per(operations int) Side {
	return func(slice time.Duration, add func(float64)) error {
		return s(slice, func(nanos float64) { add(nanos / float64(operations)) })
	}
}

// Median is the middle value; of an even number the upper one.
func Median(values []float64) float64 { return Quantiles(values, 0.5)[0] }

// Quantiles returns the values at the given places (0 to 1) of their order. Without
// values it panics.
func Quantiles(values []float64, at ...float64) []float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	out := make([]float64, len(at))
	for i, q := range at {
		out[i] = sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
	}
	return out
}

// Each times every single round, for a distribution. The cost of reading the clock
// is subtracted.
func Each(rounds int, longest time.Duration, f func() error) ([]float64, error) {
	percent := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(percent)
	clock := clockNanos()
	out := make([]float64, 0, rounds)
	for start := time.Now(); len(out) < rounds; {
		before := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		after := time.Now()
		out = append(out, max(float64(after.Sub(before))-clock, 1))
		if after.Sub(start) > longest {
			break
		}
	}

	return out, nil
}

// clockNanos is the result of measuring nothing.
func clockNanos() float64 {
	var samples []float64
	for range 1000 {
		before := time.Now()
		samples = append(samples, float64(time.Since(before)))
	}
	return Median(samples)
}
