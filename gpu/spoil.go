package gpu

import (
	"slices"
	"sync"
	"sync/atomic"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// Work that does not end ok spoils what it was to write: what its program writes, the
// destination of a copy or fill, all that a list writes. Work of the same session that
// reads it, has not begun, and was published before the completion of the work that
// failed was, does not run: it ends cancelled (dependency), and spoils in turn. In the
// queue of what failed that goes for what comes after it.
//
//	ends not ok ─► spoil ────────► its completion is published ────────► nothing older is left
//	               what reads it    what is published from here on        forgotten
//	               does not run     runs: the client may know
//
// What the device has already, behind the work that fails, it holds back by itself
// (backend.Job.Needs); where it cannot, the engine does not send what reads what the device
// is to write (flow.mustWait). All else is looked at when it is about to be sent.
//
// A trap needs none of this: it ends all that its session has (poison.go).
//
// While nothing is spoiled all that this costs is a load for each job.
type spoils struct {
	active atomic.Bool // there are some: bursts and replays by the queue itself wait

	mu sync.Mutex // after engine.mu
	// +checklocks:mu
	queues []*queue // of the session
	// +checklocks:mu
	open []*spoil // whose completions are not published
	// +checklocks:mu
	told map[*buffer]horizon // by what they spoiled, the latest of those that are
}

// spoil is what one entry, which did not end ok, was to write.
type spoil struct {
	queue *queue
	pos   uint64 // of the entry
	what  map[*buffer]struct{}
}

// horizon is, by queue, up to which entry had been published when a completion was. A
// queue that has nothing left of that is not in it.
type horizon map[*queue]uint64

// join is called before the queue's goroutine starts.
func (s *spoils) join(q *queue) {
	q.taken, _, _ = q.ring.Marks() // it has what a restored queue has left of its batch
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
}

// leave is called when nothing of the queue runs or will, before its ring is closed.
func (s *spoils) leave(q *queue) {
	s.mu.Lock()
	mine := slices.DeleteFunc(slices.Clone(s.open), func(x *spoil) bool { return x.queue != q })
	s.mu.Unlock()
	if len(mine) > 0 {
		s.tell(mine, s.tails())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = slices.DeleteFunc(s.queues, func(x *queue) bool { return x == q })
	s.passLocked(q, ^uint64(0))
}

// add notes what is spoiled from now on.
func (s *spoils) add(x *spoil) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, x)
	s.active.Store(true)
}

// tails is up to where each queue of the session is published.
func (s *spoils) tails() map[*queue]uint64 {
	s.mu.Lock()
	queues := slices.Clone(s.queues)
	s.mu.Unlock()
	tails := make(map[*queue]uint64, len(queues))
	for _, q := range queues {
		_, tails[q], _ = q.ring.Marks()
	}
	return tails
}

// tell notes that completions were published when the queues were at tails.
func (s *spoils) tell(xs []*spoil, tails map[*queue]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil {
		s.told = map[*buffer]horizon{}
	}
	for _, x := range xs {
		s.open = slices.DeleteFunc(s.open, func(y *spoil) bool { return x == y })
		for b := range x.what {
			h := s.told[b]
			if h == nil {
				h = horizon{}
				s.told[b] = h
			}
			for _, q := range s.queues {
				h[q] = max(h[q], tails[q]) // another queue may have told of a later one before
				q.owes.Store(true)
			}
		}
	}
	s.passLocked(nil, 0)
}

// pass notes that all of the queue before a position has ended.
func (s *spoils) pass(q *queue, until uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passLocked(q, until)
}

// +checklocks:s.mu
func (s *spoils) passLocked(q *queue, until uint64) {
	for b, h := range s.told {
		if at, some := h[q]; some && at <= until {
			delete(h, q)
		}
		if len(h) == 0 {
			delete(s.told, b)
		}
	}
	s.active.Store(len(s.open)+len(s.told) > 0)
}

// hits reports whether a job that has not begun reads what is spoiled.
func (s *spoils) hits(j *job) (hit bool) {
	if !s.active.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j.eachBuffer(func(b *buffer, access backend.Access) bool {
		hit = access&backend.Read != 0 && s.isSpoiledLocked(b, j)
		return !hit
	})
	return hit
}

// +checklocks:s.mu
func (s *spoils) isSpoiledLocked(b *buffer, j *job) bool {
	if j.pos < s.told[b][j.queue] {
		return true
	}
	for _, x := range s.open {
		if _, some := x.what[b]; some && (x.queue != j.queue || x.pos < j.pos) {
			return true
		}
	}
	return false
}

