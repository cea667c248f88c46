package manager

import (
	"time"
)

// backoff decides whether and when the next driver is started. It has no jitter: each
// function has one driver, and several do not restart in step.
//
// Only deaths before Ready count against the budget: they show that drivers do not start on
// this host. A driver that was ready may have died of a tenant's work, and no tenant may take
// the device from the others for good. Such deaths only delay the next driver, by at most
// MaxDelay.
//
// For a driver that was ready, the delay counts from its start: one that lived longer than
// the delay is replaced at once. Deaths in a row start at most one driver per MaxDelay.
type backoff struct {
	policy  RespawnPolicy
	deaths  []time.Time // within the window, oldest first
	unready []time.Time // those of them before Ready
}

// died records the death of a driver that lived for so long. It returns the delay before the
// next driver, or false if the budget is spent.
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

// maxDeaths is how many deaths are remembered: enough to double any delay up to MaxDelay. The
// budget may be larger.
const maxDeaths = 64

func (b *backoff) within(deaths []time.Time, now time.Time) []time.Time {
	for len(deaths) > max(maxDeaths, b.policy.Budget+1) || len(deaths) > 0 && now.Sub(deaths[0]) > b.policy.Window {
		deaths = deaths[1:]
	}
	return deaths
}
