package backend

import (
	"time"

	"capgpu/outcome"
)

// MostRunnable bounds what Prepare may expect a job to take.
const MostRunnable = 20 * time.Microsecond

// Ready is what a Runner keeps of a job that it has looked at once and can run many times.
// It is opaque to the core, and of the Runner that made it.
type Ready any

// Runner is a Backend that can run short jobs on the goroutine of the caller, without a
// queue and a completion. A job does the same, and the same is told about it, as by Submit.
// It is for a device that is the host's own processor.
type Runner interface {
	// Prepare reports whether a launch, a copy or a fill may run so: short, and steady,
	// which is that its time depends on its shape (op, program, grid, block, lengths, inline
	// arguments) and never on data. nanos is what a run is expected to take, at most
	// MostRunnable. A job that Submit would refuse is not fit.
	//
	// Its result, which the caller puts into Job.Ready, keeps the job, and is of use while
	// the caller keeps the job's fields and its spans as they are. old, if it is not nil, is
	// one that the caller uses no more: its memory is used again, so that Prepare allocates
	// nothing.
	//
	// It may be called at any time, from any goroutine, also during Run.
	Prepare(job *Job, old Ready) (r Ready, nanos int64, ok bool)

	// Run runs jobs in order, each with a Ready, and lists of entries that all have one, from
	// their From on. Before each it looks at Context.Trapped, and ends a job as Cancelled if
	// its context is; a trap ends its Context. A job that did not end ok is the last one that
	// it runs, unless it was a trap or came after one in its context.
	//
	// It runs n ≤ len(jobs) and fills ends[:n], which is as long as jobs and zero. n <
	// len(jobs) without that means that the next one must go by Submit: the device is being
	// reset, is gone or closed, has something to do with this job that Run cannot, or has
	// been kept far longer than was expected. Nothing is told of that one, but if it is a
	// list ends[n] says how many of its entries have run, all ok, and for how long.
	//
	// Nothing that was submitted is outstanding, or Run returns 0. The caller keeps its calls
	// short: nothing can cancel them. Reset, Close, Cancel and Submit wait for the one in
	// progress. Nothing is allocated.
	//
	// Memory that a client took away is a memoryGone trap, as by Submit.
	Run(jobs []*Job, ends []End) (n int)
}

// End is how a job that Run has run has ended. DeviceTime may be measured over several
// jobs, and shared equally among them.
type End struct {
	Outcome    outcome.Outcome
	DeviceTime time.Duration
	Begun      uint32 // of a list: how many of its entries were begun in this run
}
