package engine

import (
	"slices"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// plan is a job as its engine is told it. It does not change.
type plan struct {
	entries  []wire.Entry
	steps    []step // of each entry
	pieces   []*piece
	variants []*variant
	// ends, if it is not pending, is how the job ends behind these entries: the next one cannot be
	// run. There may be no entries.
	ends outcome.Outcome
	// nanos is what the plan is expected to take; below 0: nobody knows. It changes where the plan
	// was recorded, and is guarded by Backend.mu.
	nanos int64
}

// step is how the end of an entry is read.
type step struct {
	variant *variant // nil: it is no launch
	lengths []uint64 // of its bindings
}

// recording is a list that is run again and again, as it was the first time.
type recording struct {
	plan *plan
	id   wire.ListID
}

// planLocked makes the plan of a job, or finds that of its list.
//
// +checklocks:b.mu
func (b *Backend) planLocked(job *backend.Job) (*plan, *recording) {
	group := groupOf(job.Context)
	if job.Op != backend.OpList {
		p := &plan{}
		b.addLocked(p, job, group)
		return p, nil
	}
	if r := b.lists[job.Recording]; r != nil && job.Recording != 0 {
		return r.plan, r
	}

	p := &plan{entries: make([]wire.Entry, 0, len(job.List)), steps: make([]step, 0, len(job.List))}
	for i := range job.List {
		if !b.addLocked(p, &job.List[i], group) {
			break
		}
	}
	if job.Recording == 0 || p.ends.Kind != outcome.Pending {
		return p, nil
	}
	p.nanos = -1 // nothing is known before its first run
	r := &recording{plan: p, id: wire.ListID(b.listIDs.take())}
	b.lists[job.Recording] = r
	return p, r
}

// addLocked adds an entry. It is false if the job ends with it.
//
// +checklocks:b.mu
func (b *Backend) addLocked(p *plan, job *backend.Job, group uint32) bool {
	e, s := wire.Entry{Pattern: job.Pattern}, step{}
	switch how := b.startsLocked(job); {
	case how.Kind != outcome.Pending:
		p.ends = how
		return false
	case job.Op == backend.OpCopy:
		e.Op = wire.OpCopy
	case job.Op == backend.OpFill:
		e.Op = wire.OpFill
	default:
		c := job.Program.(*code)
		s.variant = b.variantLocked(c, shape{job.Block, job.Shared})
		e.Op, e.Pipeline, e.Grid, e.Push = wire.OpLaunch, s.variant.id, job.Grid, job.Inline
		for i := range c.verified.Info.Bindings {
			e.Access = append(e.Access, c.verified.Info.Bindings[i].Access)
		}
		if !slices.Contains(p.variants, s.variant) {
			p.variants = append(p.variants, s.variant)
		}
	}

	for _, span := range job.Spans {
		n := uint64(len(span.Host))
		x := b.memory.find(group, span.IOVA, n)
		if x == nil || x.host == nil && x.in == nil {
			p.ends = deviceError // memory that the core did not map, or that is lost
			return false
		}
		e.Spans = append(e.Spans, wire.Span{Memory: x.id, Off: span.IOVA - x.iova, Length: n})
		s.lengths = append(s.lengths, n)
		if !slices.Contains(p.pieces, x) {
			p.pieces = append(p.pieces, x)
		}
	}
	if job.Op == backend.OpLaunch && !b.alignedLocked(&e) {
		p.ends = tooMuch
		return false
	}

	p.entries, p.steps = append(p.entries, e), append(p.steps, s)
	if p.nanos >= 0 {
		p.nanos = sum(p.nanos, b.nanosLocked(&e, &s))
	}
	return true
}

// Outcomes of jobs that cannot be run.
var (
	deviceError = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
	tooMuch     = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}
	cancelled   = outcome.Outcome{Kind: outcome.Cancelled}
)

func misaligned(binding int, off uint64) outcome.Outcome {
	return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.Misaligned, Binding: uint16(binding), Offset: off}}
}