// spoilsForNow reports whether anything of the session is spoiled.
func (s *Session) spoilsForNow() bool { return s.spoils.active.Load() }

// export tells what is spoiled for entries that are left, of buffers that are there.
func (s *spoils) export(t *table) (all []SpoilImage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		return nil, errFrozenLong
	}
	for b, h := range s.told {
		if now, err := lookup[buffer](t, b.h); err != nil || now != b {
			continue
		}
		for q, before := range h {
			all = append(all, SpoilImage{b.h, q.h, before})
		}
	}
	return all, nil
}

// restore is export's other side. The session does not run yet.
func (s *spoils) restore(t *table, all []SpoilImage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = map[*buffer]horizon{}
	for _, x := range all {
		b, err := lookup[buffer](t, x.Buffer)
		q, qErr := lookup[queue](t, x.Queue)
		if err != nil || qErr != nil || x.Before > q.taken+uint64(len(q.jobs)) {
			return malformed("buffer %#x is spoiled for queue %#x before %d", uint64(x.Buffer), uint64(x.Queue), x.Before)
		}
		if s.told[b] == nil {
			s.told[b] = horizon{}
		}
		s.told[b][q] = x.Before
		q.owes.Store(true)
	}
	s.active.Store(len(s.told) > 0)
	return nil
}

// eachBuffer calls f for each buffer that the job uses, and what it does with it, until
// that returns false. A buffer may come more than once.
func (j *job) eachBuffer(f func(*buffer, backend.Access) bool) {
	if l := j.list; l != nil {
		for b, access := range l.uses {
			if !f(b, access) {
				return
			}
		}
		return
	}
	for i, b := range j.buffers {
		if !f(b, j.access(i)) {
			return
		}
	}
}

// access is what the job does with its i-th buffer.
func (j *job) access(i int) backend.Access {
	switch {
	case j.work.Op == backend.OpLaunch && j.program != nil && i < len(j.program.info.Bindings):
		return j.program.info.Bindings[i].Access
	case j.work.Op == backend.OpLaunch || i == 0:
		return backend.Write
	}
	return backend.Read
}

// needs reports whether the job reads what an earlier one writes.
func (j *job) needs(earlier *job) (yes bool) {
	j.eachBuffer(func(b *buffer, access backend.Access) bool {
		if access&backend.Read == 0 {
			return true
		}
		earlier.eachBuffer(func(w *buffer, access backend.Access) bool {
			yes = w == b && access&backend.Write != 0
			return !yes
		})
		return !yes
	})
	return yes
}

// spoil notes what a job, which has not ended ok and still has its pins, was to write.
// Whoever holds engine.mu may call it.
func (j *job) spoil() {
	s := j.queue.session
	if j.spoiled != nil || s.poison.Load() != nil || !s.node.Live() {
		return // the rest of the session ends anyway
	}
	x := &spoil{queue: j.queue, pos: j.pos, what: map[*buffer]struct{}{}}
	j.eachBuffer(func(b *buffer, access backend.Access) bool {
		if access&backend.Write != 0 {
			x.what[b] = struct{}{}
		}
		return true
	})
	if len(x.what) > 0 {
		j.spoiled = x
		s.spoils.add(x)
	}
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
	x := &spoil{queue: q, pos: j.pos, what: map[*buffer]struct{}{}}
	named.eachBuffer(func(b *buffer, access backend.Access) bool {
		if b != nil && access&backend.Write != 0 {
			x.what[b] = struct{}{}
		}
		return true
	})
	if len(x.what) > 0 && s.poison.Load() == nil && s.node.Live() {
		j.spoiled = x
		s.spoils.add(x)
	}
}

// publishSpoils publishes completions of which some are of work that spoiled something.
// What the client had published by then is known from looking after it, and if it has
// taken these completions already, from looking before.
func (q *queue) publishSpoils() {
	s := &q.session.spoils
	before := s.tails()
	q.ring.Publish(q.told)
	after := s.tails()
	if _, _, collected := q.ring.Marks(); collected > q.spoilt[0].pos {
		after = before
	}
	s.tell(q.spoilt, after)
	q.spoilt = q.spoilt[:0]
	for other := range after {
		if other != q {
			other.rouse() // it may be done with all that, and asleep
		}
	}
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
