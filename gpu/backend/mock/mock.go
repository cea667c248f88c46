// Package mock is a deterministic software device behind backend.Backend.
//
// It behaves as hardware does: jobs wait in a FIFO of fixed depth, one engine
// runs them one at a time and in order, but for preemption, device time is measured on the
// monotonic clock (in Run: package tick), and completions arrive at the Sink from
// the device's own goroutines, possibly before Submit has returned. The same job on
// the same memory has the same result, however many workers the engine uses, unless
// its program has a data race.
//
// Programs are SPIR-V: Load has package verify admit a bundle and package lane
// compile it, and the built-in ones are those of package library, which are loaded
// no otherwise. A launch runs on the fast body that package native has for its
// bundle, or on the lane engine (launch.go).
//
//	Submit ──► queue ──runEngine──► kernel (runWorker…) ──► Sink.Complete
//	              └── Cancel ──► runAttendant ──────────────► Sink.Complete
//	Run ──► kernel ──► End (on the caller's goroutine)
//
// A queued job that is cancelled is completed at once, out of order: nobody has
// to wait for the job before it, which may be another tenant's. A running job is
// stopped at its next block of work.
//
// The caller may run short jobs itself (ready.go, run.go), while the engine has nothing to
// do: results, outcomes, the log and the faults of a script are the same. Fit for that are
// copies and fills of at most 64 KiB, and launches that take at most 20 µs whatever the data
// are: fast bodies that say how long they take (native.Body.Nanos), and on the lane engine
// programs without loops (lane.Kernel.Steady). A device that logs digests runs none.
//
// Such a job preempts a long one of another context (preempt.go): that makes room at its next
// block of work, or where the lane engine looks whether to stop. It keeps at least half of
// the device's time.
//
// Memory is the client's too. It may change or vanish at any time: every access
// is bounded by the length of its span, and a page that can no longer be read
// or written is a memoryGone trap of the job, not a fault of the process.
//
// Two things serve tests: the execution log (log.go) tells what really
// happened, and a fault script (package faults) makes the device misbehave. In
// particular StrayDMA asks the device's own IOMMU, which knows only the spans of
// the job.
//
// Locks: Device.mu, held for bookkeeping and through Run; never while the engine or what
// preempts it runs a kernel, nor while a Sink is called. Reset and Close wait for calls of
// the Sink to return, so a Sink must not call them, nor hold what it needs in Complete while
// it does.
//
// After Close no goroutine is left and no span is touched. The log stays.
package mock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/program"
)

// limits of the device, as a small GPU would have them.
var limits = backend.Limits{
	MaxThreadsPerBlock: program.MaxBlockThreads,
	MaxBlockDim:        program.MaxBlockThreads,
	MaxGridDim:         program.MaxGrid,
	MaxSharedBytes:     program.MaxSharedBytes,
	MaxBindings:        maxBindings,
	MaxInlineBytes:     program.MaxInlineBytes,
	MaxJobs:            maxJobs,
	BindingAlign:       bindingAlign,
	CancelBound:        cancelBound,
}

// cancelBound is how long a block of work may take. Without page faults that is
// less than a millisecond; but a client may have punched its memory out, and then
// the host finds a page for every access, while others use all its CPUs.
const cancelBound = 100 * time.Millisecond

const (
	maxJobs         = 16
	maxBindings     = program.MaxBindings
	maxWorkers      = 4
	defaultSubgroup = 32
	bindingAlign    = 8 // of f64, u64 and i64, which are the widest types

	// A discrete device is as narrow as Vulkan allows one to be in its alignment
	// (minStorageBufferOffsetAlignment, 1.3, Required Limits), and bounds a binding.
	localAlign   = 256
	localBinding = 1 << 30
)

// Options of a Device. The zero value is a healthy device without a log.
type Options struct {
	MemoryBytes uint64 // of the host, told by Info; 0: 1 GiB
	LocalBytes  uint64 // memory of the device's own (local.go); 0: it works on the host's
	Workers     int    // goroutines that share a large job, at most 4; 0: as many as the host has CPUs
	Subgroup    int    // lanes of a subgroup: 8, 16, 32 or 64; 0: 32
	LaneOnly    bool   // run every program on the lane engine, also those with a fast body
	Script      Script // what goes wrong, and when
	LogEntries  int    // jobs that the execution log remembers; 0: no log
	LogDigests  bool   // the log also has a SHA-256 over what each finished job could write
}

