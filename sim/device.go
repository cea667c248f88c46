package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/iommu"
	"capgpu/outcome"
	"capgpu/program"
)

// plan is the device's behaviour with one job.
type plan uint8

const (
	planGood plan = iota
	planNever
	planStubborn // never, not even when it is cancelled
	planError
	planTwice
	planLost // done, and never reported
	planSpurious
	planStray // accesses unmapped memory, and reports ok
	planPanic
	planTrap
	planSlow
	planGone
)

// classOf is the class of a plan; 0: none.
var classOf = map[plan]Class{
	planNever: NeverSignals, planStubborn: NeverSignals, planError: ErrorCompletion, planTwice: DuplicateCompletion, planLost: LostInterrupt,
	planSpurious: SpuriousInterrupt, planStray: IOMMUFault, planPanic: KernelPanic, planGone: Removal,
}

// chip is the simulated device with its execution log. It exists through all
// epochs; each epoch has a port.
type chip struct {
	w *world

	mu      sync.Mutex
	stopped bool  // by the function: no bus mastering
	port    *port // of the current driver
	busy    *run
	fifo    []*run
	log     map[uint64]*witness // by op
}

// witness is the device's record of one op.
type witness struct {
	begun, done  int    // times
	began, ended uint64 // moments; 0: not yet
}

// run is one job at the device.
type run struct {
	p     *port
	job   *backend.Job
	id    backend.JobID // the job's, when it was submitted
	op    uint64
	plan  plan
	timer *time.Timer
	ended bool
}

// port is the device from one driver's side: a backend.Backend.
type port struct {
	c      *chip
	dead   func() bool // of its driver: the remains of a dead driver reach nothing
	sink   backend.Sink
	closed bool // guarded by chip.mu
}

func newChip(w *world) *chip { return &chip{w: w, log: map[uint64]*witness{}} }

// simProgram is the only program: out[i] = in[i] + the low word of its op.
type simProgram struct{ info backend.ProgramInfo }

// Info implements backend.Program.
func (p *simProgram) Info() *backend.ProgramInfo { return &p.info }

var theProgram = &simProgram{backend.ProgramInfo{
	Name: programName, Entry: "main", InlineBytes: 8,
	Bindings: []program.Binding{{Name: "in", Access: backend.Read}, {Name: "out", Access: backend.Write}},
	Block:    backend.Dim3{X: 1, Y: 1, Z: 1}, Grid: program.Grid{},
}}

const programName = "sim.add"

// Info implements backend.Backend.
func (p *port) Info() backend.Info {
	return backend.Info{Name: "sim", MemoryBytes: 1 << 30, DMA: p.c.w.dma, Limits: backend.Limits{
		MaxThreadsPerBlock: 64, MaxBlockDim: 64, MaxGridDim: 1 << 20, MaxSharedBytes: 1 << 10, MaxBindings: 8, MaxInlineBytes: 64, MaxJobs: 4,
		SubgroupSize: 1, CancelBound: 10 * time.Millisecond,
	}}
}

// Programs implements backend.Backend.
func (p *port) Programs() []string { return []string{programName} }

// Builtin implements backend.Backend.
func (p *port) Builtin(name string) (backend.Program, error) {
	if name == programName {
		return theProgram, nil
	}
	return nil, gpuerr.New(gpuerr.NoProgram, "there is no program %q", name)
}

// Load implements backend.Backend.
func (p *port) Load(context.Context, []byte) (backend.Program, error) {
	return nil, gpuerr.New(gpuerr.Unimplemented, "this device loads no programs")
}

// Start implements backend.Backend.
func (p *port) Start(sink backend.Sink) error {
	p.sink = sink
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.port = p
	return nil
}

// Submit implements backend.Backend.
func (p *port) Submit(j *backend.Job) error {
	op := p.c.w.opOf(j)
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.dead() {
		return nil
	}
	if p.closed {
		return gpuerr.New(gpuerr.DeviceLost, "the device is closed")
	}
	p.c.fifo = append(p.c.fifo, &run{p: p, job: j, id: j.ID, op: op, plan: p.c.w.planOf(op)})
	p.c.nextLocked()
	return nil
}

func (c *chip) witnessLocked(op uint64) *witness {
	if c.log[op] == nil {
		c.log[op] = &witness{}
	}
	return c.log[op]
}

// nextLocked begins the next job, if none runs.
func (c *chip) nextLocked() {
	if c.busy != nil || len(c.fifo) == 0 || c.stopped {
		return
	}

	r := c.fifo[0]
	c.fifo = c.fifo[1:]
	c.busy = r
	if r.job.Context.Over(r.job.Round) {
		r.timer = time.AfterFunc(time.Microsecond, func() { c.finish(r, outcome.Outcome{Kind: outcome.Cancelled}) })
		return
	}

	x := c.witnessLocked(r.op)
	x.begun++
	x.began = c.w.moments.Add(1)
	c.w.begins(r.op)
	c.w.hit(classOf[r.plan])
	took := c.w.durationOf(r.op)
	switch r.plan {
	case planNever, planStubborn:
		return
	case planSlow:
		took += 1500 * time.Millisecond
	}

	r.timer = time.AfterFunc(took, func() { c.ends(r) })
}

