package mock

import (
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// list runs the entries of a list, each as a job of its own, until one is not ok.
func (d *Device) list(t *task, s *slot, job *backend.Job) result {
	all := result{outcome: outcome.Success}
	for i := range job.List {
		if s.stop.Load() != stopNone || job.Context.Trapped() {
			all.outcome = outcome.Outcome{Kind: outcome.Cancelled}
			return all
		}
		all.begun++
		r := d.entry(t, s, &job.List[i])
		all.outcome, all.gone = r.outcome, r.gone
		all.written += r.written
		if r.gone || r.outcome.Kind != outcome.OK {
			return all
		}
	}
	return all
}

// entry runs one entry: the short way, where Prepare found it.
func (d *Device) entry(t *task, s *slot, job *backend.Job) result {
	if r, ok := job.Ready.(*ready); ok && r.dev == d {
		if result, done := d.runReady(s, r); done {
			return result
		}
	}
	return d.run(t, s, job)
}

// checkList is checkJob for a list.
func checkList(job *backend.Job) error {
	if len(job.List) == 0 || len(job.List) > backend.MaxListEntries || len(job.Spans) != 0 {
		return gpuerr.New(gpuerr.Invalid, "a list has 1 to %d entries, not %d, and no spans of its own", backend.MaxListEntries, len(job.List))
	}
	for i := range job.List {
		entry := &job.List[i]
		if r, ok := entry.Ready.(*ready); ok && r.dev != nil { // it was checked
			continue
		}
		if entry.Op == backend.OpList {
			return gpuerr.New(gpuerr.Invalid, "entry %d of a list is a list", i)
		}
		if err := checkJob(entry); err != nil {
			return gpuerr.New(gpuerr.CodeOf(err), "entry %d: %s", i, gpuerr.From(err).Msg)
		}
	}
	return nil
}
