package gpu

import (
	"sync/atomic"
	"time"

	"capgpu/gpu/strikes"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// A strike is a hang that is the work's fault: it missed the deadline that the
// device-manager's policy sets, or did not stop when it was told to. A shorter
// deadline is the caller's own choice, and missing it says nothing; and so does one
// that was missed by work that was seen to get on. An access that the IOMMU refused
// is a strike, too.
//
// Strikes of a restricted session count against the one right below the session
// of the tenant, with all that was restricted from it. When they are too many,
// that one is banned for good. As many of a tenant's restricted sessions together,
// the same or others, are one strike of the tenant: so a process that was handed one
// weak session can never have the tenant banned, and a tenant gains nothing from
// restricting anew for each hang.

// branch is a session restricted from one of the tenant's, with all below it.
type branch struct {
	session uint64
	strikes strikes.Strikes
	banned  atomic.Bool
	reason  atomic.Pointer[string] // set before banned
}

// banReasons are the words for what the last strike was, in the error of a ban.
var banReasons = map[string]string{"deadline missed": "hang", "did not stop": "notStopped", outcome.IOMMUFault.String(): "iommuFault"}

func banReason(what string) *string {
	reason, known := banReasons[what]
	if !known {
		reason = "hang"
	}
	return &reason
}

// reasonOf is what is told of a reason: a ban that another driver has told of has none.
func reasonOf(reason *atomic.Pointer[string]) string {
	if r := reason.Load(); r != nil {
		return *r
	}
	return "hang"
}

// strike counts a hang or a fault against a session, and bans its branch or its
// tenant after too many. more is for the record.
func (d *Device) strike(s *Session, what, more string) {
	t, p := s.tenant, d.cfg.Strikes
	s.strikes.Add(1)
	d.auditEvent("fault", t, "session=%d cause=%q%s", s.id, what, more)
	if b := s.branch; b != nil {
		if b.banned.Load() {
			return // it has done what it can to its tenant
		}
		if b.strikes.Add(p) {
			b.reason.CompareAndSwap(nil, banReason(what))
			if b.banned.Swap(true) {
				return
			}
			d.auditEvent("ban", t, "session=%d restricted=%d strikes=%d reason=%s", s.id, b.session, p.Limit, reasonOf(&b.reason))
		}
		if !t.restricted.Add(p) {
			return
		}
	}
	if t.strikes.Add(p) {
		until := time.Now().Add(p.Ban)
		t.banReason.Store(banReason(what))
		t.bannedUntil.Store(&until)
		d.auditEvent("ban", t, "session=%d strikes=%d for=%v reason=%s", s.id, p.Limit, p.Ban, reasonOf(&t.banReason))
	}
}

// banned refuses a session if it or its tenant is banned. It costs two loads where
// there was no ban.
func (s *Session) banned() error {
	if s.branch != nil && s.branch.banned.Load() {
		return gpuerr.New(gpuerr.Banned, "reason=%s until=forever: too many strikes; this restricted session is banned for good; ask for another", reasonOf(&s.branch.reason))
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
	// Rounded up: a client that waits until then is not refused again.
	end := until.Add(time.Second - 1).Truncate(time.Second).UTC()
	return gpuerr.New(gpuerr.Banned, "reason=%s until=%s: too many strikes; mend the program meanwhile", reasonOf(&t.banReason), end.Format(time.RFC3339))
}
