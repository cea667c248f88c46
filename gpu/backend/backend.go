// Package backend is the seam between the core and a device.
//
// The core decides what may run; a Backend only runs it. A Backend never sees a
// client, a tenant or a handle: a Job is fully resolved, bounded and charged.
// In turn the core believes nothing that comes back: completions that are
// duplicate, unknown or missing are the core's to handle, and a backend's
// Execution log (where it has one) is only a witness for tests.
//
// Data flow: core → Submit → device → Sink.Complete → core, or, for short jobs where the
// backend is a Runner, core → Run → core (runner.go).
package backend

import (
	"context"
	"sync/atomic"
	"time"

	"capgpu/outcome"
	"capgpu/program"
)

// JobID names a job to the device. The core never reuses one within an epoch.
type JobID uint64

// Op is what a job does.
type Op uint8

const (
	OpLaunch Op = iota + 1
	OpCopy      // Spans[0] = destination, Spans[1] = source, equal lengths
	OpFill      // Spans[0], Pattern; offset and length multiples of 4
	OpList      // List; only where Info.Lists
)

// Span is a bounded piece of device-visible memory.
type Span struct {
	// Host is the driver's mapping; it may change under the backend at any time. Where the
	// span lies in local memory, Host is an address range that only the backend may touch
	// (LocalMemory).
	Host []byte
	IOVA uint64 // as the device sees it
}

// Context is what the jobs of one session have in common on the device. The zero value is
// ready for use.
//
// A trap is sticky in it: once a job of a context has trapped, the device begins no other
// job of it. Any other failure is the end of a round: the device begins no job of that round
// or an earlier one any more, and the core sends what comes after it knows of the failure in
// the next. A job that is never begun completes as Cancelled.
type Context struct {
	// Group is the tenant's. A device that cannot end the work of one context alone ends that
	// of its group (Info.Grouped), and never that of another.
	Group   uint32
	trapped atomic.Bool
	failed  atomic.Uint64 // the last round in which work failed
}

// Trap ends a context; the device calls it before it completes a job as trapped.
func (c *Context) Trap() {
	if c != nil {
		c.trapped.Store(true)
	}
}

// Trapped says that a job of the context has trapped. A nil Context never has.
func (c *Context) Trapped() bool { return c != nil && c.trapped.Load() }

// Fail ends a round; the device calls it before it completes a job that it has begun, and
// that did not end ok. Rounds begin with 1.
func (c *Context) Fail(round uint64) {
	if c == nil {
		return
	}
	for {
		last := c.failed.Load()
		if round <= last || c.failed.CompareAndSwap(last, round) {
			return
		}
	}
}

// Over says that no job of a round may begin any more.
func (c *Context) Over(round uint64) bool {
	return c != nil && (c.trapped.Load() || round != 0 && round <= c.failed.Load())
}

// Job is one unit of device work. The backend may keep it until its completion;
// the core keeps every Span mapped until then.
type Job struct {
	ID      JobID
	Op      Op
	Program Program // OpLaunch
	Grid    Dim3    // workgroups
	Block   Dim3    // threads per workgroup
	Shared  uint32  // bytes of dynamic shared memory
	Spans   []Span
	Inline  []byte // at most Limits.MaxInlineBytes
	Pattern uint32 // OpFill
	// Context is the session's, nil: of nothing else; and Round counts its failures.
	Context *Context
	Round   uint64
	// Check has a launch watched: a data race between lanes, a read of uninitialised
	// shared memory or a divergent barrier traps as well. A backend that cannot fails
	// it as a device error.
	Check bool
	// List is what an OpList runs (list.go). Ready is of its entries only. Recording is the
	// number of a list that stays as it is, never used for another; 0: it is of this job.
	List      []Job
	Recording uint64
	// From is how many entries of the list have run already (Runner).
	From  uint32
	Ready Ready
}

// Completion is what the device says about a job.
type Completion struct {
	ID         JobID
	Outcome    outcome.Outcome // OK, Failed (trap, launchLimit, deviceError), Cancelled (after Cancel, a trap in its Context), DeviceLost
	DeviceTime time.Duration   // measured
	Begun      uint32          // of an OpList: how many of its entries were begun
}

// Sink receives completions. Complete may be called from any goroutine, must not
// block, and may be called before Submit has returned.
type Sink interface {
	Complete(c Completion)
	// DeviceGone says that the device no longer answers (all-ones reads). No
	// further completion will come.
	DeviceGone(reason string)
}

// The core knows this of a program; package program says it. The core has checked that
// the count of a job's Dim3 fits.
type (
	Dim3        = program.Dim3
	Access      = program.Access
	BindingInfo = program.Binding
	ProgramInfo = program.Info
)

const (
	Read      = program.Read
	Write     = program.Write
	ReadWrite = program.ReadWrite

	MaxBundleBytes = program.MaxBundleBytes
)

// Program is code that the device can run. It does not change.
type Program interface {
	// Info is what a launch is checked against. It is not to be written to.
	Info() *ProgramInfo
}

// Releaser is a Program that has something to give back. Release is called at most
// once, on one that Load returned, when no job uses it any more and none will.
type Releaser interface {
	Release()
}

