package difftest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/gputest/refmodel"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/program"
)

var limits = backend.Limits{
	MaxThreadsPerBlock: 256, MaxBlockDim: 128, MaxGridDim: 4096, MaxSharedBytes: 8192, MaxBindings: 6, MaxInlineBytes: 40,
	OffsetAlign: 4, MaxBindingBytes: 48 << 10, MaxJobs: 64, SubgroupSize: 32, CancelBound: 100 * time.Millisecond,
}

// device does nothing, at once, and says what it was told to do.
type device struct {
	sink  backend.Sink
	fails bool // some work
	began time.Time

	ran      atomic.Uint64 // jobs, by Run
	jobs     atomic.Uint64 // and entries of lists count once
	lastIOVA atomic.Uint64 // of the first span of the last job
	trap     atomic.Bool   // the next job traps
	bad      atomic.Pointer[string]
	// busy is called once while the device has a job; nil: nothing is.
	busy atomic.Pointer[func()]
}

// fails says which work fails, by its fingerprint.
func fails(f uint64) bool { return f%512 == 0 }

func (d *device) Info() backend.Info {
	return backend.Info{Name: "null", MemoryBytes: 1 << 32, Limits: limits, Lists: true}
}

func (d *device) Programs() []string {
	names := make([]string, len(programs))
	for i := range programs {
		names[i] = programs[i].info.Name
	}
	return names
}

func (d *device) Builtin(name string) (backend.Program, error) {
	for i := range programs {
		if programs[i].info.Name == name {
			return &programs[i], nil
		}
	}
	return nil, gpuerr.New(gpuerr.NoProgram, "there is no %q", name)
}

func (d *device) Load(context.Context, []byte) (backend.Program, error) {
	return nil, gpuerr.New(gpuerr.Unimplemented, "nothing is loaded here")
}

func (d *device) Start(s backend.Sink) error  { d.sink = s; return nil }
func (d *device) Cancel(backend.JobID)        {}
func (d *device) Reset(context.Context) error { return nil }
func (d *device) Close() error                { return nil }
func (d *device) complain(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	d.bad.CompareAndSwap(nil, &text)
}

func (d *device) Submit(j *backend.Job) error {
	how, took := d.run(j)
	d.sink.Complete(backend.Completion{ID: j.ID, Outcome: how, DeviceTime: took, Begun: uint32(len(j.List))})
	return nil
}

// runner is a device that runs most work on the caller's goroutine.
type runner struct{ *device }

// Prepare implements backend.Runner.
func (r runner) Prepare(j *backend.Job, _ backend.Ready) (backend.Ready, int64, bool) {
	if j.Op == backend.OpFill && j.Pattern%8 == 0 {
		return nil, 0, false
	}
	return r, 500, true
}

// Run implements backend.Runner.
func (r runner) Run(jobs []*backend.Job, ends []backend.End) (n int) {
	for i, j := range jobs {
		if j.Op != backend.OpList && j.Ready != backend.Ready(r) {
			r.complain("a job runs that was not prepared")
		}
		e := &ends[i]
		e.Outcome, e.DeviceTime = r.run(j)
		e.Begun = uint32(len(j.List))
		r.ran.Add(1)
		if e.Outcome.Kind == outcome.Failed && e.Outcome.Cause != outcome.TrapCause {
			return i + 1
		}
	}
	return len(jobs)
}

// run is one job.
func (d *device) run(j *backend.Job) (how outcome.Outcome, took time.Duration) {
	if j.Context.Over(j.Round) {
		return outcome.Outcome{Kind: outcome.Cancelled}, 0
	}
	d.jobs.Add(1)
	if f := d.busy.Load(); f != nil && d.busy.CompareAndSwap(f, nil) {
		(*f)()
	}
	f := refmodel.Begin
	if j.Op == backend.OpList {
		f.Add(refmodel.OpReplay)
		for i := range j.List {
			f.Add(uint64(d.sum(&j.List[i])))
		}
	} else {
		f = d.sum(j)
	}
	how, took = outcome.Success, time.Duration(f.Nanos())
	switch {
	case d.trap.Load():
		d.trap.Store(false)
		j.Context.Trap()
		how = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.Misaligned}}
	case d.fails && fails(uint64(f)):
		j.Context.Fail(j.Round)
		how = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
	}
	return how, took
}

