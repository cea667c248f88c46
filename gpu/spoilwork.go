package gpu

import (
	"slices"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// What work that has not ended ok was to write, and how the client learns of it: see spoils.

// spoil notes what a job, which has not ended ok and still has its pins, was to write.
// Whoever holds engine.mu may call it.
func (j *job) spoil() {
	s := j.queue.session
	if j.spoiled != nil || s.poison.Load() != nil || !s.node.Live() {
		return // the rest of the session ends anyway
	}
	if x := j.spoils(); x != nil {
		j.spoiled = x
		s.spoils.add(x)
	}
}

// spoils is what the job is to write; nil: nothing.
func (j *job) spoils() *spoil {
	if j.list != nil {
		return &spoil{queue: j.queue, pos: j.pos, list: j.list}
	}
	var what []*buffer
	for i, b := range j.buffers {
		if b != nil && j.access(i)&backend.Write != 0 && !slices.Contains(what, b) {
			what = append(what, b)
		}
	}
	if what == nil {
		return nil
	}
	return &spoil{queue: j.queue, pos: j.pos, buffers: what}
}

// spoilEntry is spoil for an entry that was not begun: it was refused, or came too late.
// What it names to be written is spoiled as far as it names any.
func (q *queue) spoilEntry(j *job, t *ring.Taken) {
	if t.Code != gpuerr.None || j.how.Kind == outcome.OK || j.spoiled != nil {
		return
	}
	s, e := q.session, &t.Entry
	named := job{queue: q, pos: j.pos}
	find := func(h uint64) {
		if b, err := lookup[buffer](s.handles, Handle(h)); err == nil {
			named.buffers = append(named.buffers, b)
		} else {
			named.buffers = append(named.buffers, nil)
		}
	}
	switch e.Op {
	case ring.OpCopy, ring.OpFill:
		named.work.Op = backend.OpFill
		find(e.Object)
	case ring.OpLaunch:
		p, err := lookup[program](s.handles, Handle(e.Object))
		if err != nil {
			return
		}
		named.work.Op, named.program = backend.OpLaunch, p
		for i := range min(int(e.Count), len(p.info.Bindings)) {
			find(t.Binding(i).Buffer)
		}
	case ring.OpReplay:
		l, err := lookup[list](s.handles, Handle(e.Object))
		if err != nil || l.pins.closed() {
			return
		}
		named.list = l
	default:
		return
	}
	if x := named.spoils(); x != nil && s.poison.Load() == nil && s.node.Live() {
		j.spoiled = x
		s.spoils.add(x)
	}
}

// publishSpoils publishes completions of which some are of work that spoiled something.
// What the client had published by then is known from looking after it, and if it has
// taken these completions already, from looking before.
func (q *queue) publishSpoils() {
	rouse(q.session.spoils.publish(q), q)
	clear(q.spoilt)
	q.spoilt = q.spoilt[:0]
}

// publish also says which queues have to tell when they are past that.
func (s *spoils) publish(q *queue) (late []*queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.tailsLocked()
	q.ring.Publish(q.told)
	after := s.tailsLocked()
	if _, _, collected := q.ring.Marks(); collected > q.spoilt[0].pos {
		after = before
	}
	return s.tellLocked(q.spoilt, after)
}

// passSpoils tells how far the queue is, while anything is spoiled.
func (q *queue) passSpoils() {
	if !q.owes.Load() && !q.session.spoils.active.Load() {
		return
	}
	q.owes.Store(false)
	until := q.taken - uint64(len(q.batch.Entries)-q.begun)
	if q.head < q.tail {
		until = q.jobs[q.head%uint64(len(q.jobs))].pos
	}
	q.session.spoils.pass(q, until)
}
