package gpu

import (
	"encoding/binary"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ring"
)

// budget is how long a submission may run, in all and without getting on: what it
// asked for or the default, and never longer than the session's policy.
func (s *Session) budget(micros uint32) (all, stall time.Duration) {
	switch {
	case micros != 0:
		all = min(time.Duration(micros)*time.Microsecond, s.allowed(s.longest))
		return all, all
	case s.dev.reactor.traits.progresser != nil:
		return s.allowed(s.longest), s.allowed(s.deadline)
	}
	all = s.allowed(s.deadline)
	return all, all
}

// allowed is a time that the session had when it was opened, as far as the policy of its
// tenant still gives it.
func (s *Session) allowed(d time.Duration) time.Duration {
	if most := s.tenant.longest.Load(); most > 0 {
		return min(d, time.Duration(most))
	}
	return d
}

// resolve makes a job of an entry: handles become memory, every range is bounded, nothing
// used is closing. The entry passed the ring's checks. When the code is not None the caller
// lets go of what the job uses.
func (q *queue) resolve(j *job, t *ring.Taken) gpuerr.Code {
	e := &t.Entry
	j.work.Spans = j.work.Spans[:0]
	j.work.Inline, j.work.Pattern, j.work.Shared, j.work.Recording = nil, 0, 0, 0
	j.work.Context, j.work.Check = &q.session.context, q.session.check
	switch e.Op {
	case ring.OpLaunch:
		j.work.Op = backend.OpLaunch
		return q.resolveLaunch(j, t)
	case ring.OpCopy:
		j.work.Op = backend.OpCopy
		dstOff, src, srcOff, n := e.CopyRange()
		if e.Object == src && overlap(dstOff, srcOff, n) {
			return gpuerr.Invalid
		}
		if code := j.use(Handle(e.Object), dstOff, n, 0); code != gpuerr.None {
			return code
		}
		return j.use(Handle(src), srcOff, n, 0)
	case ring.OpReplay:
		return q.resolveReplay(j, t)
	default:
		j.work.Op = backend.OpFill
		off, n, pattern := e.FillRange()
		j.work.Pattern = pattern
		if off%4 != 0 || n%4 != 0 {
			return gpuerr.Invalid
		}
		return j.use(Handle(e.Object), off, n, 0)
	}
}

// overlap of two ranges of n bytes; it does not matter whether they are in bounds.
func overlap(a, b, n uint64) bool {
	if a > b {
		a, b = b, a
	}
	return b-a < n
}

// use adds a buffer and a range of it to the job. access is what a program does with
// it: 0 for copies and fills, which are not bound by usage.
func (j *job) use(h Handle, off, n uint64, access backend.Access) gpuerr.Code {
	b, err := handles.Lookup[buffer](j.queue.session.handles, h)
	if err != nil {
		return gpuerr.Stale
	}
	// In this order, nothing can overflow.
	if off >= b.bytes || n == 0 || n > b.bytes-off {
		return gpuerr.Invalid
	}
	if access&backend.Read != 0 && b.usage&(UsageStorage|UsageUpload) == 0 ||
		access&backend.Write != 0 && b.usage&(UsageStorage|UsageReadback) == 0 {
		return gpuerr.Invalid
	}
	if b.pins.closed() {
		return gpuerr.Stale
	}
	j.buffers = append(j.buffers, b)
	j.work.Spans = append(j.work.Spans, backend.Span{Host: b.host[off : off+n : off+n], IOVA: b.iova + off})
	return gpuerr.None
}

