package main

import (
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// side is something to measure: it does its work n times and returns the time.
type side func(n int) time.Duration

const slice = 8 * time.Millisecond

// here measures a function in this thread, by its processor time.
func here(f func()) side {
	return func(n int) time.Duration {
		start := processorTime()
		for range n {
			f()
		}
		return processorTime() - start
	}
}

func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}

// repeats is the number of times that a side does its work in a slice.
func (s side) repeats() int {
	s(1)
	n := 1
	for {
		took := s(n)
		if took >= slice/2 {
			return max(1, int(float64(n)*float64(slice)/float64(took)))
		}
		n *= 2
	}
}

// alternate measures sides in turn, for this many rounds, and returns the time of
// one repeat, in nanoseconds: [round][side].
func alternate(rounds int, sides ...side) [][]float64 {
	n := make([]int, len(sides))
	for i, s := range sides {
		n[i] = s.repeats()
	}
	runtime.GC()
	times := make([][]float64, rounds)
	for round := range times {
		times[round] = make([]float64, len(sides))
		for i := range sides {
			i = (i + round) % len(sides) // nobody always comes first
			times[round][i] = float64(sides[i](n[i]).Nanoseconds()) / float64(n[i])
		}
	}
	return times
}

// spread is the median and the 10th and 90th percentile of a figure of the rounds.
func spread(times [][]float64, of func(t []float64) float64) (median, low, high float64) {
	var all []float64
	for _, t := range times {
		all = append(all, of(t))
	}
	slices.Sort(all)
	n := len(all)
	return all[n/2], all[n/10], all[n-1-n/10]
}

// figure makes a Figure of the rounds.
func figure(name, unit string, times [][]float64, of func(t []float64) float64) *Figure {
	f := &Figure{Name: name, Unit: unit}
	f.Value, f.Low, f.High = spread(times, of)
	return f
}

// pin keeps this thread, and the children that it starts, on one processor. If that
// is not allowed, it does nothing.
func pin() {
	var have, one unix.CPUSet
	if unix.SchedGetaffinity(0, &have) != nil {
		return
	}
	for cpu := len(have)*64 - 1; cpu >= 0; cpu-- { // the last: the first has the interrupts
		if have.IsSet(cpu) {
			one.Set(cpu)
			_ = unix.SchedSetaffinity(0, &one)
			return
		}
	}
}
