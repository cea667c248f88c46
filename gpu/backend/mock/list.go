package mock

import (
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// list runs the entries of a list, each as a job of its own, until one is not ok.
func (d *Device) list(t *task, s *slot, job *backend.Job) result {
	all := result{outcome: outcome.Success}
	for int(all.begun) < len(job.List) && all.outcome.Kind == outcome.OK && !all.gone {
		if s.stop.Load() != stopNone || job.Context.Trapped() {
			all.outcome = outcome.Outcome{Kind: outcome.Cancelled}
			break
		}
		r := d.run(t, s, &job.List[all.begun])
		all.begun++
		all.outcome, all.gone = r.outcome, r.gone
		all.written += r.written
	}
	return all
}

// checkList is checkJob for a list.
func checkList(job *backend.Job) error {
	if len(job.List) == 0 || len(job.List) > backend.MaxListEntries || len(job.Spans) != 0 {
		return gpuerr.New(gpuerr.Invalid, "a list has 1 to %d entries, not %d, and no spans of its own", backend.MaxListEntries, len(job.List))
	}
	for i := range job.List {
		entry := &job.List[i]
		if entry.Op == backend.OpList {
			return gpuerr.New(gpuerr.Invalid, "entry %d of a list is a list", i)
		}
		if err := checkJob(entry); err != nil {
			return gpuerr.New(gpuerr.CodeOf(err), "entry %d: %s", i, gpuerr.From(err).Msg)
		}
	}
	return nil
}