// Limits of the device, published to clients.
type Limits struct {
	MaxThreadsPerBlock uint32
	MaxBlockDim        uint32
	MaxGridDim         uint32
	MaxSharedBytes     uint32
	MaxBindings        uint32
	MaxInlineBytes     uint32
	MaxJobs            int // depth of the device's own queue
	SubgroupSize       uint32
	// BindingAlign is what the offset of a binding is a multiple of, in bytes, so that no
	// access of the widest type traps as misaligned: a power of two. Where a program has
	// narrower types less will do.
	BindingAlign uint32
	// OffsetAlign is what the offset of a binding must be a multiple of, in bytes: a power of
	// two; 0 or 1: it may be anything. Others are refused with gpuerr.LaunchLimit.
	OffsetAlign uint32
	// MaxBindingBytes bounds a binding; 0: nothing does.
	MaxBindingBytes uint64
	// ComputeUnits is how many parts of the device run workgroups at the same time; 0: not
	// known.
	ComputeUnits uint32
	// CancelBound is how long a healthy device takes to stop one job, whatever a
	// client does to its memory meanwhile: a reset because of an impatient core
	// would hit others. Where the host's CPU does the work that includes page
	// faults, and is 100 ms or more.
	CancelBound time.Duration
}

// Info is static.
type Info struct {
	Name        string // "mock", "edu"
	MemoryBytes uint64 // that the device reaches: of the host, and its own
	LocalBytes  uint64 // of these its own (LocalMemory); 0: it works on the host's
	Limits      Limits
	// Lists says that the device runs OpList.
	Lists bool
	// LoadsPrograms says that there is a verifier behind Load. Without it Load is
	// never called.
	LoadsPrograms bool
	// DMA says that the device moves memory by itself, through an IOMMU: it may
	// report success of a job although the IOMMU refused its access. The core then asks
	// for the refusals (gpu.Config.Settle) before it tells an OK.
	DMA bool
	// Verifies says that the backend reports success only of what it has seen to be
	// done. Its word then stands also for a time of which the record of refusals is
	// incomplete; without it, work of such a time is a device error.
	Verifies bool
	// Grouped says that a ContextResetter ends the work of all contexts of a Group at once.
	Grouped bool
	// Deterministic says that the same work on the same memory has the same result, but for
	// programs that say of themselves that the order of workgroups matters
	// (ProgramInfo.OrderDependent).
	Deterministic bool
}

// Progresser is a Backend that sees its jobs get on. A job that is given no
// deadline by its caller is then stopped when it does not get on for that long,
// and not because it takes long.
type Progresser interface {
	// Progress grows, at least twice a second while a healthy job runs, and does
	// not while one hangs. The core reads it every few milliseconds, under its lock:
	// it is one atomic load, which waits for nothing and calls nothing.
	Progress() uint64
}

// Preempter is a Backend that preempts a long job, now and then, for short jobs of other
// contexts; it goes on where it was. A short job may then end before what was submitted
// earlier in others; within a context the order stays.
type Preempter interface {
	// Preempted is for how long jobs have been preempted, in all. It never falls. Such time
	// counts for no deadline, and DeviceTime is without it. The core reads it as it does
	// Progress.
	Preempted() time.Duration
}

// ContextResetter is a Backend that can end the work of one Context, or of its group
// (Info.Grouped), and leave all else as it is. It is the step between Cancel, which a job may
// fail to heed, and Reset, which hits everybody.
type ContextResetter interface {
	// ResetContext ends all that was submitted of a context, or of its group. When it returns
	// nil the device touches no span of any of that, and no completion of it will come. Jobs
	// of other contexts keep their places, and begin and end as if nothing had happened; and
	// jobs of the context may be submitted again. After an error, which is also that ctx
	// ended first, nothing is known of the context's jobs, and a Reset has to follow.
	ResetContext(ctx context.Context, c *Context) error
}

// Backend drives one device. Methods may be called from any goroutine. Jobs run
// one at a time in the order of Submit, but for the short ones of a Preempter: the
// core's in-order queues, and its notion of which job is running, rest on that. A job
// that is cancelled before it runs may complete out of order.
type Backend interface {
	Info() Info
	// Programs lists the names of the built-in programs, sorted.
	Programs() []string
	// Builtin returns a built-in program; gpuerr.NoProgram if there is none.
	Builtin(name string) (Program, error)
	// Load admits a program bundle; its bytes become the backend's. A bundle outside
	// the profile gets a *program.Refusal; a backend without a program verifier answers
	// gpuerr.Unimplemented. When ctx ends, Load does so soon, with gpuerr.Busy unless it
	// had another answer: everybody's loads wait for it.
	Load(ctx context.Context, bundle []byte) (Program, error)
	// Start is called once, before the first Submit.
	Start(sink Sink) error
	// Submit hands one job to the device. It never blocks on the device. At most
	// Limits.MaxJobs are outstanding. An error means the job was not taken.
	Submit(job *Job) error
	// Cancel asks the device to stop one job; its completion still comes, as OK
	// if it had already finished. Unknown ids are ignored.
	Cancel(id JobID)
	// Reset stops everything. When it returns, the device touches no span of any
	// earlier job, and no completion of an earlier job will come.
	Reset(ctx context.Context) error
	// Close resets and releases the device, also one that a Reset could not stop,
	// and returns only when the device touches no span of any job. It is called
	// once; Cancel may be called meanwhile and afterwards.
	Close() error
}
