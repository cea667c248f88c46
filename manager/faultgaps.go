package manager

import (
	"math"
	"sync"
	"time"

	"capgpu/iommu/faultlog"
)

// The kernel prints so many faults in a while of this length, at least, before it
// leaves any out: DMAR's limit, which is of all functions together (see faultlog).
// AMD-Vi's is wider, and is taken for the same.
const (
	reportBurst    = 3
	reportInterval = 5 * time.Second
)

// maxRecentReports bounds what is remembered of one interval.
const maxRecentReports = 64

// faultGaps tells when reports of a function's faults may have been left out, so that
// none of them proves nothing. That is
//
//   - where the log was overwritten before it was read: until then, for every function;
//   - where the kernel's limit was reached: until it prints again, for the functions
//     that had a part in that. What the others do then is not reported either, but
//     it is not theirs to pay for: who strays would fail everybody's work. A report
//     that fits several functions is, by itself, of none of them.
type faultGaps struct {
	addresses []string // of the functions, in the order of devices

	mu sync.Mutex
	// +checklocks:mu
	recent []faultlog.Fault // what was printed within reportInterval of the last one
	// +checklocks:mu
	last time.Time // when the last of them was read
	// +checklocks:mu
	until []time.Time // by function: there may be a gap before this
}

func (m *Manager) newFaultGaps() *faultGaps {
	g := &faultGaps{until: make([]time.Time, len(m.devices))}
	for _, d := range m.devices {
		g.addresses = append(g.addresses, d.function.Identity().PCIAddress)
	}
	return g
}

// take is told of all that is read, when it is.
func (g *faultGaps) take(f faultlog.Fault, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case f.Lost == 0:
	case f.Overrun || len(g.recent) == 0: // of whichever
		for i := range g.until {
			g.extendLocked(i, now)
		}
	default: // suppressed, since the last ones that were printed
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
		// The limit's interval began with the first of these at the latest.
		g.gapLocked(now.Add(reportInterval - since(g.recent[n-reportBurst], f)))
	}
}

// since is how long before b a was printed.
func since(a, b faultlog.Fault) time.Duration {
	return time.Duration(b.Micros-min(a.Micros, b.Micros)) * time.Microsecond
}

// gapLocked: until then, reports of those who were reported last are left out.
//
// +checklocks:g.mu
func (g *faultGaps) gapLocked(until time.Time) {
	for _, f := range g.recent {
		if i, ok := g.functionOf(f); ok {
			g.extendLocked(i, until)
		}
	}
}

// functionOf is the one function that a fault fits.
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

// complete is for how long by now no report of the function can have been left out.
func (g *faultGaps) complete(index int, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.until[index].IsZero() {
		return math.MaxInt64
	}
	return max(0, now.Sub(g.until[index]))
}
