// Package tick reads time for intervals of nanoseconds to milliseconds, at a few
// nanoseconds a reading.
//
// Where the processor has a time-stamp counter that runs at one speed whatever the
// processor does (the invariant TSC of x86-64), that is read, with RDTSC. Its speed is
// found by comparing it with the monotonic clock of the system, at the first and at a
// later use at least a few milliseconds apart. Until then, and elsewhere, time is that
// of package time.
//
// The counters of a machine's processors are taken to be equal, as they are where they
// are invariant and the firmware has left them alone. Where they are not, an interval in
// which the goroutine went from one processor to another is wrong by what they differ,
// and may be negative: a caller bounds what it is told.
package tick

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Clock is where readings come from. Only readings of the same Clock compare.
type Clock struct {
	scale uint64 // nanoseconds of 2^32 ticks; 0: package time
}

// Read is nanoseconds since some time that stays the same.
func (c Clock) Read() int64 {
	if c.scale == 0 {
		return int64(time.Since(epoch))
	}
	hi, lo := bits.Mul64(counter(), c.scale)
	return int64(hi<<32 | lo>>32)
}

var epoch = time.Now()

// scale is that of Best, once it is known. It never changes then.
var scale atomic.Uint64

// Best is the cheapest clock that there is now.
func Best() Clock {
	if s := scale.Load(); s != 0 || !usable {
		return Clock{s}
	}
	return Clock{calibration.step()}
}

// least is the time over which the counter's speed is found. A pair of readings is
// some hundred nanoseconds apart at the worst of the best, so the speed is exact to
// 0.1 per thousand.
const least = 4 * time.Millisecond

// calibrator compares the two clocks.
type calibrator struct {
	mu sync.Mutex
	// +checklocks:mu
	first pair
	// +checklocks:mu
	tries int
}

var calibration calibrator

// mostTries is how often a speed may be out of all reason before the counter is left
// alone.
const mostTries = 8

// pair is a reading of both clocks at one time.
type pair struct {
	ticks uint64
	nanos int64
}

// step gets on with it, and returns the scale if it is known.
func (c *calibrator) step() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := scale.Load(); s != 0 || c.tries >= mostTries {
		return s
	}
	now, ok := readPair()
	switch {
	case !ok:
		return 0
	case c.first == pair{}:
		c.first = now
		return 0
	case now.nanos-c.first.nanos < int64(least):
		return 0
	}
	s, ok := scaleOf(c.first, now)
	if !ok {
		c.first, c.tries = now, c.tries+1
		return 0
	}
	scale.Store(s)
	return s
}

// scaleOf is the scale by two pairs. It is not ok outside 0.1 to 10 GHz, where the
// counter is none.
func scaleOf(a, b pair) (uint64, bool) {
	ticks, nanos := b.ticks-a.ticks, uint64(b.nanos-a.nanos)
	if nanos == 0 || ticks < nanos/10 || ticks/10 > nanos {
		return 0, false
	}
	s, _ := bits.Div64(nanos>>32, nanos<<32, ticks)
	return s, true
}
