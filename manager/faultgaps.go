package manager

import (
	"math"
	"sync"
	"time"

	"capgpu/iommu/faultlog"
)

// Before the kernel leaves faults out, it prints at least reportBurst of them in each
// reportInterval: DMAR's limit for all functions together (see faultlog). AMD-Vi's limit is
// wider; the same one is assumed.
const (
	reportBurst    = 3
	reportInterval = 5 * time.Second
)

// maxRecentReports bounds the reports of one interval that are remembered.
const maxRecentReports = 64

// faultGaps knows when reports of a function's faults may be missing, so that the absence of
// a report proves nothing. Reports may be missing
//
//   - where the log was overwritten before it was read: until then, for every function;
//   - where the kernel's limit was reached: until it prints again, for the functions that
//     had a part in that. Faults of other functions are not reported then either, but
//     these do not count: otherwise one straying device would fail the work of all. A
//     report that fits several functions counts for none of them.
type faultGaps struct {
	addresses []string // of the functions, in the order of devices

	mu sync.Mutex
	// +checklocks:mu
	recent []faultlog.Fault // printed within reportInterval of the last one
	// +checklocks:mu
	last time.Time // when the last of them was read
	// +checklocks:mu
	until []time.Time // by function: reports may be missing before this time
}

func (m *Manager) newFaultGaps() *faultGaps {
	g := &faultGaps{until: make([]time.Time, len(m.devices))}
	for _, d := range m.devices {
		g.addresses = append(g.addresses, d.function.Identity().PCIAddress)
	}
	return g
}

// take is called with every report, at the time of its reading.
func (g *faultGaps) take(f faultlog.Fault, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case f.Lost == 0:
	case f.Overrun || len(g.recent) == 0: // of any function
		for i := range g.until {
			g.extendLocked(i, now)
		}
	default: // suppressed since the last ones that were printed
		end := g.last.Add(reportInterval)
		if now.Before(end) {
			end = now
		}
		g.gapLocked(end)
	}

	if f.Address == "" {
		return
	}

	for len(g.recent) > 0 && (len(g.recent) == maxRecentReports || since(g.recent[0], f) > reportInterval) {
		g.recent = g.recent[1:]
	}

	g.recent, g.last = append(g.recent, f), now
	if n := len(g.recent); n >= reportBurst {
		// The limit's interval began at the first of these at the latest.
		g.gapLocked(now.Add(reportInterval - since(g.recent[n-reportBurst], f)))
	}
}

// since returns how long before b a was printed.
func since(a, b faultlog.Fault) time.Duration {
	return time.Duration(b.Micros-min(a.Micros, b.Micros)) * time.Microsecond
}

// gapLocked marks the functions that were reported last: reports of theirs may be missing
// until then.
//
// +checklocks:g.mu
func (g *faultGaps) gapLocked(until time.Time) {
	for _, f := range g.recent {
		if i, ok := g.functionOf(f); ok {
			g.extendLocked(i, until)
		}
	}
}

// functionOf returns the only function that a fault fits.
func (g *faultGaps) functionOf(f faultlog.Fault) (index int, ok bool) {
	for i, address := range g.addresses {
		if f.Matches(address) {
			if ok {
				return 0, false
			}
			index, ok = i, true
		}
	}
	return index, ok
}

// +checklocks:g.mu
func (g *faultGaps) extendLocked(i int, until time.Time) {
	if g.until[i].Before(until) {
		g.until[i] = until
	}
}

// complete returns for how long up to now no report of the function can be missing.
func (g *faultGaps) complete(index int, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until[index].IsZero() {
		return math.MaxInt64
	}
	return max(0, now.Sub(g.until[index]))
}
