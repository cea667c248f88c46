package dma

import (
	"time"

	"capgpu/ddf"
)

// account is the log's content about a key.
type account struct {
	first           uint64 // index of its first record
	last            time.Time
	started, ended  bool
	manager, kernel side
	kept            map[Span]int
	closed          []Span // by the kernel, when the function was closed
	closedSums      Sum    // without those
	mismatches      uint64
	faults          uint64
}

// side is the content of one source.
type side struct {
	maps, unmaps       map[Span]entry // without the sums
	mapSums, unmapSums Sum            // without the spans
}

// mapped reports whether a source says anything.
func (a *account) mapped() bool {
	return a.manager.any() || a.kernel.any() || len(a.kept) > 0 || len(a.closed) > 0
}

func (s *side) any() bool {
	return len(s.maps)+len(s.unmaps) > 0 || s.mapSums.Count+s.unmapSums.Count > 0
}

func (a *account) take(rec *ddf.AuditRecord, d detail) error {
	switch rec.Kind {
	case "driver.start":
		a.started = true
	case "driver.end":
		a.ended = true
	case KindMismatch:
		a.mismatches++
	case KindFault:
		a.faults++
	case KindFaults:
		n, err := d.number("faults")
		a.faults += n
		return err
	case KindMap, KindUnmap, KindUndone, KindKept:
		s, err := d.span()
		if err != nil {
			return err
		}
		switch rec.Kind {
		case KindMap:
			add(&a.manager.maps, s, rec.Time)
		case KindUnmap:
			add(&a.manager.unmaps, s, rec.Time)
		case KindUndone:
			add(&a.manager.maps, s, rec.Time)
			add(&a.manager.unmaps, s, rec.Time)
		case KindKept:
			a.kept[s]++
		}
	case KindSummary:
		maps, unmaps, err := d.totals()
		if err != nil {
			return err
		}
		a.manager.mapSums, a.manager.unmapSums = a.manager.mapSums.Plus(maps), a.manager.unmapSums.Plus(unmaps)
	case KindKernel:
		k, err := parseKernel(d)
		if err != nil {
			return err
		}
		for _, s := range k.Map {
			add(&a.kernel.maps, s, rec.Time)
		}
		for _, s := range k.Unmap {
			add(&a.kernel.unmaps, s, rec.Time)
		}
		a.closed, a.closedSums = append(a.closed, k.Close...), a.closedSums.Plus(k.Closes)
		a.kernel.mapSums, a.kernel.unmapSums = a.kernel.mapSums.Plus(k.Maps), a.kernel.unmapSums.Plus(k.Unmaps)
	}

	return nil
}

// releaseKept passes over unmaps of kept memory: the manager tried, and relies on
// nothing that came of it.
func (a *account) releaseKept() {
	for s := range a.kept {
		if e, ok := a.kernel.unmaps[s]; ok && e.count > a.manager.unmaps[s].count {
			e.count--
			a.kernel.unmaps[s] = e
		}
	}
}
