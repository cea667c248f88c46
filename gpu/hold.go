package gpu

import "time"

// Jobs that are sent end before others that are: who waits for each answer before he asks
// again would, beside one whose jobs are long, wait for one of those each time, whatever their
// shares are. For when his job ends he has none for a moment, and the device would be given
// away. (Who has short work need not wait where the device can stand still: pause.go.)
//
// So a tenant that is well ahead of its share waits for the one that has no more to do
// now, and is behind: until the device has ended what it has of that one, and then for as
// long again as that took, at most holdMost. If that one comes back meanwhile it is next.
// The other waits again each time, but for no longer than the first one's share takes: then
// it is not ahead any more. So the device idles for no longer than it works for who is
// waited for.
//
//	(a tenant has nothing more to do) ──► dry ──(next is well ahead)──► its jobs end, until ──► pump
//	                                       └──(it comes back)──► next
type hold struct {
	dry   *flow // the tenant that was the last to have nothing ready; nil: not waited for
	until time.Time
}

const (
	// holdMost is longer than a client takes to see an answer and ask anew, with some
	// wake-ups of a busy host.
	holdMost = 2 * time.Millisecond
	// holdAhead is how much device time, by weight, is well ahead: far more than what
	// tenants with short jobs differ by.
	holdAhead = int64(time.Millisecond)
)

// runsDry notes a tenant that may have nothing ready any more.
func (h *hold) runsDry(tenant *flow) {
	if tenant.index < 0 {
		h.dry, h.until = tenant, time.Time{}
	}
}

// holdsLocked reports whether the tenant that is next waits for the one that ran dry. The
// clock is read only where one may have to.
//
// +checklocks:e.mu
func (e *engine) holdsLocked() bool {
	h := &e.top.hold
	if h.dry == nil || len(e.top.flows) == 0 || h.dry.index >= 0 || e.top.flows[0].virtual-h.dry.virtual <= holdAhead {
		return false
	}
	if h.dry.sent > 0 {
		return true // who ends its job looks again
	}
	now := time.Now()
	switch {
	case h.until.IsZero():
		worked := time.Duration((h.dry.virtual - h.dry.waitedAt) * h.dry.weight)
		h.dry.waitedAt = h.dry.virtual
		h.until = now.Add(min(worked, holdMost))
		e.watching = true
		nudge(e.wake) // runDevice ends it
	case !now.Before(h.until):
		h.dry = nil
		return false
	}
	return true
}

// endHoldLocked goes on when a hold is over, and says how long it still is. Called by
// runDevice.
//
// +checklocks:e.mu
func (e *engine) endHoldLocked(now time.Time) time.Duration {
	h := &e.top.hold
	if h.dry == nil || h.until.IsZero() || e.state != engineRunning {
		return 0
	}
	if left := h.until.Sub(now); left > 0 {
		return left
	}
	e.pumpLocked()
	return 0
}
