package manager

import (
	"sync"
	"time"
)

// bucket lets a burst of something through, and then one per interval.
type bucket struct {
	full     time.Duration // burst times interval
	interval time.Duration
	credit   time.Duration
	since    time.Time // when credit was right
}

func newBucket(burst int, interval time.Duration, now time.Time) bucket {
	full := time.Duration(burst) * interval
	return bucket{full: full, interval: interval, credit: full, since: now}
}

func (b *bucket) enter(now time.Time) bool {
	if b.wait(now) > 0 {
		return false
	}
	b.credit -= b.interval
	return true
}

// wait is how long it takes until one more would be let through.
func (b *bucket) wait(now time.Time) time.Duration {
	b.credit = min(b.credit+now.Sub(b.since), b.full)
	b.since = now
	return max(0, b.interval-b.credit)
}

// pace bounds how often something is written down, by a bucket. What is beyond that
// is counted.
type pace struct {
	mu sync.Mutex
	// +checklocks:mu
	bucket bucket
	// +checklocks:mu
	unrecorded uint64
}

func newPace(burst int, interval time.Duration, now time.Time) *pace {
	return &pace{bucket: newBucket(burst, interval, now)}
}

// enter reports whether this one is written down, and how many before it were not.
func (p *pace) enter(now time.Time) (before uint64, recorded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.bucket.enter(now) {
		p.unrecorded++
		return 0, false
	}
	before, p.unrecorded = p.unrecorded, 0
	return before, true
}

// wait is how long it takes until one more would be written down.
func (p *pace) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bucket.wait(now)
}

// rest is how many were not written down since the last one that was.
func (p *pace) rest() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, p.unrecorded = p.unrecorded, 0
	return n
}
