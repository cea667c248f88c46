package engine

import (
	"context"
	"errors"
	"maps"
	"slices"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// runDispatcher does what Submit must not wait for: it opens engines, imports, compiles and
// records, and ends jobs that do not begin.
func (b *Backend) runDispatcher() {
	for {
		select {
		case <-b.wake:
		case <-b.done:
			return
		}
		for b.dispatch() {
		}
	}
}

// dispatch does one piece of that, if there is any.
func (b *Backend) dispatch() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, what := b.nextLocked()
	switch {
	case what == nothing:
		return false
	case what == sends:
		b.sendLocked(b.procs[j.group], j)
		return true
	case j.stop || j.work.Context.Over(j.work.Round):
		b.unqueueLocked(j)
		b.scrubbedLocked(j, false)
		b.deliverLocked(j, cancelled, false)
		return true
	case len(j.plan.entries) == 0: // nothing is before it
		b.unqueueLocked(j)
		b.deliverLocked(j, j.plan.ends, true)
		return true
	}

	// Other groups go on meanwhile.
	b.holdLocked(j.group, 1)
	b.preparing[j.group] = true
	b.wg.Go(func() { b.runPrepare(j) })
	return true
}

// runPrepare makes the engine of a job ready for it, or ends the job.
func (b *Backend) runPrepare(j *job) {
	p, err := b.prepare(j)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.preparing, j.group)
	b.holdLocked(j.group, -1)
	b.settleLocked()
	if err != nil && b.state == live && !j.stop {
		b.unreadyLocked(j, p, err)
	}
	b.advanceLocked()
}

// unreadyLocked ends a job that no engine could be made ready for, or has it tried again. b.mu is
// released meanwhile.
//
// +checklocks:b.mu
func (b *Backend) unreadyLocked(j *job, p *proc, err error) {
	if errors.Is(err, errEngineDied) && p != nil && p.hadRuns && j.lost == 0 {
		j.lost++ // another job may have been the end of it
		return
	}
	b.log.Warn("a job cannot be made ready", "group", j.group, "error", err)
	how := deviceError
	if errors.Is(err, gpuerr.LaunchLimit) {
		how = tooMuch
	}
	b.unqueueLocked(j)
	b.deliverLocked(j, how, true)
}

// deliverLocked ends a job and tells the core, unless it was dropped. b.mu is released meanwhile.
//
// +checklocks:b.mu
func (b *Backend) deliverLocked(j *job, how outcome.Outcome, begun bool) {
	c := backend.Completion{ID: j.id, Outcome: how}
	if begun && j.work.Op == backend.OpList {
		c.Begun = 1
	}
	if b.endLocked(j, how, begun) {
		b.tellLocked(c)
	}
}

// tellLocked calls the sink, and sends what could not be sent meanwhile. b.mu is released and
// taken again.
//
// +checklocks:b.mu
func (b *Backend) tellLocked(c backend.Completion) {
	b.delivering++
	sink := b.sink
	b.mu.Unlock()
	sink.Complete(c)
	b.mu.Lock()
	b.delivering--
	b.settleLocked()
	b.advanceLocked()
}

// prepare makes the engine of a job ready for it.
func (b *Backend) prepare(j *job) (*proc, error) {
	ctx, stop := context.WithTimeout(b.life, b.bound)
	defer stop()
	p, err := b.proc(ctx, j.group)
	if err != nil {
		return nil, err
	}

	for _, x := range j.plan.pieces {
		if x.host != nil {
			err = p.imports(x)
		} else {
			err = b.scrubFirst(p, x, j)
		}
		if err != nil {
			return p, err
		}
	}
	for _, v := range j.plan.variants {
		if err := b.compile(p, v, j.plan); err != nil {
			return p, err
		}
	}
	return p, b.record(p, j.rec)
}

