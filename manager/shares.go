package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/ledger"
)

// shareWindow is the time in which a share is there once.
const shareWindow = 24 * time.Hour

// auditShares divides what drivers may have recorded: a share for each tenant of
// the policy and one for the drivers themselves, each of the same size and refilled
// steadily. Whom a record is about is the driver's word (tenant=NAME, at the start
// of the detail), so that this protects tenants from each other, not from the
// driver: what one does cannot keep what another does out of the log.
type auditShares struct {
	bytes uint64 // of each

	mu sync.Mutex
	// +checklocks:mu
	by map[string]*share // by tenant; "" is the driver
}

type share struct {
	left         float64   // bytes
	since        time.Time // when left was right
	refused      uint64    // records, since the last that was taken
	refusedBytes uint64
}

func newAuditShares(bytes uint64, tenants []*Tenant) *auditShares {
	now := time.Now()
	s := &auditShares{bytes: bytes, by: map[string]*share{"": {left: float64(bytes), since: now}}}
	for _, t := range tenants {
		s.by[t.Name] = &share{left: float64(bytes), since: now}
	}
	return s
}

// holderLocked is whose share a record of this detail is of.
//
// +checklocks:s.mu
func (s *auditShares) holderLocked(detail string) (string, *share) {
	first, _, _ := strings.Cut(detail, " ")
	if name, ok := strings.CutPrefix(first, "tenant="); ok && s.by[name] != nil {
		return name, s.by[name]
	}
	return "", s.by[""]
}

// spend takes a record from its share, or refuses it. gap tells of those that were
// refused before one that is taken.
func (s *auditShares) spend(detail string, bytes uint64) (gap string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, h := s.holderLocked(detail)
	now := time.Now()
	h.left = min(float64(s.bytes), h.left+float64(s.bytes)*float64(now.Sub(h.since))/float64(shareWindow))
	h.since = now
	if h.left < float64(bytes) {
		h.refused++
		h.refusedBytes += bytes
		return "", gpuerr.Refused(ledger.AuditBytes.String(), bytes, uint64(h.left))
	}
	h.left -= float64(bytes)
	return h.gap(name), nil
}

func (h *share) gap(name string) string {
	if h.refused == 0 {
		return ""
	}
	text := fmt.Sprintf("records=%d bytes=%d", h.refused, h.refusedBytes)
	if name != "" {
		text = "tenant=" + name + " " + text
	}
	h.refused, h.refusedBytes = 0, 0
	return text
}

// gaps tells of everything that was refused and not told yet.
func (s *auditShares) gaps() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.by)) {
		if gap := s.by[name].gap(name); gap != "" {
			all = append(all, gap)
		}
	}
	return all
}

// recordGap records that records are missing.
func (g *grants) recordGap(gap string) {
	if _, err := g.audit.Append("audit.refused", "", g.tag()+" "+gap); err != nil {
		g.log.Warn("records of the driver are missing, which no record tells of", "gap", gap, "err", err)
	}
}
