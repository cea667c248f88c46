package dma

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"capgpu/ddf"
)

// State says how far the account of an epoch goes.
type State string

const (
	Ended      State = "ended"
	Live       State = "live"       // at the end of the log
	Unfinished State = "unfinished" // the manager ended without a word: it was killed
	Partial    State = "partial"    // its beginning was rotated away
	Unwatched  State = "unwatched"  // there is no second source
)

// lag is how much later than the manager's own record the kernel's may come, and
// the other way round.
const lag = 5 * time.Second

// Row is one function in one epoch. Epoch 0 is before the first driver.
type Row struct {
	Run      int // of the manager, from 1, as far as the log goes back
	Function string
	Epoch    uint64
	State    State
	Reason   string // of Unwatched

	Maps, Unmaps             Sum // by the manager
	KernelMaps, KernelUnmaps Sum // by the kernel; for closing, too
	Kept                     int // by the manager: mapped until the function is closed

	Matched    uint64 // maps and unmaps in both sources
	Missing    uint64 // in the manager's only
	Unexpected uint64 // in the kernel's only
	Pending    uint64 // of those two, what may come yet, or was cut off
	Mismatches uint64 // that the manager found itself
	Faults     uint64 // at least
}

// Report is the comparison of a whole log.
type Report struct {
	Rows []Row
	// Lost is how many of the kernel's events, and of the manager's operations, could not be
	// compared: nothing is proven about these.
	Lost uint64
	// AuditLost is how many records the log itself says are missing.
	AuditLost bool
	// Differences are the first of those that were found, spelled out; Count is how
	// many there are.
	Differences []string
	Count       uint64
}

// Agrees reports whether both sources were there and say the same.
func (r *Report) Agrees() bool { return r.Count == 0 }

// maxDifferences bounds Report.Differences.
const maxDifferences = 20

func (r *Report) differ(format string, args ...any) {
	r.Count++
	if len(r.Differences) < maxDifferences {
		r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
	}
}

// key is a function in one epoch of one run.
type key struct {
	run      int
	function string
	epoch    uint64
}

// source is the log's content about the second source of a function.
type source struct{ reason string }

// reader collects accounts.
type reader struct {
	report   Report
	run      int
	stopped  map[int]bool // runs that ended with a word
	lastOf   map[int]time.Time
	accounts map[key]*account
	sources  map[key]source // epoch 0
	partial  map[string]key // the last account of a function that may lack its beginning
}

// Compare reads all records of a log, in order, and compares the two sources' accounts of
// hardware functions. The early records of the functions in cut are gone, and with "" in it
// those of all other functions and records, even if the indices start at 0.
func Compare(records []ddf.AuditRecord, cut ...string) *Report {
	r := &reader{run: 1, stopped: map[int]bool{}, lastOf: map[int]time.Time{}, accounts: map[key]*account{}, sources: map[key]source{}}
	begun := false
	for i := range records {
		rec := &records[i]
		if rec.Kind == "manager.start" && rec.Tenant == "" {
			if begun {
				r.run++
			}
			begun = true
		}
		begun = begun || rec.Tenant == ""
		r.lastOf[r.run] = rec.Time
		if rec.Tenant != "" { // a tenant's or a driver's word is no source
			continue
		}
		if err := r.take(rec); err != nil {
			r.report.differ("record %d (%s): %v", rec.Index, rec.Kind, err)
		}
	}

	whole := len(records) > 0 && records[0].Index == 0 && !slices.Contains(cut, "")
	r.findPartial(cut)
	r.judge(whole)
	return &r.report
}

// findPartial finds the first account of each cut function that has records left. Earlier
// records, and its own beginning, may be gone.
func (r *reader) findPartial(cut []string) {
	r.partial = map[string]key{}
	for _, function := range cut {
		r.partial[function] = key{run: r.run + 1}
		for k, a := range r.accounts {
			if k.function == function && a.mapped() && k.before(r.partial[function]) {
				r.partial[function] = k
			}
		}
	}
}

func (k key) before(other key) bool {
	return k.run < other.run || k.run == other.run && k.epoch < other.epoch
}

// take reads one record of the manager.
func (r *reader) take(rec *ddf.AuditRecord) error {
	switch rec.Kind {
	case "manager.stop":
		r.stopped[r.run] = true
		return nil
	case "audit.lost":
		r.report.AuditLost = true
		return nil
	case "driver.start", "driver.end", KindMap, KindUnmap, KindUndone, KindKept, KindSummary,
		KindKernel, KindMismatch, KindLost, KindSource, KindFault, KindFaults:
	default:
		return nil
	}

	d, err := parseDetail(rec.Detail)
	if err != nil {
		return err
	}

	switch rec.Kind {
	case KindLost:
		events, err := d.number("events")
		if err != nil {
			return err
		}
		operations, err := d.number("operations")
		r.report.Lost += events + operations
		return err
	case KindSource:
		if d.fields["source"] == "iommu" {
			k := key{run: r.run, function: d.function}
			r.sources[k] = source{cmp.Or(r.sources[k].reason, reasonOf(d))} // once blind, always blind
		}
		return nil
	case KindMismatch:
		r.report.differ("record %d: the manager found: %s", rec.Index, rec.Detail)
	}

	epoch, err := d.number("epoch")
	if err != nil {
		if rec.Kind == KindMismatch {
			return nil // of no function
		}
		return err
	}

	k := key{r.run, d.function, epoch}
	a := r.accounts[k]
	if a == nil {
		a = &account{first: rec.Index, kept: map[Span]int{}}
		r.accounts[k] = a
	}

	a.last = rec.Time
	return a.take(rec, d)
}

