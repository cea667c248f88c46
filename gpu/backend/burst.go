package backend

import (
	"time"

	"capgpu/outcome"
)

// MaxBurstJob bounds what Prepare may expect a job to take.
const MaxBurstJob = 20 * time.Microsecond

// Ready is a job that a Burster has looked at once and can run many times. It is
// opaque to the core, and of the Burster that made it.
type Ready any

// ReadyBytes is the most that a Ready takes of the host's memory, beside its job, which has
// so many spans.
func ReadyBytes(spans uint64) uint64 { return 512 + 32*spans }

// Burster is a Backend that runs short jobs on the caller's goroutine, without its
// queue, its own goroutines and its Sink. What a job does, and what is told about it,
// is the same as by Submit.
type Burster interface {
	// Prepare says whether a job is fit for bursts: short, and steady, which is that
	// its time depends on its shape (op, program, grid, block, lengths, inline
	// arguments) and never on data. nanos is what a run is expected to take, at most
	// MaxBurstJob. A job that Submit would refuse is not fit.
	//
	// What it returns keeps the job, and is of use while the core keeps the job's
	// fields, but for ID, and its spans as they are. old, if it is not nil, is one that
	// the core uses no more: its memory is used again, so that Prepare allocates
	// nothing. If ok is false r is nil and old may still be given another time.
	//
	// It may be called at any time, from any goroutine, also during a Burst.
	Prepare(job *Job, old Ready) (r Ready, nanos int64, ok bool)

	// Burst runs jobs in order; one Ready may be there more than once. Their ids are
	// first, first+1 and so on; those of the jobs are not looked at. Before each job it
	// looks at Context.Trapped, and completes one whose context is as Cancelled; a trap
	// ends its Context.
	//
	// A job that did not end ok is the last one that it runs, unless it was a trap or
	// came after one in its context: the core looks what may still run.
	//
	// It runs n ≤ len(jobs) and fills ends[:n], which is as long as jobs. n < len(jobs)
	// without that means that the next one must go by Submit, as the device is being reset, is gone
	// or closed, has something to do with this job that a burst cannot, or has been kept
	// far longer than was to be expected. Of a job that
	// it has not counted nothing is told, and what it may have written is of no account.
	//
	// The device must be idle: nothing that was submitted is outstanding, or Burst
	// returns 0. Bursts are one at a time, and the caller keeps them short: nothing can
	// cancel them. Reset, Close, Cancel and Submit wait for the one in progress, and
	// touch no span of it afterwards. Nothing is allocated.
	//
	// Memory that a client took away is a memoryGone trap, as by Submit.
	Burst(first JobID, jobs []Ready, ends []End) (n int)
}

// Holder is a Burster that can be had for one burst after the other, so that what each of
// them begins and ends with is done once.
type Holder interface {
	Burster

	// Hold takes the device, and reports whether it has: it must be idle, as for Burst. From
	// then until Release whatever waits for the burst in progress waits for that. Only the
	// calling goroutine calls BurstHeld and Release, and none of the Burster's methods but
	// Prepare meanwhile. It keeps that as short as bursts: whoever wants the device waits.
	Hold() bool

	// BurstHeld is Burst, but that it tells of what ended ok no more than device times, in
	// nanoseconds, of which nanos has room for as many as there are jobs; and that a job which
	// did not is always the last one that it runs. last is how the last one ended that it ran.
	BurstHeld(first JobID, jobs []Ready, nanos []uint64, last *outcome.Outcome) (n int)

	// Release ends what Hold began.
	Release()
}

// End is what became of a job of a burst. DeviceTime is measured over groups of at
// most MaxBurstGroup jobs, and shared equally within a group.
type End struct {
	Outcome    outcome.Outcome
	DeviceTime time.Duration
}

// MaxBurstGroup is how many jobs of a burst may share one measurement of time.
const MaxBurstGroup = 8
