package mock

import (
	"runtime"
	"runtime/debug"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// list runs the entries of a list, each as a job of its own, until one is not ok.
func (d *Device) list(t *task, s *slot, job *backend.Job) result {
	all := result{outcome: outcome.Success, begun: job.From + s.had, written: s.written}
	for int(all.begun) < len(job.List) && all.outcome.Kind == outcome.OK && !all.gone {
		if d.mustYield(s) {
			d.yieldAlone(s)
		}
		if d.shortEntries(s, job, &all) {
			continue
		}
		if s.stop.Load() != stopNone || job.Context.Trapped() {
			all.outcome = cancelled
			break
		}
		r := d.run(t, s, &job.List[all.begun])
		all.begun++
		all.outcome, all.gone = r.outcome, r.gone
		all.written += r.written
	}
	all.begun -= job.From
	return all
}

// shortEntries runs entries the short way that Prepare found, as many as there are in a
// row, and reports whether there was one.
//
// +checklocksignore: how long the log is never changes
func (d *Device) shortEntries(s *slot, job *backend.Job, all *result) (some bool) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	runtime.LockOSThread() // as in task.run
	defer runtime.UnlockOSThread()
	var r *ready
	defer func() {
		if p := recover(); p != nil {
			all.begun++
			some = true
			all.outcome, all.gone = d.caught(r, p)
		}
	}()
	for int(all.begun) < len(job.List) && !d.mustYield(s) && !job.Context.Trapped() {
		var ok bool
		if r, ok = job.List[all.begun].Ready.(*ready); !ok || r.dev != d || !d.do(r, &s.stop, &all.outcome) {
			return some
		}
		all.begun++
		some = true
		if all.outcome.Kind != outcome.OK {
			return true
		}
		if len(d.log.ring) > 0 {
			all.written += written(r.job)
		}
	}
	return some
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
