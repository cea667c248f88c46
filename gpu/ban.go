package gpu

import (
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpuerr"
)

// A strike is a hang that is the work's fault: it missed the deadline that the
// device-manager's policy sets, or did not stop when it was told to. A shorter
// deadline is the caller's own choice, and missing it says nothing; and so does one
// that was missed by work that was seen to get on. An access that the IOMMU refused
// is a strike, too.
//
// Strikes of a restricted session count against the one right below the session
// of the tenant, with all that was restricted from it. When they are too many,
// that one is banned for good, and only then its tenant has a strike: so who was
// handed one weak session can never have the tenant banned, and a tenant gains
// nothing from restricting.

// strikes are those within the window, oldest first.
type strikes struct {
	mu sync.Mutex
	// +checklocks:mu
	recent []time.Time
	// +checklocks:mu
	count uint64 // ever
}

// add reports whether there are too many now; they are forgotten then.
func (k *strikes) add(p StrikePolicy) (tooMany bool) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	for len(k.recent) > 0 && now.Sub(k.recent[0]) > p.Window {
		k.recent = k.recent[1:]
	}
	k.recent = append(k.recent, now)
	if tooMany = len(k.recent) >= p.Limit; tooMany {
		k.recent = nil
	}
	return tooMany
}

func (k *strikes) total() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// branch is a session restricted from one of the tenant's, with all below it.
type branch struct {
	session uint64
	strikes strikes
	banned  atomic.Bool
}

// strike counts a hang or a fault against a session, and bans its branch or its
// tenant after too many. more is for the record.
func (d *Device) strike(s *Session, what, more string) {
	t, p := s.tenant, d.cfg.Strikes
	s.strikes.Add(1)
	d.auditEvent("fault", t, "session=%d cause=%q%s", s.id, what, more)
	if b := s.branch; b != nil {
		if !b.strikes.add(p) || b.banned.Swap(true) {
			return
		}
		d.auditEvent("ban", t, "session=%d restricted=%d strikes=%d", s.id, b.session, p.Limit)
	}
	if t.strikes.add(p) {
		until := time.Now().Add(p.Ban)
		t.bannedUntil.Store(&until)
		d.auditEvent("ban", t, "session=%d strikes=%d for=%v", s.id, p.Limit, p.Ban)
	}
}

var errBranchBanned = gpuerr.New(gpuerr.Banned, "too many hangs; this restricted session is banned for good; ask for another")

// banned refuses a session that is banned, or whose tenant is. It costs two loads
// where there was no ban.
func (s *Session) banned() error {
	if s.branch != nil && s.branch.banned.Load() {
		return errBranchBanned
	}
	return s.tenant.banned()
}

// banned refuses a tenant that is banned.
func (t *tenant) banned() error {
	until := t.bannedUntil.Load()
	if until == nil {
		return nil
	}
	left := time.Until(*until)
	if left <= 0 {
		t.bannedUntil.CompareAndSwap(until, nil)
		return nil
	}
	// Rounded up: who waits for that long is not refused again.
	const tenth = 100 * time.Millisecond
	return gpuerr.New(gpuerr.Banned, "too many hangs; banned for another %v", (left + tenth - 1).Truncate(tenth))
}
