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
	// shareWindow is the time in which a share is refilled once.
	shareWindow = 24 * time.Hour
	// omittedEvery is how often the log counts the records that a share had no room for.
	omittedEvery = 10 * time.Second
	// maxOmittedKinds is how many kinds one such record names; a driver may invent them.
	maxOmittedKinds = 12
	otherKinds      = "other"
)

// A kind of record that costs its client nothing has, for each tenant, a burst and then one
// record per interval. Further ones are counted.
const (
	refusedBurst    = 32
	refusedInterval = 5 * time.Second
)

// auditShares divides the room for records of one source: of the drivers of a device with the
// manager's records about it, or of the gates of a tenant. Each tenant and the source itself
// have a share of the same size, refilled steadily. A record without room in its share is
// omitted and counted:
//
//	room ──none──► "audit.omitting" ──► counted ──omittedEvery──► "audit.omitted" ──► room?
//
// Both records are in the log that the omitted ones were for. So the log says where records
// begin to be missing, even if the manager is killed before it has counted them. While
// audit.omitting cannot be written, records are not omitted but refused.
//
// A driver itself names the tenant of its records, so its shares protect tenants from each
// other and from other devices' drivers, not from their own device's driver.
type auditShares struct {
	name  string    // of the source: the first word of its own records
	bytes uint64    // of each share, in shareWindow
	own   AuditLog  // of records about no tenant
	logOf logOfFunc // nil: no tenant has one
	log   *slog.Logger

	mu sync.Mutex
	// +checklocks:mu
	by map[string]*share // by tenant; "" is the source's own
	// +checklocks:mu
	closed bool

	telling sync.WaitGroup // timers that are set or run
}

// logOfFunc returns the log of a served tenant, or nil.
type logOfFunc func(tenant string) AuditLog

// share is the share of one tenant. Its lock is held across the append of audit.omitting, so
// that no record is missing before that one.
type share struct {
	tenant string

	mu sync.Mutex
	// +checklocks:mu
	left float64 // bytes
	// +checklocks:mu
	since time.Time // time of the last update of left
	// +checklocks:mu
	refusals bucket // limits kinds that cost the client nothing
	// +checklocks:mu
	begun bool // the log has audit.omitting
	// +checklocks:mu
	timer *time.Timer // of the next audit.omitted; nil: none is due
	// +checklocks:mu
	records, bytes uint64 // omitted, and not counted in a record yet
	// +checklocks:mu
	kinds map[string]uint64 // the same, by kind
}

func newAuditShares(name string, bytes uint64, own AuditLog, logOf logOfFunc, log *slog.Logger) *auditShares {
	return &auditShares{name: name, bytes: bytes, own: own, logOf: logOf, log: log, by: map[string]*share{}}
}

// tenantOf returns the tenant of a driver's record, if the first word of its detail names one
// that is served.
func (s *auditShares) tenantOf(detail string) string {
	first, _, _ := strings.Cut(detail, " ")
	name, ok := strings.CutPrefix(first, "tenant=")
	if !ok || s.logOf == nil || s.logOf(name) == nil {
		return ""
	}
	return name
}

// of returns the share of a tenant, and its current log.
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

// append writes a writer's record about a tenant ("" for the source itself) if there is room.
// It returns an omitted, which is gpuerr.Quota, if the record was omitted and counted, and
// the log's error if it cannot be written.
func (s *auditShares) append(tenant, writer, kind, detail string) (uint64, error) {
	return s.put(tenant, writer, kind, detail, false)
}

// appendPaced is append for an act that costs the client nothing.
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

// take charges a record to its share, or omits it.
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

// kindLocked returns the name under which a kind is counted.
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

// armLocked starts the timer of the next audit.omitted, or writes it at once if the source is
// closed.
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

// tellLocked records the omitted ones. It returns false if the log accepts no record: the
// next omitted record then needs an audit.omitting again, and is refused until that is
// written.
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
	_, log := s.of(h.tenant) // a removed tenant has no log
	_, err := log.Append("audit.omitted", h.tenant, fmt.Sprintf("%s records=%d bytes=%d kinds=%q", s.name, h.records, h.bytes, strings.Join(kinds, " ")))
	if err != nil {
		return false
	}

	h.records, h.bytes = 0, 0
	clear(h.kinds)
	return true
}

// close records the omitted ones. It is valid on nil.
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

// omitted is the error for a record that was omitted and counted.
type omitted struct{ error }

// Unwrap returns the error for errors.Is.
func (o omitted) Unwrap() error { return o.error }

// counted returns nil for a record that was omitted and counted, or else err.
func counted(err error) error {
	if errors.As(err, new(omitted)) {
		return nil
	}
	return err
}
