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

func (b *bucket) allow(now time.Time) bool {
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
type rateLimiter struct {
	mu sync.Mutex
	// +checklocks:mu
	bucket bucket
	// +checklocks:mu
	suppressed uint64
}

func newRateLimiter(burst int, interval time.Duration, now time.Time) *rateLimiter {
	return &rateLimiter{bucket: newBucket(burst, interval, now)}
}

// allow reports whether this one is written down, and how many before it were not.
func (p *rateLimiter) allow(now time.Time) (before uint64, recorded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.bucket.allow(now) {
		p.suppressed++
		return 0, false
	}
	before, p.suppressed = p.suppressed, 0
	return before, true
}

// wait is how long it takes until one more would be written down.
func (p *rateLimiter) wait(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bucket.wait(now)
}

// takeSuppressed is how many were not written down since the last one that was.
func (p *rateLimiter) takeSuppressed() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, p.suppressed = p.suppressed, 0
	return n
}