// Ready implements backend.Recorder: the engine compiles all programs of the recording.
func (b *Backend) Ready(ctx context.Context, c *backend.Context, entries []backend.Job) error {
	all := &plan{}
	b.mu.Lock()
	for i := range entries {
		e := &entries[i]
		if code, ok := e.Program.(*code); ok && e.Op == backend.OpLaunch && code.of == b && b.startsLocked(e).Kind == outcome.Pending {
			if v := b.variantLocked(code, shape{e.Block, e.Shared}); !slices.Contains(all.variants, v) {
				all.variants = append(all.variants, v)
			}
		}
	}
	b.mu.Unlock()
	if len(all.variants) == 0 {
		return nil
	}

	p, err := b.proc(ctx, groupOf(c))
	if err != nil {
		return err
	}
	for _, v := range all.variants {
		if ctx.Err() != nil {
			return gpuerr.New(gpuerr.Busy, "the programs were not compiled in time: %v", ctx.Err())
		}
		if err := b.compile(p, v, all); err != nil {
			return err
		}
	}
	return nil
}

// compile has an engine compile a program, if it has not.
func (b *Backend) compile(p *proc, v *variant, next *plan) error {
	b.mu.Lock()
	has := p.compiled[v]
	if !has && len(p.compiled) >= maxPipelines {
		b.spareLocked(p, next)
	}
	b.mu.Unlock()
	if has {
		return nil
	}

	_, err := p.call(&wire.Order{Kind: wire.Compile, ID: uint32(v.id), Pipeline: v.pipeline()}, -1)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if v.code.variants[v.shape] == v {
		p.compiled[v] = true
	} else { // it was released meanwhile
		p.postLocked(&wire.Order{Kind: wire.FreePipeline, ID: uint32(v.id)})
	}
	return nil
}

// maxPipelines bounds the compiled programs of an engine: a client may launch one program in
// many workgroups.
const maxPipelines = 512

// spareLocked gives pipelines back that no list, no job and not the next plan need.
//
// +checklocks:b.mu
func (b *Backend) spareLocked(p *proc, next *plan) {
	plans := []*plan{next}
	for r := range p.recorded {
		plans = append(plans, r.plan)
	}
	for _, k := range p.sent {
		plans = append(plans, k.plan)
	}
	needed := map[*variant]bool{}
	for _, pl := range plans {
		for _, v := range pl.variants {
			needed[v] = true
		}
	}
	// It makes no difference in which order they go.
	for _, v := range slices.Collect(maps.Keys(p.compiled)) {
		if !needed[v] {
			b.freePipelineLocked(p, v)
		}
	}
}

// record has an engine record a list that is run again and again.
func (b *Backend) record(p *proc, r *recording) error {
	if r == nil {
		return nil
	}
	b.mu.Lock()
	has := p.recorded[r]
	b.mu.Unlock()
	if has {
		return nil
	}
	_, err := p.call(&wire.Order{Kind: wire.Record, ID: uint32(r.id), Entries: r.plan.entries}, -1)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p.recorded[r] = true
	return nil
}

// scrubFirst puts a job that zeroes what was scrubbed of a piece before one that uses the piece.
func (b *Backend) scrubFirst(p *proc, x *piece, j *job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case x.in != p:
		return gpuerr.New(gpuerr.IO, "the device's own memory is lost")
	case len(x.dirty) == 0 || j.scrub != nil || x.scrub != nil && x.scrub.count == len(x.dirty) || b.jobs[j.id] != j:
		return nil
	}

	s := &job{
		work: &backend.Job{Context: j.work.Context}, group: j.group, order: j.order - 1, scrub: []*piece{x},
		plan: &plan{pieces: []*piece{x}, nanos: -1}, count: min(len(x.dirty), wire.MaxEntries),
	}
	for _, d := range x.dirty[:s.count] {
		s.plan.entries = append(s.plan.entries, wire.Entry{Op: wire.OpFill, Spans: []wire.Span{{Memory: x.id, Off: d.off, Length: d.n}}})
		s.plan.steps = append(s.plan.steps, step{lengths: []uint64{d.n}})
	}
	x.scrub = s
	b.requeueLocked(s)
	return nil
}

// scrubbedLocked notes that a scrub has ended.
//
// +checklocks:b.mu
func (b *Backend) scrubbedLocked(j *job, done bool) {
	for _, x := range j.scrub {
		if x.scrub != j {
			continue
		}
		if x.scrub = nil; done {
			x.dirty = x.dirty[j.count:]
		}
	}
}
