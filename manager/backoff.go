package manager

import (
	"time"
)

// backoff decides when, and whether, the next driver is started. It has no
// jitter: there is one driver per function, and nobody to be in step with.
//
// Only deaths before Ready spend the budget: they say that drivers do not start
// here. A driver that has been ready may have died of what a tenant did, and no
// tenant may take the device from the others for good; such deaths only slow the
// respawn down, to MaxDelay at most.
//
// The delay counts from the start of a driver that has been ready: one that has lived
// longer is replaced at once, and one driver in a MaxDelay is the most that deaths in a
// row can cause.
type backoff struct {
	policy  RespawnPolicy
	deaths  []time.Time // within the window, oldest first
	unready []time.Time // those of them before Ready
}

// died records a death of a driver that lived for so long, and returns how long to wait
// before the next one, or false when the budget is spent.
func (b *backoff) died(now time.Time, lived time.Duration, wasReady bool) (delay time.Duration, again bool) {
	b.deaths = b.within(append(b.deaths, now), now)
	if !wasReady {
		b.unready = b.within(append(b.unready, now), now)
		if len(b.unready) > b.policy.Budget {
			return 0, false
		}
	}

	delay = b.policy.FirstDelay
	for i := 1; i < len(b.deaths) && delay < b.policy.MaxDelay; i++ {
		delay *= 2
	}

	delay = min(delay, b.policy.MaxDelay)
	if wasReady {
		delay = max(delay-lived, 0)
	}

	return delay, true
}

// maxDeaths is how many deaths are remembered: enough to double any delay to the
// most there is. The budget may be more.
const maxDeaths = 64

func (b *backoff) within(deaths []time.Time, now time.Time) []time.Time {
	for len(deaths) > max(maxDeaths, b.policy.Budget+1) || len(deaths) > 0 && now.Sub(deaths[0]) > b.policy.Window {
		deaths = deaths[1:]
	}
	return deaths
}
