package manager

import (
	"sync"
	"time"
)

// bucket is a token bucket: it allows a burst of events, and then one per interval.
type bucket struct {
	full     time.Duration // burst times interval
	interval time.Duration
	credit   time.Duration
	since    time.Time // time of the last update of credit
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

// wait returns the time until the next event is allowed.
func (b *bucket) wait(now time.Time) time.Duration {
	b.credit = min(b.credit+now.Sub(b.since), b.full)
	b.since = now
	return max(0, b.interval-b.credit)
}

// rateLimiter bounds how often an event is recorded, and counts the events that it
// suppresses.
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

// allow reports whether this event is recorded, and how many before it were suppressed.
func (l *rateLimiter) allow(now time.Time) (before uint64, recorded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.bucket.allow(now) {
		l.suppressed++
		return 0, false
	}
	before, l.suppressed = l.suppressed, 0
	return before, true
}

// wait returns the time until the next event is recorded.
func (l *rateLimiter) wait(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bucket.wait(now)
}

// takeSuppressed returns how many events were suppressed since the last one that was
// recorded.
func (l *rateLimiter) takeSuppressed() (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, l.suppressed = l.suppressed, 0
	return n
}
