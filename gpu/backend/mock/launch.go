package mock

import (
	"capgpu/gpu/backend"
	"capgpu/outcome"
	"capgpu/program/lane"
)

// A launch goes to the fast body of its program, if there is one and it can do this
// launch, and else to the lane engine, which can do all of them. Whatever runs it,
// the results are the same within the program's tolerance, and so are its traps, but
// for the workgroup of memory that has gone: a fast body knows none.

const (
	// parallelLanes is the size of a launch from which it is worth sharing.
	parallelLanes = 4096
	// pieces is about how many a shared launch is cut into, per member of the crew,
	// so that the members end at about the same time.
	pieces = 8
)

// launch runs a launch to its end.
func (d *Device) launch(t *task, job *backend.Job) result {
	c := job.Program.(*code)
	if c.spins {
		// It never ends by itself. It waits instead of burning the host's CPU; its device
		// time runs all the same.
		t.slot.await(nil)
		return result{outcome: outcome.Outcome{Kind: outcome.Cancelled}}
	}
	for i := range job.Spans {
		t.bindings[i] = job.Spans[i].Host
	}
	if c.body != nil && !job.Check && t.prepareBody(c, job) {
		d.crew.run(t)
		switch {
		case t.broken.Load():
			return result{outcome: deviceError}
		case !t.declined.Load() || t.trapped() || t.stopped():
			return t.launched(job)
		}
		// The data are such that the lane engine has to do all of it.
		t.begin(t.slot, job)
	}
	workers := d.crew.size()
	if job.Check {
		workers = 1
	}
	v, err := d.kernels.get(t.slot, job, workers)
	switch {
	case err == errStopped:
		return result{outcome: outcome.Outcome{Kind: outcome.Cancelled}}
	case err != nil:
		return result{outcome: tooMuch}
	}
	t.prepareLanes(v, job)
	v.busy = true
	d.crew.run(t)
	v.busy = false
	if t.broken.Load() {
		d.kernels.drop(v) // nobody knows what state its workers are in
		return result{outcome: deviceError}
	}
	return t.launched(job)
}

// tooMuch is the outcome of a launch that takes more than the device has.
var tooMuch = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}

// launched sums a launch up.
func (t *task) launched(job *backend.Job) result {
	r := result{outcome: t.outcome()}
	if r.outcome.Kind == outcome.OK {
		r.written = written(job)
	}
	return r
}

// written is how much a job could write.
func written(job *backend.Job) (bytes uint64) {
	for i := range job.Spans {
		if writes(job, i) {
			bytes += uint64(len(job.Spans[i].Host))
		}
	}
	return bytes
}

// prepareBody sets up a fast body. It is false if that cannot do this launch.
func (t *task) prepareBody(c *code, job *backend.Job) bool {
	t.call.Grid, t.call.Block = job.Grid, job.Block
	t.call.Bindings, t.call.Inline = t.bindings[:len(job.Spans)], job.Inline
	t.call.Stop = &t.slot.stop
	items, ok := c.body.Items(&t.call)
	if !ok {
		return false
	}
	t.body, t.kernel = c.body, bodyBlock
	t.items, t.block = items, max(c.body.Grain(&t.call), 1)
	t.shared = items > t.block
	return true
}

func bodyBlock(t *task, _ int, lo, hi uint64) bool {
	if !t.body.Run(&t.call, lo, hi) {
		t.declined.Store(true)
		return false
	}
	return true
}

// prepareLanes sets up the lane engine. Items are workgroups.
func (t *task) prepareLanes(v *variant, job *backend.Job) {
	t.work.Grid = job.Grid
	t.work.Bindings, t.work.Inline = t.bindings[:len(job.Spans)], job.Inline
	t.members, t.kernel = v.workers, laneBlock
	t.items = job.Grid.Count()
	t.serial = job.Check || v.code.program.Info.OrderDependent || shares(job)
	// One product of two is within 64 bits: a workgroup has 1024 lanes, a grid 2^48.
	t.shared = t.items > 1 && t.items*job.Block.Count() >= parallelLanes
	t.block = t.items
	if t.shared && !t.serial {
		t.block = max(t.items/uint64(pieces*len(v.workers)), 1)
	}
}

func laneBlock(t *task, member int, lo, hi uint64) bool {
	w := t.members[member]
	r := w.Run(&t.work, lo, hi, &t.slot.attend)
	if r.Trap.Kind != outcome.NoTrap {
		t.trap(r.Trap, lo)
		return false
	}
	return !r.Stopped
}

// shares reports whether the job writes a span that overlaps another, or is the
// same: then its result may depend on the order of its workgroups.
func shares(job *backend.Job) bool {
	for i := range job.Spans {
		if !writes(job, i) {
			continue
		}
		for j := range job.Spans {
			if i == j {
				continue
			}
			if overlaps, _ := overlap(job.Spans[i].Host, job.Spans[j].Host); overlaps {
				return true
			}
		}
	}
	return false
}

// workgroupOf is where a member of the crew was when it faulted.
func workgroupOf(members []*lane.Worker, member int) uint32 {
	if member < len(members) {
		return members[member].Workgroup()
	}
	return 0
}
