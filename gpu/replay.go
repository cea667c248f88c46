package gpu

import (
	"capgpu/gpu/backend"
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/ring"
)

// A replay runs a list as one job: one completion, one deadline, one unit in flight. Its
// patches change a copy of what was recorded, never the recording: several replays of a
// list may be on their way.

// resolveReplay makes a job of a replay: the list is open, and every patch is checked
// against what was recorded. The entry passed ring.Check.
func (q *queue) resolveReplay(j *job, t *ring.Taken) gpuerr.Code {
	j.work.Op = backend.OpList
	l, err := handles.Lookup[list](q.session.handles, Handle(t.Object))
	if err != nil || l.pins.closed() {
		return gpuerr.Stale
	}
	j.list, j.work.List = l, l.jobs
	if t.Count == 0 {
		j.work.Recording = l.number
		return gpuerr.None
	}
	if len(t.Args) != int(t.Count)*ring.PatchBytes/8 {
		return gpuerr.Internal
	}
	if j.frame, err = l.takeFrame(); err != nil {
		e := gpuerr.From(err)
		j.available = e.Available
		return e.Code
	}
	j.work.List = j.frame.jobs
	return j.frame.apply(t.Args)
}

// replayed counts the launches of a replay that has ended, as far as they were begun.
func (s *Session) replayed(j *job) {
	n := s.launches.Add(uint64(j.launched))
	if every := s.dev.cfg.LaunchRecords; every != 0 && n/every != (n-uint64(j.launched))/every {
		s.dev.auditEvent("launch", s.tenant, "session=%d launch=%d replayed=%d", s.id, n, j.launched)
	}
}

// frame is a copy of a list that one replay at a time patches.
type frame struct {
	list   *list
	charge ledger.Receipt
	jobs   []backend.Job
	nanos  int64           // that all entries are expected to take, as patched; below 0: it is submitted
	ready  []backend.Ready // by entry: what Prepare made here last, to be used again
	// touched are the entries that are not as recorded; isTouched is by entry.
	touched   []uint16
	isTouched []bool
}

// keptFrames is how many frames a list keeps: as many replays with patches can be on
// their way without anything being allocated.
const keptFrames = 4

func (l *list) takeFrame() (*frame, error) {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		f := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		return f, nil
	}
	l.mu.Unlock()
	charge, err := l.session.account.Reserve(ledger.HostMemory, l.charge.Amount())
	if err != nil {
		return nil, err
	}
	charge.Commit()
	return l.newFrame(charge), nil
}

func (l *list) newFrame(charge ledger.Receipt) *frame {
	f := &frame{
		list: l, charge: charge, nanos: l.nanos,
		jobs: append([]backend.Job(nil), l.jobs...), ready: make([]backend.Ready, len(l.jobs)), isTouched: make([]bool, len(l.jobs)),
	}
	for i := range f.jobs {
		to := &f.jobs[i]
		to.Spans = append([]backend.Span(nil), to.Spans...)
		to.Inline = append([]byte(nil), to.Inline...)
	}
	return f
}

// putFrame comes before the list can be forgotten: its close waits for the job.
func (l *list) putFrame(f *frame) {
	l.mu.Lock()
	kept := len(l.free) < keptFrames
	if kept {
		l.free = append(l.free, f)
	}
	l.mu.Unlock()
	if !kept {
		f.charge.Release()
	}
}

// apply makes the frame what was recorded, changed by the patches. After an error it is
// of use to the next apply only.
func (f *frame) apply(args []uint64) gpuerr.Code {
	f.restore()
	for ; len(args) >= ring.PatchBytes/8; args = args[ring.PatchBytes/8:] {
		var p ring.Patch
		if p.SetWords(args[:ring.PatchBytes/8]) != nil || int(p.Entry) >= len(f.jobs) {
			return gpuerr.Invalid
		}
		if !f.isTouched[p.Entry] {
			f.isTouched[p.Entry] = true
			f.touched = append(f.touched, p.Entry)
		}
		if code := f.patch(&p); code != gpuerr.None {
			return code
		}
	}
	for _, i := range f.touched {
		if code := f.recheck(int(i)); code != gpuerr.None {
			return code
		}
	}
	return gpuerr.None
}

// restore undoes the patches of the last replay.
func (f *frame) restore() {
	for _, i := range f.touched {
		from, to := &f.list.jobs[i], &f.jobs[i]
		copy(to.Spans, from.Spans)
		copy(to.Inline, from.Inline)
		to.Grid, to.Ready = from.Grid, from.Ready
		f.isTouched[i] = false
	}
	f.touched, f.nanos = f.touched[:0], f.list.nanos
}

// patch changes one entry. The new value stays within the same buffer, or within the
// inline bytes.
func (f *frame) patch(p *ring.Patch) gpuerr.Code {
	j := &f.jobs[p.Entry]
	if p.Kind == ring.PatchInline {
		if uint64(p.At)+uint64(p.Bytes) > uint64(len(j.Inline)) {
			return gpuerr.Invalid
		}
		b := p.Inline()
		copy(j.Inline[p.At:], b[:p.Bytes])
		return gpuerr.None
	}
	if uint64(p.At) >= uint64(len(j.Spans)) {
		return gpuerr.Invalid
	}
	recorded := uint64(len(f.list.jobs[p.Entry].Spans[p.At].Host))
	off, n := p.A, p.B
	if n == 0 {
		n = recorded
	}
	b := f.list.parts[p.Entry].buffers[p.At]
	switch {
	case off >= b.bytes || n > b.bytes-off:
		return gpuerr.Invalid
	case j.Op == backend.OpCopy && n != recorded:
		return gpuerr.Invalid
	case j.Op == backend.OpFill && (off%4 != 0 || n%4 != 0):
		return gpuerr.Invalid
	case j.Op == backend.OpLaunch:
		if code := bindable(&f.list.session.dev.reactor.limits, off, n); code != gpuerr.None {
			return code
		}
	}
	j.Spans[p.At] = backend.Span{Host: b.host[off : off+n : off+n], IOVA: b.iova + off}
	return gpuerr.None
}

// recheck looks at what follows from all patches of an entry together.
func (f *frame) recheck(i int) gpuerr.Code {
	j, part := &f.jobs[i], &f.list.parts[i]
	switch {
	case j.Op == backend.OpCopy && part.buffers[0] == part.buffers[1]:
		if overlap(j.Spans[0].IOVA, j.Spans[1].IOVA, uint64(len(j.Spans[0].Host))) {
			return gpuerr.Invalid
		}
	case part.natural:
		if code := f.regrid(j, part); code != gpuerr.None {
			return code
		}
	}
	if j.Ready == nil {
		return gpuerr.None // it was never fit
	}
	nanos := f.list.session.dev.reactor.prepare(j, f.ready[i])
	if nanos > 0 {
		f.ready[i] = j.Ready
	}
	if f.nanos >= 0 {
		f.nanos = sumNanos(f.nanos-part.nanos, nanos)
	}
	return gpuerr.None
}

// regrid finds the natural grid anew.
func (f *frame) regrid(j *backend.Job, part *part) gpuerr.Code {
	var bytes [64]uint64
	lengths := bytes[:0]
	for i := range j.Spans {
		lengths = append(lengths, uint64(len(j.Spans[i].Host)))
	}
	j.Grid, j.Block = part.program.info.NaturalGrid(lengths)
	whole := job{uses: uses{program: part.program}}
	whole.work.Grid, whole.work.Block, whole.work.Shared = j.Grid, j.Block, j.Shared
	return whole.checkDims(&f.list.session.dev.reactor.limits)
}