// startsLocked is how a job that cannot be run ends; pending: it can.
//
// +checklocks:b.mu
func (b *Backend) startsLocked(job *backend.Job) outcome.Outcome {
	switch job.Op {
	case backend.OpFill:
		if s := job.Spans[0]; s.IOVA%4 != 0 {
			return misaligned(0, 0)
		} else if n := uint64(len(s.Host)); n%4 != 0 {
			return misaligned(0, n&^3)
		}
	case backend.OpLaunch:
		if job.Check { // nothing here watches for races
			return deviceError
		}
		for i, s := range job.Spans {
			if s.IOVA%4 != 0 {
				return misaligned(i, 0)
			}
		}
		if !within(job.Grid, b.device.MaxGrid) || !b.takesBlock(job.Block) ||
			job.Program.(*code).verified.Info.SharedFor(job.Block)+uint64(job.Shared) > uint64(b.info.Limits.MaxSharedBytes) {
			return tooMuch
		}
	}
	return outcome.Outcome{}
}

// alignedLocked reports whether the device takes the bindings of a launch. The core has seen to
// that.
//
// +checklocks:b.mu
func (b *Backend) alignedLocked(e *wire.Entry) bool {
	l := &b.info.Limits
	for _, s := range e.Spans {
		if s.Off%uint64(l.OffsetAlign) != 0 || s.Length > l.MaxBindingBytes {
			return false
		}
	}
	return true
}

// slowest is the pace that a device has at least, when it moves memory: bytes in a nanosecond.
const slowest = 1

// shortest is the time that a plan takes at least.
const shortest = time.Microsecond

// nanosLocked is what an entry is expected to take; below 0: nobody knows.
//
// +checklocks:b.mu
func (b *Backend) nanosLocked(e *wire.Entry, s *step) int64 {
	switch {
	case s.variant == nil:
		return int64(shortest) + int64(e.Spans[0].Length)/slowest
	case e.Grid.Count() <= s.variant.groups:
		return s.variant.nanos
	}
	return -1
}

// mostAhead is what the runs before one may be expected to take together, for that to be ordered
// before they have ended: for so long it cannot be taken back.
const mostAhead = int64(500 * time.Microsecond)

// sum adds expected times; below 0: more than mostAhead, or not known.
func sum(a, b int64) int64 {
	if a < 0 || b < 0 || b > mostAhead || a+b > mostAhead {
		return -1
	}
	return a + b
}

// checkJob refuses what the device cannot be given. The core has checked all of it before; a job
// that gets here wrong is a bug of the core.
func (b *Backend) checkJob(job *backend.Job) error {
	if job == nil {
		return gpuerr.New(gpuerr.Invalid, "job is nil")
	}
	if len(job.Spans) > int(b.info.Limits.MaxBindings) && job.Op != backend.OpCopy {
		return gpuerr.New(gpuerr.LaunchLimit, "job has %d spans; the device has %d bindings", len(job.Spans), b.info.Limits.MaxBindings)
	}
	switch job.Op {
	case backend.OpCopy, backend.OpFill:
		return backend.CheckMove(job)
	case backend.OpLaunch:
		return b.checkLaunch(job)
	case backend.OpList:
		return b.checkList(job)
	default:
		return gpuerr.New(gpuerr.Invalid, "op %d is not launch, copy, fill or list", job.Op)
	}
}

func (b *Backend) checkList(job *backend.Job) error {
	if len(job.List) == 0 || len(job.List) > backend.MaxListEntries || len(job.Spans) != 0 {
		return gpuerr.New(gpuerr.Invalid, "a list has 1 to %d entries, not %d, and no spans of its own", backend.MaxListEntries, len(job.List))
	}
	b.mu.Lock()
	known := job.Recording != 0 && b.lists[job.Recording] != nil
	b.mu.Unlock()
	if known {
		return nil
	}
	for i := range job.List {
		if job.List[i].Op == backend.OpList {
			return gpuerr.New(gpuerr.Invalid, "entry %d of a list is a list", i)
		}
		if err := b.checkJob(&job.List[i]); err != nil {
			return gpuerr.New(gpuerr.CodeOf(err), "entry %d: %s", i, gpuerr.From(err).Msg)
		}
	}
	return nil
}

func (b *Backend) checkLaunch(job *backend.Job) error {
	c, ok := job.Program.(*code)
	if !ok || c == nil || c.of != b {
		return gpuerr.New(gpuerr.Invalid, "the program is not one of this device")
	}
	return backend.CheckLaunch(job, &c.verified.Info, &b.info.Limits)
}