// Device is one software device.
type Device struct {
	traits
	threads
	local  localMemory
	opened opened

	mu sync.Mutex
	// +checklocks:mu
	state state
	// +checklocks:mu
	slots [maxJobs]slot
	// +checklocks:mu
	free []*slot
	// +checklocks:mu
	queue []*slot // waiting, in order
	// +checklocks:mu
	released []*code // loaded programs that are no more
	// +checklocks:mu
	cancelled []*slot // taken from the queue; the attendant completes them
	// +checklocks:mu
	running *slot
	// +checklocks:mu
	preemption preemption
	// +checklocks:mu
	delivering int // calls of the sink in progress
	// +checklocks:mu
	resetting int // calls of Reset in progress
	// +checklocks:mu
	quiet chan struct{} // closed when running and delivering are none; nil if nobody waits
	// +checklocks:mu
	faults player
	// +checklocks:mu
	log executionLog
}

// traits do not change.
type traits struct {
	info     backend.Info
	subgroup int
	mostRun  time.Duration // mostRun, but in tests
	laneOnly bool
}

// threads are the goroutines of a Device.
type threads struct {
	sink    backend.Sink
	started time.Time
	crew    crew
	kernels kernels
	never   atomic.Uint32 // the stop flag of jobs that nothing stops
	work    chan struct{} // capacity 1: the engine should look at the queue
	attend  chan struct{} // capacity 1: the attendant should look
	done    chan struct{} // closed by Close
	wg      sync.WaitGroup
}

// opened are the built-in programs that were opened.
type opened struct {
	mu sync.Mutex
	// +checklocks:mu
	byName map[string]*code
}

// state of a Device.
//
//	created ──Start──► live ──fault deviceGone──► gone
//	   └──────Close──────┴───────Close─────────────┴──► closed
type state uint8

const (
	created state = iota
	live
	gone
	closed
)

// New makes a device. Close it, also when it was never started.
func New(o Options) (*Device, error) {
	if err := o.Script.Validate(); err != nil {
		return nil, err
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 1 << 30
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Workers = min(o.Workers, maxWorkers)
	if o.LogEntries < 0 {
		return nil, gpuerr.New(gpuerr.Invalid, "LogEntries is %d; it must not be negative", o.LogEntries)
	}
	switch o.Subgroup {
	case 0:
		o.Subgroup = defaultSubgroup
	case 8, 16, 32, 64:
	default:
		return nil, gpuerr.New(gpuerr.Invalid, "Subgroup is %d; it is 8, 16, 32 or 64", o.Subgroup)
	}
	d := &Device{
		traits: traits{
			info:     backend.Info{Name: "mock", MemoryBytes: o.MemoryBytes, Limits: limits, Lists: true, LoadsPrograms: true, Deterministic: true},
			subgroup: o.Subgroup,
			mostRun:  mostRun,
			laneOnly: o.LaneOnly,
		},
		threads:   threads{kernels: kernels{subgroup: o.Subgroup}, work: make(chan struct{}, 1), attend: make(chan struct{}, 1), done: make(chan struct{})},
		opened:    opened{byName: map[string]*code{}},
		free:      make([]*slot, 0, maxJobs),
		queue:     make([]*slot, 0, maxJobs),
		cancelled: make([]*slot, 0, maxJobs),
		faults:    newPlayer(o.Script),
		log:       newExecutionLog(o.LogEntries, o.LogDigests),
	}
	if o.LocalBytes > 0 {
		d.local.limit = o.LocalBytes
		d.info.LocalBytes, d.info.Grouped = o.LocalBytes, true
		d.info.MemoryBytes += o.LocalBytes
		d.info.Limits.OffsetAlign, d.info.Limits.MaxBindingBytes = localAlign, localBinding
	}
	d.info.Limits.SubgroupSize = uint32(o.Subgroup)
	d.info.Limits.ComputeUnits = uint32(o.Workers)
	d.kernels.wg = &d.wg
	d.crew.init(o.Workers)
	d.crew.task.dev = d
	d.crew.task.work.Wait = d.crew.task.goesOn
	d.preemption.changed.L = &d.mu
	for i := range d.slots {
		s := &d.slots[i]
		s.dev, s.ready.dev = d, d
		s.stopped = make(chan struct{}, 1)
		d.free = append(d.free, s)
	}
	return d, nil
}

// Info implements backend.Backend.
func (d *Device) Info() backend.Info { return d.info }

var _ backend.Backend = (*Device)(nil)