func reasonOf(d detail) string {
	switch d.fields["state"] {
	case "watched":
		return ""
	case "":
		return "the log does not say whether it was watched"
	}
	return cmp.Or(d.fields["reason"], d.fields["state"])
}

// judge makes the rows. whole says that the log begins at its first record.
func (r *reader) judge(whole bool) {
	keys := make([]key, 0, len(r.accounts))
	for k := range r.accounts {
		keys = append(keys, k)
	}

	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.run, b.run), strings.Compare(a.function, b.function), cmp.Compare(a.epoch, b.epoch))
	})
	for _, k := range keys {
		a := r.accounts[k]
		source, real := r.sources[key{run: k.run, function: k.function}]
		switch {
		case real:
		case !whole && k.run == 1, r.isCut(k): // the record may have been rotated away
			if !a.kernel.any() {
				continue
			}
		default:
			if a.kernel.maps != nil || a.kernel.unmaps != nil {
				r.report.differ("%s epoch=%d: the kernel's account is there, but no record says that the function was watched", k.function, k.epoch)
			}
			continue // a fake function
		}
		r.report.Rows = append(r.report.Rows, r.row(k, a, source, whole))
	}

	if r.report.Lost > 0 {
		r.report.differ("%d events could not be compared: what they were is not known", r.report.Lost)
	}

	for k, s := range r.sources {
		if s.reason != "" && !slices.ContainsFunc(r.report.Rows, func(w Row) bool { return w.Run == k.run && w.Function == k.function }) {
			r.report.differ("%s: the kernel was not watched: %s", k.function, s.reason)
		}
	}
}

func (r *reader) isCut(k key) bool {
	_, cut := r.partial[k.function]
	return cut
}

// isPartial reports whether the beginning of an account was cut off.
func (r *reader) isPartial(k key) bool {
	last, cut := r.partial[k.function]
	return cut && !last.before(k)
}

func (r *reader) row(k key, a *account, src source, whole bool) Row {
	row := Row{
		Run: k.run, Function: k.function, Epoch: k.epoch, Reason: src.reason, Kept: len(a.kept), Mismatches: a.mismatches, Faults: a.faults,
		Maps: total(a.manager.maps, a.manager.mapSums), Unmaps: total(a.manager.unmaps, a.manager.unmapSums),
		KernelMaps: total(a.kernel.maps, a.kernel.mapSums), KernelUnmaps: total(a.kernel.unmaps, a.kernel.unmapSums).Plus(SumOf(a.closed...)).Plus(a.closedSums),
	}
	switch {
	case src.reason != "":
		row.State = Unwatched
		r.report.differ("%s epoch=%d: the kernel was not watched: %s", k.function, k.epoch, src.reason)
		return row
	case k.epoch != 0 && !a.started && (!whole && k.run == 1 || r.isCut(k)), r.isPartial(k):
		row.State = Partial
		return row
	case k.epoch == 0 || a.ended || r.stopped[k.run]:
		row.State = Ended
	case k.run == r.run:
		row.State = Live
	default:
		row.State = Unfinished
	}

	// Only an ended account must agree to the last moment.
	var grace time.Time
	if row.State == Live || row.State == Unfinished {
		grace = r.lastOf[k.run].Add(-lag)
	}

	a.releaseKept()
	c := comparison{report: &r.report, row: &row, where: fmt.Sprintf("run %d, %s epoch=%d", k.run, k.function, k.epoch), grace: grace, last: a.last}
	c.compare("map", a.manager.maps, a.kernel.maps, a.manager.mapSums, a.kernel.mapSums)
	c.compare("unmap", a.manager.unmaps, a.kernel.unmaps, a.manager.unmapSums, a.kernel.unmapSums)
	for _, s := range a.closed {
		if a.kept[s] == 0 {
			row.Unexpected++
			r.report.differ("%s: %v was still mapped when the function was closed, and no record says that it was kept", c.where, s)
		}
	}

	if n, kept := uint64(len(a.closed))+a.closedSums.Count, uint64(len(a.kept)); a.closedSums.Count > 0 && n > kept {
		row.Unexpected += n - kept
		r.report.differ("%s: %d spans were still mapped when the function was closed, and records say of %d that they were kept", c.where, n, kept)
	}

	return row
}
