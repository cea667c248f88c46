package mock

import (
	"sync/atomic"

	"capgpu/gpu/backend"
	"capgpu/internal/shm"
	"capgpu/outcome"
	"capgpu/program/lane"
	"capgpu/program/native"
)

// ready is a job that was prepared once: it has what is looked up and computed for each job
// otherwise.
type ready struct {
	dev     *Device
	job     *backend.Job
	context *backend.Context // job's
	how     how

	nanos    uint64                                   // that a run is expected to take
	run      func(c *native.Call, lo, hi uint64) bool // of a fast body
	items    uint64                                   // of the body, or workgroups
	call     native.Call
	words    []uint32 // of a fill
	work     lane.Launch
	code     *code
	form     form
	variant  *variant // found last; the engine's
	worker   *lane.Worker
	bindings [][]byte
}

// how a ready job is run.
type how uint8

const (
	readyNothing how = iota // it has no items
	readyBody
	readyLanes
	readyCopy
	readyFill
)

// Bounds of what may run at once.
const (
	shortBytes = 64 << 10 // of a copy or fill
	moveNanos  = 20       // to begin one
	bytesNano  = 16       // of one that go in a nanosecond, with the memory in the caches
)

// Prepare implements backend.Runner. Fit are copies and fills of at most 64 KiB and
// launches with code that takes a steady time, whether a fast body or the lane engine runs it.
func (d *Device) Prepare(job *backend.Job, old backend.Ready) (_ backend.Ready, nanos int64, ok bool) {
	if job == nil || job.Op == backend.OpList || job.Check || checkJob(job) != nil {
		return nil, 0, false
	}
	r, _ := old.(*ready)
	if r == nil || r.dev != d {
		r = &ready{dev: d}
	}
	r.reset(job)
	// The engine says what a bug in a body costs.
	defer func() {
		if p := recover(); p != nil {
			sayBug(p)
			nanos, ok = 0, false
		}
	}()
	var took uint64
	switch job.Op {
	case backend.OpLaunch:
		took, ok = r.prepareLaunch(job.Program.(*code))
	default:
		took, ok = r.prepareMove()
	}
	if !ok || took > uint64(backend.MostRunnable) {
		r.reset(nil)
		return nil, 0, false
	}
	r.nanos = took
	return r, int64(took), true
}

// reset makes r that of a job, or of none, with nothing left of another.
func (r *ready) reset(job *backend.Job) {
	bindings := r.bindings[:cap(r.bindings)]
	clear(bindings)
	bindings = bindings[:0]
	if job != nil {
		if len(job.Spans) > cap(bindings) { // append would take more
			bindings = make([][]byte, 0, max(len(job.Spans), 4))
		}
		for i := range job.Spans {
			bindings = append(bindings, job.Spans[i].Host)
		}
	}
	*r = ready{dev: r.dev, job: job, bindings: bindings}
	if job != nil {
		r.context = job.Context
	}
}

// prepareMove is of copies and fills.
func (r *ready) prepareMove() (nanos uint64, ok bool) {
	dst := r.bindings[0]
	if len(dst) > shortBytes {
		return 0, false
	}
	r.how = readyCopy
	if r.job.Op == backend.OpFill {
		if fillTrap(r.job.Spans[0]).Kind != outcome.NoTrap {
			return 0, false
		}
		r.how, r.words = readyFill, wordsOf(dst)
	}
	return moveNanos + uint64(len(dst))/bytesNano, true
}

// prepareLaunch goes the way that launch would. Programs that spin have loops.
func (r *ready) prepareLaunch(c *code) (nanos uint64, ok bool) {
	job := r.job
	if c.body != nil {
		r.call = native.Call{Grid: job.Grid, Block: job.Block, Bindings: r.bindings, Inline: job.Inline}
		if r.items, ok = c.body.Items(&r.call); ok {
			if c.body.Nanos == nil {
				return 0, false
			}
			r.how, r.run = readyBody, c.body.Run
			if r.items == 0 {
				r.how = readyNothing
			}
			return c.body.Nanos(&r.call)
		}
	}
	// Below this the product is within 64 bits.
	if !c.steady || job.Grid.Count() > uint64(backend.MostRunnable) {
		return 0, false
	}
	r.how, r.items = readyLanes, job.Grid.Count()
	r.code, r.form = c, form{block: job.Block, shared: job.Shared}
	r.work = lane.Launch{Grid: job.Grid, Bindings: r.bindings, Inline: job.Inline}
	return c.cost.Nanos(r.items, job.Block.Count()), true
}

// do runs a ready job. It is false if the job has to go the long way: its data are
// not for the fast body, or its program is not compiled. A bug, and memory that has
// gone, panics out of it, and is for caught. It is called on the engine, or while
// that has nothing to do or is preempted.
func (d *Device) do(r *ready, stop *atomic.Uint32, o *outcome.Outcome) bool {
	switch r.how {
	case readyBody:
		if !r.run(&r.call, 0, r.items) {
			return false
		}
	case readyLanes:
		return d.doLanes(r, stop, o)
	case readyCopy:
		copy(r.bindings[0], r.bindings[1])
	case readyFill:
		fillWords(r.words, r.job.Pattern)
	}
	*o = outcome.Success
	return true
}

func (d *Device) doLanes(r *ready, stop *atomic.Uint32, o *outcome.Outcome) bool {
	v := r.variant
	if v == nil || v.kernel == nil {
		if v = r.code.variant(r.form); v == nil || len(v.workers) == 0 || !r.suits(v) {
			return false
		}
		r.variant = v
	}
	d.kernels.touch(v)
	r.worker = v.workers[0]
	if v.busy {
		r.worker = d.kernels.besideOf(v)
	}
	switch got := r.worker.Run(&r.work, 0, r.items, stop); {
	case got.Trap.Kind != outcome.NoTrap:
		*o = trapped(got.Trap)
		r.job.Context.Trap()
	case got.Stopped:
		*o = outcome.Outcome{Kind: outcome.Cancelled}
	default:
		*o = outcome.Success
	}
	return true
}

// suits says whether what Prepare said of a program holds for the form that the job
// needs: Prepare has seen that of the default workgroup, and others may be other code.
func (r *ready) suits(v *variant) bool {
	cost, steady := v.kernel.Steady()
	return steady && cost.Nanos(r.items, r.form.block.Count()) <= uint64(backend.MostRunnable)
}

// caught is the outcome of a ready job that panicked: as in task.caught a trap if
// memory has gone, and else a bug, which is that of the program's code or, in a copy
// or a fill, the end of the device. It is called on the thread that the job ran on.
func (d *Device) caught(r *ready, p any) (o outcome.Outcome, gone bool) {
	native.RestoreFloats()
	addr, ok := shm.FaultAddress(p)
	if !ok {
		sayBug(p)
		if r.how == readyLanes && r.variant != nil && r.variant.kernel != nil {
			d.kernels.drop(r.variant)
		}
		return deviceError, r.how == readyCopy || r.how == readyFill
	}
	trap := memoryGone(r.job, addr)
	if r.how == readyLanes {
		trap.Workgroup = r.worker.Workgroup()
	}
	r.job.Context.Trap()
	return trapped(trap), false
}
