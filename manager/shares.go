package manager

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"capgpu/audit"
	"capgpu/gpuerr"
	"capgpu/ledger"
)

const (
	// shareWindow is the time in which a share is there once.
	shareWindow = 24 * time.Hour
	// omittedEvery is how often the log tells what a share had no room for.
	omittedEvery = 10 * time.Second
	// maxOmittedKinds is how many kinds one such record names; a driver may invent them.
	maxOmittedKinds = 12
	otherKinds      = "other"
)

// A kind that a client causes for nothing has this many records of a tenant in a row,
// and then one in each interval. What is beyond that is counted, too.
const (
	refusedBurst    = 32
	refusedInterval = 5 * time.Second
)

// auditShares divides what one source may have recorded, the drivers of a device and the
// manager about that device, or the gates of a tenant: a share for each tenant and one
// for the source itself, of the same size, refilled steadily. A record that its share has
// no room for is left out and counted:
//
//	room ──none──► "audit.omitting" ──► counted ──omittedEvery──► "audit.omitted" ──► room?
//
// Both records are in the log that the left out ones were for. So the log says when
// something begins to be missing from it, also when the manager is killed before it has
// said how much. While that cannot be written, nothing is left out either: it is refused.
//
// A driver names the tenant of its records itself, so its shares protect tenants from
// each other and from other devices' drivers, not from their own device's driver.
type auditShares struct {
	name  string    // of the source: the first word of what it says itself
	bytes uint64    // of each share, in shareWindow
	own   AuditLog  // of records about no tenant
	logOf logOfFunc // nil: no tenant has one
	log   *slog.Logger

	mu sync.Mutex
	// +checklocks:mu
	by map[string]*share // by tenant; "" is the source
	// +checklocks:mu
	closed bool

	telling sync.WaitGroup // timers that are set or run
}

// logOfFunc is the log of a tenant that is served, or nil.
type logOfFunc func(tenant string) AuditLog

// share is one tenant's. Its lock is held while it writes what is missing, so that
// nothing is missing before.
type share struct {
	tenant string

	mu sync.Mutex
	// +checklocks:mu
	left float64 // bytes
	// +checklocks:mu
	since time.Time // when left was right
	// +checklocks:mu
	refusals bucket // of kinds that are paced
	// +checklocks:mu
	begun bool // the log says that something is missing from here on
	// +checklocks:mu
	timer *time.Timer // of the next audit.omitted; nil: none is due
	// +checklocks:mu
	records, bytes uint64 // left out, and not told of
	// +checklocks:mu
	kinds map[string]uint64 // the same, by kind
}

func newAuditShares(name string, bytes uint64, own AuditLog, logOf logOfFunc, log *slog.Logger) *auditShares {
	return &auditShares{name: name, bytes: bytes, own: own, logOf: logOf, log: log, by: map[string]*share{}}
}

// tenantOf is whom a driver's record is about, if the first word of its detail names a
// tenant that is served.
func (s *auditShares) tenantOf(detail string) string {
	first, _, _ := strings.Cut(detail, " ")
	name, ok := strings.CutPrefix(first, "tenant=")
	if !ok || s.logOf == nil || s.logOf(name) == nil {
		return ""
	}
	return name
}

