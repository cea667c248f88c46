package manager

import (
	"context"
	"fmt"
	"time"
)

// stormInterval is how often interrupts are counted.
const stormInterval = time.Second

// stormWatch compares each vector's interrupts with the limit.
type stormWatch struct {
	limit  uint64 // of one vector in a second
	counts []uint64
	since  time.Time
}

func newStormWatch(limit uint64, counts []uint64, now time.Time) *stormWatch {
	return &stormWatch{limit: limit, counts: counts, since: now}
}

// sample is called periodically with the counts. storm reports that a vector has exceeded its
// limit since the last call; rate is its interrupts per second.
func (w *stormWatch) sample(counts []uint64, now time.Time) (vector int, rate uint64, storm bool) {
	elapsed := now.Sub(w.since)
	if elapsed <= 0 {
		return 0, 0, false
	}
	for i, n := range counts {
		if i >= len(w.counts) || n < w.counts[i] {
			continue // the count began anew
		}
		if r := uint64(float64(n-w.counts[i]) / elapsed.Seconds()); r > w.limit && r > rate {
			vector, rate, storm = i, r, true
		}
	}
	w.counts, w.since = counts, now
	return vector, rate, storm
}

// runStormWatch masks a vector that storms and ends the epoch: such a device serves no
// client, and keeps a CPU from all other work.
func (d *device) runStormWatch(ctx context.Context, epoch uint64, failure *epochFailure) {
	counts := d.function.Interrupts()
	if counts == nil {
		return
	}

	w := newStormWatch(d.policy.InterruptLimit, counts, time.Now())
	ticker := time.NewTicker(stormInterval)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			if vector, rate, storm := w.sample(d.function.Interrupts(), now); storm {
				d.endStorm(epoch, vector, rate, failure)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (d *device) endStorm(epoch uint64, vector int, rate uint64, failure *epochFailure) {
	err := d.function.SetMask(vector, true)
	if err != nil {
		d.log.Warn("mask a vector that storms", "vector", vector, "err", err)
	}
	d.record("interrupt.storm", fmt.Sprintf("%s epoch=%d vector=%d perSecond=%d limit=%d masked=%t", d.name, epoch, vector, rate, d.policy.InterruptLimit, err == nil))
	failure.report(fmt.Errorf("interrupt storm: vector %d raised %d interrupts in a second, and %d are allowed (interruptLimit)", vector, rate, d.policy.InterruptLimit))
}