// sum is the fingerprint of one piece of work.
func (d *device) sum(j *backend.Job) refmodel.Fingerprint {
	f := refmodel.Begin
	switch j.Op {
	case backend.OpLaunch:
		f.Add(refmodel.OpLaunch)
		f.Add(j.Program.(*nullProgram).number)
		f.AddDims(j.Grid.X, j.Grid.Y, j.Grid.Z)
		f.AddDims(j.Block.X, j.Block.Y, j.Block.Z)
		f.Add(uint64(j.Shared))
		f.AddBytes(j.Inline)
	case backend.OpCopy:
		f.Add(refmodel.OpCopy)
	case backend.OpFill:
		f.Add(refmodel.OpFill)
		f.Add(uint64(j.Pattern))
	default:
		d.complain("an operation %d", j.Op)
	}
	for i := range j.Spans {
		s := &j.Spans[i]
		if len(s.Host) != cap(s.Host) {
			d.complain("memory beyond a span is within reach: %d bytes of %d", len(s.Host), cap(s.Host))
		}
		f.Add(s.IOVA)
		f.Add(uint64(len(s.Host)))
	}
	if len(j.Spans) > 0 {
		d.lastIOVA.Store(j.Spans[0].IOVA)
	}
	return f
}

// stepper is a device that shows how its jobs get on.
type stepper struct{ *device }

func (s stepper) Progress() uint64 { return s.jobs.Load() }

// backendOf makes a device, of one sort after the other.
func backendOf(i int) (*device, backend.Backend) {
	d := &device{fails: i%2 == 0, began: time.Now()}
	switch i % 3 {
	case 0:
		return d, runner{d}
	case 1:
		return d, stepper{d}
	}
	return d, d
}

var (
	_ backend.Backend    = (*device)(nil)
	_ backend.Progresser = stepper{}
	_ backend.Runner     = runner{}
)

// nullProgram is a program that the device knows by a number.
type nullProgram struct {
	number uint64
	info   backend.ProgramInfo
	model  refmodel.Program
}

func (p *nullProgram) Info() *backend.ProgramInfo { return &p.info }

var programs = makePrograms()

func makePrograms() []nullProgram {
	const r, w, rw = backend.Read, backend.Write, backend.ReadWrite
	all := []nullProgram{
		program1("bare", 0, 0, 0, program.Dim3{X: 32, Y: 1, Z: 1}, true, program.Grid{}),
		program1("fixed", 4, 512, 0, program.Dim3{X: 8, Y: 4, Z: 2}, false, program.Grid{}, rw),
		program1("two", 12, 0, 4, program.Dim3{X: 64, Y: 1, Z: 1}, true, program.Grid{Cover: "b1", ElementBytes: 8, PerGroup: 3}, r, w),
		program1("three", 20, 4096, 12, program.Dim3{X: 1, Y: 1, Z: 1}, true, program.Grid{}, r, r, w),
		program1("six", 40, 0, 1, program.Dim3{X: 16, Y: 16, Z: 1}, false, program.Grid{Groups: 7}, r, w, rw, r, w, rw),
		program1("writes", 8, 8192, 16, program.Dim3{X: 128, Y: 2, Z: 1}, true, program.Grid{ElementBytes: 1, PerGroup: 5}, w),
	}
	for i := range all {
		all[i].number = 1000 + uint64(i)
		all[i].model.Number = all[i].number
	}
	return all
}

// program1 says the same twice: as the core is told, and as the model is.
func program1(name string, inline, shared, dynamic uint32, block program.Dim3, free bool, grid program.Grid, access ...backend.Access) nullProgram {
	p := nullProgram{
		info:  backend.ProgramInfo{Name: name, InlineBytes: inline, SharedBytes: shared, DynamicElementBytes: dynamic, Block: block, BlockFree: free, Grid: grid},
		model: refmodel.Program{InlineBytes: inline, SharedBytes: shared, DynamicElementBytes: dynamic, Block: [3]uint32{block.X, block.Y, block.Z}, BlockFree: free},
	}
	p.model.Natural = refmodel.Natural{Groups: grid.Groups, Cover: -1, ElementBytes: grid.ElementBytes, PerGroup: grid.PerGroup}
	for i, a := range access {
		name := fmt.Sprint("b", i)
		p.info.Bindings = append(p.info.Bindings, backend.BindingInfo{Name: name, Access: a})
		p.model.Access = append(p.model.Access, refmodel.Access(a))
		if grid.Cover == name {
			p.model.Natural.Cover = i
		}
	}
	return p
}