// of is the share of a tenant, and the log that it is of now.
func (s *auditShares) of(tenant string) (*share, AuditLog) {
	log := s.own
	if tenant != "" {
		if own := s.logOf(tenant); own != nil {
			log = own
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.by[tenant]
	if h == nil {
		now := time.Now()
		h = &share{tenant: tenant, left: float64(s.bytes), since: now, refusals: newBucket(refusedBurst, refusedInterval, now), kinds: map[string]uint64{}}
		s.by[tenant] = h
	}

	return h, log
}

// append records what a writer says about a tenant ("" for the source itself) as far as
// there is room. It answers an omitted, which is gpuerr.Quota, when the record was left out
// and counted, and the log's error when it cannot be written.
func (s *auditShares) append(tenant, writer, kind, detail string) (uint64, error) {
	return s.put(tenant, writer, kind, detail, false)
}

// appendPaced is append for what a client causes for nothing.
func (s *auditShares) appendPaced(tenant, writer, kind, detail string) error {
	_, err := s.put(tenant, writer, kind, detail, true)
	return err
}

func (s *auditShares) put(tenant, writer, kind, detail string, paced bool) (uint64, error) {
	h, log := s.of(tenant)
	if err := s.take(h, log, kind, audit.RecordBytes(kind, writer, detail), paced); err != nil {
		return 0, err
	}
	return log.Append(kind, writer, detail)
}

// take pays for a record, or leaves it out.
func (s *auditShares) take(h *share, log AuditLog, kind string, bytes uint64, paced bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.left = min(float64(s.bytes), h.left+float64(s.bytes)*float64(now.Sub(h.since))/float64(shareWindow))
	h.since = now
	if h.left >= float64(bytes) && (!paced || h.refusals.allow(now)) {
		h.left -= float64(bytes)
		return nil
	}

	if !h.begun {
		if _, err := log.Append("audit.omitting", h.tenant, s.name); err != nil {
			return err
		}
		h.begun = true
	}

	h.records++
	h.bytes += bytes
	h.kinds[h.kindLocked(kind)]++
	s.armLocked(h)
	return omitted{gpuerr.Refused(ledger.AuditBytes.String(), bytes, uint64(h.left))}
}

// kindLocked is the name under which a kind is counted.
//
// +checklocks:h.mu
func (h *share) kindLocked(kind string) string {
	if h.kinds[kind] > 0 {
		return kind
	}
	strange := strings.ContainsFunc(kind, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.'
	})
	if strange || len(h.kinds) >= maxOmittedKinds {
		return otherKinds
	}
	return kind
}

// armLocked has the share tell in a while, or at once if the source is closed.
//
// +checklocks:h.mu
func (s *auditShares) armLocked(h *share) {
	if h.timer != nil {
		return
	}

	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.telling.Add(1)
	}
	s.mu.Unlock()
	if closed {
		s.tellLocked(h)
		return
	}

	h.timer = time.AfterFunc(omittedEvery, func() {
		defer s.telling.Done()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.timer = nil
		if !s.tellLocked(h) {
			s.armLocked(h)
		}
	})
}

// tellLocked records what was left out. It reports false if the log takes no record:
// what is left out next begins anew, and is refused while that cannot be written.
//
// +checklocks:h.mu
func (s *auditShares) tellLocked(h *share) bool {
	if h.records == 0 {
		return true
	}

	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(h.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s=%d", kind, h.kinds[kind]))
	}

	h.begun = false
	_, log := s.of(h.tenant) // a tenant that is gone has none any more
	_, err := log.Append("audit.omitted", h.tenant, fmt.Sprintf("%s records=%d bytes=%d kinds=%q", s.name, h.records, h.bytes, strings.Join(kinds, " ")))
	if err != nil {
		return false
	}

	h.records, h.bytes = 0, 0
	clear(h.kinds)
	return true
}

// close tells what was left out and not told yet. Nil closes nothing.
func (s *auditShares) close() {
	if s == nil {
		return
	}

	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.by))
	s.mu.Unlock()
	for _, h := range all {
		h.mu.Lock()
		if h.timer != nil && h.timer.Stop() {
			s.telling.Done()
			h.timer = nil
		}
		if !s.tellLocked(h) {
			s.log.Warn("records are missing from the audit log, which no record tells of", "source", s.name, "tenant", h.tenant, "records", h.records, "bytes", h.bytes)
		}
		h.mu.Unlock()
	}

	s.telling.Wait()
}

// omitted is the refusal of a record that was left out and counted.
type omitted struct{ error }

// Unwrap is for errors.Is.
func (o omitted) Unwrap() error { return o.error }

// counted is nil for a record that was left out and counted, or else err.
func counted(err error) error {
	if errors.As(err, new(omitted)) {
		return nil
	}
	return err
}