// resolveLaunch checks a launch against its program and the device's limits.
func (q *queue) resolveLaunch(j *job, t *ring.Taken) gpuerr.Code {
	e := &t.Entry
	lim := &q.session.dev.reactor.limits
	p, err := handles.Lookup[program](q.session.handles, Handle(e.Object))
	if err != nil || p.pins.closed() {
		return gpuerr.Stale
	}
	j.program, j.work.Program = p, p.code
	switch {
	case uint32(e.Count) > lim.MaxBindings || e.InlineBytes() > lim.MaxInlineBytes:
		return gpuerr.LaunchLimit
	case p.info.SharedSize == nil && uint64(e.SharedBytes())+uint64(p.info.SharedBytes) > uint64(lim.MaxSharedBytes):
		return gpuerr.LaunchLimit
	case !takesShared(p.info, e.SharedBytes()):
		return gpuerr.Invalid
	case int(e.Count) != len(p.info.Bindings) || e.InlineBytes() != p.info.InlineBytes:
		return gpuerr.Invalid
	}
	j.work.Shared = e.SharedBytes()
	j.inline = j.inline[:0]
	for _, w := range t.Args[4*int(e.Count):] {
		j.inline = binary.LittleEndian.AppendUint64(j.inline, w)
	}
	j.inline = j.inline[:e.InlineBytes()]
	j.work.Inline = j.inline
	lengths := q.intake.lengths[:0]
	for i := range p.info.Bindings {
		b := t.Binding(i)
		if code := j.bind(&b, p.info.Bindings[i].Access); code != gpuerr.None {
			return code
		}
		lengths = append(lengths, uint64(len(j.work.Spans[i].Host)))
	}
	q.intake.lengths = lengths
	grid, block := e.Grid(), e.Block()
	j.work.Grid, j.work.Block = backend.Dim3(grid), backend.Dim3(block)
	switch {
	case block != (ring.Dim3{}):
	case grid == (ring.Dim3{}):
		j.work.Grid, j.work.Block = p.info.NaturalGrid(lengths)
	default:
		j.work.Block = p.info.Block
	}
	return j.checkDims(lim)
}

// bind is use for a binding, where length 0 is up to the end.
func (j *job) bind(b *ring.Binding, access backend.Access) gpuerr.Code {
	n := b.Len
	if n == 0 {
		buf, err := handles.Lookup[buffer](j.queue.session.handles, Handle(b.Buffer))
		if err != nil {
			return gpuerr.Stale
		}
		if b.Off >= buf.bytes {
			return gpuerr.Invalid
		}
		n = buf.bytes - b.Off
	}
	if code := j.use(Handle(b.Buffer), b.Off, n, access); code != gpuerr.None {
		return code
	}
	return bindable(&j.queue.session.dev.reactor.limits, b.Off, n)
}

// bindable reports whether the device can bind n bytes of a buffer from off on.
func bindable(lim *backend.Limits, off, n uint64) gpuerr.Code {
	if off%uint64(max(lim.OffsetAlign, 1)) != 0 || lim.MaxBindingBytes > 0 && n > lim.MaxBindingBytes {
		return gpuerr.LaunchLimit
	}
	return gpuerr.None
}

// checkDims checks grid and block.
func (j *job) checkDims(lim *backend.Limits) gpuerr.Code {
	g, b := j.work.Grid, j.work.Block
	if g.X == 0 || g.Y == 0 || g.Z == 0 || b.X == 0 || b.Y == 0 || b.Z == 0 {
		return gpuerr.Invalid
	}
	if max(g.X, g.Y, g.Z) > lim.MaxGridDim || max(b.X, b.Y, b.Z) > lim.MaxBlockDim {
		return gpuerr.LaunchLimit
	}
	// Each factor is bounded above by 32 bits, and a product of two fits 64.
	if xy := uint64(b.X) * uint64(b.Y); xy > uint64(lim.MaxThreadsPerBlock) || xy*uint64(b.Z) > uint64(lim.MaxThreadsPerBlock) {
		return gpuerr.LaunchLimit
	}
	info := j.program.info
	if !info.BlockFree && b != info.Block {
		return gpuerr.LaunchLimit
	}
	if info.SharedSize != nil { // else it was looked at before
		if static := info.SharedFor(b); static > uint64(lim.MaxSharedBytes) || static+uint64(j.work.Shared) > uint64(lim.MaxSharedBytes) {
			return gpuerr.LaunchLimit
		}
	}
	return gpuerr.None
}

// takesShared reports whether so much dynamic shared memory is a whole number of
// elements of the program's dynamic array, if it has one.
func takesShared(info *backend.ProgramInfo, bytes uint32) bool {
	if info.DynamicElementBytes == 0 {
		return bytes == 0
	}
	return bytes%info.DynamicElementBytes == 0
}
