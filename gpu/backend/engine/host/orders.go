package host

import (
	"slices"

	"capgpu/ddf"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/internal/shm"
	"capgpu/program"
)

// imports maps memory of the host and has the device reach it.
func (s *server) imports(o *wire.Order, fd int) error {
	m, err := shm.FromFD(fd, o.Bytes)
	if err != nil {
		return s.answer(o, err)
	}
	defer m.Close()
	if err := s.newMemory(o); err != nil {
		return err
	}

	mapping, err := m.Map(0, o.Bytes, true)
	if err != nil {
		return s.answer(o, err)
	}
	imported, err := s.dev.Import(mapping)
	if err != nil {
		if unmapErr := shm.Unmap(mapping); unmapErr != nil {
			return unmapErr
		}
		return s.answer(o, err)
	}
	s.memories[wire.MemoryID(o.ID)] = &memory{Memory: imported, bytes: o.Bytes, mapping: mapping}
	return s.answer(o, nil)
}

func (s *server) alloc(o *wire.Order) error {
	if err := s.newMemory(o); err != nil {
		return err
	}
	if s.device.LocalBytes == 0 {
		return errRule(o, "the device has no memory of its own")
	}
	m, err := s.dev.Alloc(o.Bytes)
	if err != nil {
		return s.answer(o, err)
	}
	s.memories[wire.MemoryID(o.ID)] = &memory{Memory: m, bytes: o.Bytes}
	return s.answer(o, nil)
}

// newMemory checks a name that is to be given, and a size.
func (s *server) newMemory(o *wire.Order) error {
	switch {
	case s.memories[wire.MemoryID(o.ID)] != nil:
		return errRule(o, "memory %d is there", o.ID)
	case o.Bytes == 0 || o.Bytes%ddf.PageBytes != 0 || o.Bytes > 1<<47:
		return errRule(o, "memory of %d bytes", o.Bytes)
	}
	return nil
}

func (s *server) free(o *wire.Order) error {
	m := s.memories[wire.MemoryID(o.ID)]
	if m == nil || m.users > 0 {
		return errRule(o, "memory %d is unknown or in use", o.ID)
	}
	if err := m.Free(); err != nil {
		return s.answer(o, err)
	}
	delete(s.memories, wire.MemoryID(o.ID))
	if m.mapping != nil {
		if err := shm.Unmap(m.mapping); err != nil {
			return err
		}
	}
	return s.answer(o, nil)
}

func (s *server) compile(o *wire.Order) error {
	p, d := o.Pipeline, &s.device
	switch {
	case s.pipelines[wire.PipelineID(o.ID)] != nil:
		return errRule(o, "pipeline %d is there", o.ID)
	case p.Bindings >= d.MaxBindings || p.PushBytes > d.MaxPushBytes || p.SharedBytes > d.MaxSharedBytes || !within(p.Block, d.MaxBlock) ||
		p.Block.Count() > uint64(d.MaxThreadsPerBlock):
		return errRule(o, "a program that is more than the device takes")
	}

	compiled, err := s.dev.Compile(p)
	if err != nil {
		return s.answer(o, err)
	}
	spec := *p
	spec.Module = nil
	s.pipelines[wire.PipelineID(o.ID)] = &pipeline{Pipeline: compiled, spec: spec}
	return s.answer(o, nil)
}

func within(d, most program.Dim3) bool { return d.X <= most.X && d.Y <= most.Y && d.Z <= most.Z }

func (s *server) freePipeline(o *wire.Order) error {
	p := s.pipelines[wire.PipelineID(o.ID)]
	if p == nil || p.users > 0 {
		return errRule(o, "pipeline %d is unknown or in use", o.ID)
	}
	if err := p.Free(); err != nil {
		return s.answer(o, err)
	}
	delete(s.pipelines, wire.PipelineID(o.ID))
	return s.answer(o, nil)
}

func (s *server) record(o *wire.Order) error {
	if s.lists[wire.ListID(o.ID)] != nil {
		return errRule(o, "list %d is there", o.ID)
	}
	l, err := s.newList(o)
	switch {
	case err != nil:
		return err
	case l.err != nil:
		return s.answer(o, l.err)
	}
	s.lists[wire.ListID(o.ID)] = l.list
	return s.answer(o, nil)
}

// recorded is a list, or why the device has not recorded it.
type recorded struct {
	*list
	err error
}

