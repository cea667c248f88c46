package manager

import (
	"time"
)

// backoff decides when, and whether, the next driver is started. It has no
// jitter: there is one driver per function, and nobody to be in step with.
type backoff struct {
	policy RespawnPolicy
	deaths []time.Time // within the window, oldest first
}

// died records a death and returns how long to wait before the next driver, or
// false when the budget is spent.
func (b *backoff) died(now time.Time) (delay time.Duration, again bool) {
	b.deaths = append(b.deaths, now)
	for len(b.deaths) > 0 && now.Sub(b.deaths[0]) > b.policy.Window {
		b.deaths = b.deaths[1:]
	}
	n := len(b.deaths)
	if n > b.policy.Budget {
		return 0, false
	}
	delay = b.policy.FirstDelay
	for i := 1; i < n && delay < b.policy.MaxDelay; i++ {
		delay *= 2
	}
	return min(delay, b.policy.MaxDelay), true
}