// ends runs a job to its end and reports as the plan demands.
func (c *chip) ends(r *run) {
	c.mu.Lock()
	if c.busy != r || r.ended || c.stopped {
		c.mu.Unlock()
		return
	}

	how := outcome.Success
	switch r.plan {
	case planError:
		r.job.Context.Fail(r.job.Round)
		how = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}

	case planPanic:
		how = c.panicking(r)
		r.job.Context.Fail(r.job.Round)
	case planTrap:
		r.job.Context.Trap()
		how = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1}}

	case planStray:
		c.w.stray(r.job.Spans[0].IOVA + uint64(len(r.job.Spans[0].Host)) + 8)
	case planGone:
		c.mu.Unlock()
		c.w.host.function.remove("its registers read all ones")
		r.p.sink.DeviceGone("all registers read all ones")
		return

	default:
		if c.w.mutant != MutantLies || r.op%5 != 0 {
			c.executeLocked(r)
		}
	}

	c.mu.Unlock()
	switch r.plan {
	case planLost:
		return // done, and never reported: it stays the device's running job
	case planTwice:
		c.finish(r, how)
		r.p.sink.Complete(backend.Completion{ID: r.id, Outcome: how})
		return
	case planSpurious:
		r.p.sink.Complete(backend.Completion{ID: r.id + 1<<40, Outcome: outcome.Success})
		r.p.sink.Complete(backend.Completion{ID: 0, Outcome: outcome.Success})
	}

	c.finish(r, how)
}

// panicking is a kernel that panics: the device is unharmed.
func (c *chip) panicking(r *run) (how outcome.Outcome) {
	defer func() {
		if recover() != nil {
			how = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
		}
	}()
	panic(fmt.Sprintf("op %d", r.op))
}

// finish reports the end of a job, and begins the next.
func (c *chip) finish(r *run, how outcome.Outcome) {
	c.mu.Lock()
	if r.ended || r.p.closed {
		c.mu.Unlock()
		return
	}
	c.endLocked(r)
	if c.busy == r {
		c.busy = nil
	}
	c.mu.Unlock()
	r.p.sink.Complete(backend.Completion{ID: r.id, Outcome: how, DeviceTime: c.w.durationOf(r.op)})
	c.mu.Lock()
	c.nextLocked()
	c.mu.Unlock()
}

// endLocked records the end before anybody can know of it.
func (c *chip) endLocked(r *run) {
	r.ended = true
	if x := c.log[r.op]; x != nil {
		x.ended = c.w.moments.Add(1)
	}
}

// executeLocked executes the job, through the IOMMU.
func (c *chip) executeLocked(r *run) {
	j := r.job
	spans := make([][]byte, len(j.Spans))
	for i, s := range j.Spans {
		at := iommu.IOVA(s.IOVA)
		if c.w.mutant == MutantWrongPlace && r.op%3 == 0 && s.IOVA%4096 >= 64 {
			at -= 64
		}
		m, ok := c.w.host.function.domain.Reach(at, uint64(len(s.Host)), iommu.ReadWrite)
		if !ok {
			c.w.violate("the device was sent to [%#x, +%d), which is not mapped, by op %d", s.IOVA, len(s.Host), r.op)
			return
		}
		spans[i] = m
	}

	c.w.writes(r.op)
	switch j.Op {
	case backend.OpFill:
		for d := spans[0]; len(d) >= 4; d = d[4:] {
			binary.LittleEndian.PutUint32(d, j.Pattern)
		}
	case backend.OpCopy:
		copy(spans[0], spans[1])
	case backend.OpLaunch:
		n := min(len(spans[0]), len(spans[1])) &^ 3
		for i := 0; i < n; i += 4 {
			binary.LittleEndian.PutUint32(spans[1][i:], binary.LittleEndian.Uint32(spans[0][i:])+uint32(r.op))
		}
	}

	c.witnessLocked(r.op).done++
}

// Cancel implements backend.Backend.
func (p *port) Cancel(id backend.JobID) {
	c := p.c
	c.mu.Lock()
	if r := c.busy; r != nil && r.p == p && r.id == id {
		if r.plan == planStubborn || r.plan == planLost {
			c.mu.Unlock()
			return
		}
		if r.timer != nil && c.w.mutant != MutantIgnoresStop {
			r.timer.Stop()
		}
		c.mu.Unlock()
		if c.w.mutant == MutantIgnoresStop {
			p.sink.Complete(backend.Completion{ID: id, Outcome: outcome.Outcome{Kind: outcome.Cancelled}})
			return
		}
		// It stops a while later, at a time of its own.
		time.AfterFunc(time.Millisecond+time.Duration(r.op%977)*time.Nanosecond, func() { c.finish(r, outcome.Outcome{Kind: outcome.Cancelled}) })
		return
	}

	for i, r := range c.fifo {
		if r.p == p && r.id == id {
			c.fifo = append(c.fifo[:i:i], c.fifo[i+1:]...)
			c.mu.Unlock()
			c.finish(r, outcome.Outcome{Kind: outcome.Cancelled})
			return
		}
	}

	c.mu.Unlock()
}

// Reset implements backend.Backend.
func (p *port) Reset(context.Context) error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.dropLocked(p)
	return nil
}

// Close implements backend.Backend.
func (p *port) Close() error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.closed = true
	p.c.dropLocked(p)
	return nil
}

// dropLocked stops the device's work for a port; nil: for all.
func (c *chip) dropLocked(p *port) {
	if r := c.busy; r != nil && (p == nil || r.p == p) {
		c.endLocked(r)
		if r.timer != nil {
			r.timer.Stop()
		}
		c.busy = nil
	}

	left := c.fifo[:0:0]
	for _, r := range c.fifo {
		if p != nil && r.p != p {
			left = append(left, r)
		} else {
			r.ended = true
		}
	}

	c.fifo = left
}

// stop and begin switch the device's access to memory off and on, for the function.
func (c *chip) stop() {
	if c.w.mutant == MutantNoQuiesce {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.dropLocked(nil)
}

func (c *chip) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = false
}