// newList resolves entries and has the device record them. The error is a rule that was broken.
func (s *server) newList(o *wire.Order) (recorded, error) {
	l := &list{entries: uint32(len(o.Entries)), once: o.Kind == wire.RunOnce}
	entries := make([]Entry, len(o.Entries))
	for i := range o.Entries {
		if err := s.resolve(o, i, l, &entries[i]); err != nil {
			return recorded{}, err
		}
	}

	var err error
	if l.List, err = s.dev.Record(entries); err != nil {
		return recorded{err: err}, nil
	}
	for _, m := range l.memories {
		m.users++
	}
	for _, p := range l.pipelines {
		p.users++
	}
	return recorded{list: l}, nil
}

// resolve checks an entry against what it names.
func (s *server) resolve(o *wire.Order, i int, l *list, to *Entry) error {
	e := &o.Entries[i]
	to.Entry = e
	for k, span := range e.Spans {
		m := s.memories[span.Memory]
		if m == nil || span.Off > m.bytes || span.Length > m.bytes-span.Off {
			return errRule(o, "entry %d: span %d is not within its memory", i, k)
		}
		to.Memory = append(to.Memory, m.Memory)
		if !slices.Contains(l.memories, m) {
			l.memories = append(l.memories, m)
		}
	}
	if e.Op != wire.OpLaunch {
		return nil
	}

	p, d := s.pipelines[e.Pipeline], &s.device
	switch {
	case p == nil:
		return errRule(o, "entry %d: there is no pipeline %d", i, e.Pipeline)
	case int(p.spec.Bindings) != len(e.Spans) || int(p.spec.PushBytes) != len(e.Push)+4:
		return errRule(o, "entry %d: %d bindings and %d bytes are not the program's", i, len(e.Spans), len(e.Push))
	case !within(e.Grid, d.MaxGrid):
		return errRule(o, "entry %d: a grid of %v", i, e.Grid)
	}
	for k, span := range e.Spans {
		if span.Off%uint64(d.OffsetAlign) != 0 || span.Length > d.MaxBindingBytes {
			return errRule(o, "entry %d: binding %d of %d bytes at %d", i, k, span.Length, span.Off)
		}
	}
	to.Pipeline = p.Pipeline
	if !slices.Contains(l.pipelines, p) {
		l.pipelines = append(l.pipelines, p)
	}
	return nil
}

func (s *server) freeList(o *wire.Order) error {
	l := s.lists[wire.ListID(o.ID)]
	if l == nil || s.runs.uses(l) {
		return errRule(o, "list %d is unknown or runs", o.ID)
	}
	delete(s.lists, wire.ListID(o.ID))
	return s.answer(o, s.release(l))
}

func (r *runs) uses(l *list) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.runs > 0
}

// skippedAnswer is that of a run behind one that ended early.
func skippedAnswer(o *wire.Order) *wire.Answer {
	return &wire.Answer{Kind: o.Kind, Seq: o.Seq, Result: &wire.Result{Skipped: true}}
}

// run begins a run. Its end is told in the order of the runs: also where it could not begin.
func (s *server) run(o *wire.Order) error {
	x := &run{order: wire.Order{Kind: o.Kind, Seq: o.Seq}}
	s.runs.mu.Lock()
	ahead, skipping := len(s.runs.all), s.runs.skipping
	s.runs.mu.Unlock()

	if ahead >= wire.MaxAhead {
		return errRule(o, "%d runs have not ended", wire.MaxAhead)
	}

	if o.Kind == wire.Run {
		if x.list = s.lists[wire.ListID(o.ID)]; x.list == nil {
			return errRule(o, "there is no list %d", o.ID)
		}
	} else if skipping {
		x.answer = skippedAnswer(o)
	} else {
		l, err := s.newList(o)
		if err != nil {
			return err
		}
		if x.list = l.list; l.err != nil {
			x.answer = failure(o, l.err)
		}
	}
	return s.submit(x, skipping)
}

// submit adds a run to those that have not ended before the device can end it.
func (s *server) submit(x *run, skipping bool) error {
	if skipping && x.answer == nil {
		x.answer = skippedAnswer(&x.order)
	}

	r := &s.runs
	r.mu.Lock()
	r.all = append(r.all, x)
	if x.list != nil {
		x.list.runs++
	}
	if x.answer != nil {
		r.skipping = true
	}
	r.mu.Unlock()

	if x.answer == nil {
		err := s.dev.Submit(x.list.List)
		if err == nil {
			return nil
		}
		r.mu.Lock()
		x.answer, r.skipping = failure(&x.order, err), true
		r.mu.Unlock()
	}
	return s.tell(nil)
}
