package audit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"capgpu/ddf"
)

// everything is as many records as a log can have for Read.
const everything = math.MaxInt

// Entry is a record, and the log that it is in.
type Entry struct {
	Log string // name of the file
	ddf.AuditRecord
}

// placed is an entry with its place among those of all logs: the run of the manager that
// wrote it, from 0, and the time, which never goes back within a log.
type placed struct {
	Entry
	run int
	at  time.Time
}

// ReadAll reads the records of all logs at path, the host's and those of every owner. The
// records of each log are in their order. Between logs the run of the manager decides, which
// the records "manager.start" and "audit.run" tell apart even if the clock jumped, and within
// a run the time. Records before the damage of a log are returned along with the *Damage.
func ReadAll(path string) ([]Entry, error) {
	paths, err := Paths(path)
	if err != nil {
		return nil, err
	}

	var starts []ddf.AuditRecord // of runs, as far as the host's log goes back
	var all []placed
	var errs []error
	for i, p := range paths {
		records, err := Read(p, 0, everything)
		if err != nil {
			errs = append(errs, err)
		}
		if i == 0 {
			starts = startsIn(records)
		}
		all = append(all, place(filepath.Base(p), records, starts, i == 0)...)
	}

	slices.SortStableFunc(all, func(a, b placed) int { return cmp.Or(cmp.Compare(a.run, b.run), a.at.Compare(b.at)) })
	entries := make([]Entry, len(all))
	for i := range all {
		entries[i] = all[i].Entry
	}

	return entries, errors.Join(errs...)
}

func startsIn(host []ddf.AuditRecord) (starts []ddf.AuditRecord) {
	for _, r := range host {
		if r.Kind == "manager.start" && r.Tenant == "" {
			starts = append(starts, r)
		}
	}
	return starts
}

// place finds the places of a log's records. If an owner's "audit.run" was rotated away, its
// records go by their time, and not beyond the next one.
func place(log string, records, starts []ddf.AuditRecord, host bool) []placed {
	all := make([]placed, len(records))
	run, known := 0, host
	for i, r := range records {
		switch before, ok := runOf(r); {
		case host && r.Kind == "manager.start" && r.Tenant == "":
			run++
		case !host && ok:
			run = sort.Search(len(starts), func(i int) bool { return starts[i].Index >= before })
			if !known {
				for j := range all[:i] {
					all[j].run = min(all[j].run, max(0, run-1))
				}
			}
			known = true
		case !known:
			run = max(run, lastBy(starts, r.Time))
		}
		all[i] = placed{Entry: Entry{log, r}, run: run, at: r.Time}
		if i > 0 && all[i-1].run == run && all[i-1].at.After(r.Time) { // the clock went back
			all[i].at = all[i-1].at
		}
	}

	return all
}

// lastBy is how many runs had started at a time; where the clock went back, as many as
// could have.
func lastBy(starts []ddf.AuditRecord, at time.Time) int {
	for i := len(starts); i > 0; i-- {
		if !starts[i-1].Time.After(at) {
			return i
		}
	}
	return 0
}

// runOf reads an "audit.run": how many records the host's log had.
func runOf(r ddf.AuditRecord) (host uint64, ok bool) {
	if r.Kind != runKind || r.Tenant != "" {
		return 0, false
	}
	n, _ := fmt.Sscanf(r.Detail, "host=%d", &host)
	return host, n == 1
}
