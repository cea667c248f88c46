package gpu

import (
	"slices"
	"sync"
	"sync/atomic"

	"capgpu/gpu/backend"
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
//
// Tells are counted: what was spoiled is known by the last tell of it, and each queue has
// a mark for the first tell at which it was published further. An entry was published
// before a tell if that is not older than the first mark beyond the entry. So the queue
// of a client that waits for ever keeps no more marks than its ring has entries, and
// what was told is forgotten when no queue has marks. A list counts as one, not as all
// that it writes. Beyond maxTold a session counts as spoiled as a whole, for what was
// published until then.
type spoils struct {
	active atomic.Bool // there are some

	// mu comes after engine.mu, and before the locks of the session's rings. It is held
	// from before completions are published until they are told: who knows them is past that.
	mu sync.Mutex
	// +checklocks:mu
	queues []*queue // of the session
	// +checklocks:mu
	open map[*spoil]struct{} // whose completions are not published
	// +checklocks:mu
	openBuffers map[*buffer]positions // what they spoiled
	// +checklocks:mu
	openLists map[*list]positions
	// +checklocks:mu
	tells uint64 // until now
	// +checklocks:mu
	told map[*buffer]uint64 // the last tell of it
	// +checklocks:mu
	toldLists map[*list]uint64
	// +checklocks:mu
	toldAll uint64 // the last tell that was for all there is; 0: none
	// +checklocks:mu
	weight int // of told and toldLists
	// +checklocks:mu
	behind int // queues with marks
}

// maxTold bounds what a session keeps of what was told, in buffers: a client may close
// what failed, and fail with another, while a queue of its waits.
const maxTold = 1 << 14

// spoil is what one entry, which did not end ok, was to write.
type spoil struct {
	queue   *queue
	pos     uint64    // of the entry
	buffers []*buffer // each but once
	list    *list     // instead: what it writes
}

// positions are those of entries, by queue and in order.
type positions map[*queue][]uint64

func (p positions) add(x *spoil) positions {
	if p == nil {
		p = positions{}
	}
	i, _ := slices.BinarySearch(p[x.queue], x.pos)
	p[x.queue] = slices.Insert(p[x.queue], i, x.pos)
	return p
}

// remove reports whether any are left.
func (p positions) remove(x *spoil) (any bool) {
	all := p[x.queue]
	if i, some := slices.BinarySearch(all, x.pos); some {
		p[x.queue] = slices.Delete(all, i, i+1)
	}
	if len(p[x.queue]) == 0 {
		delete(p, x.queue)
	}
	return len(p) > 0
}

// concern reports whether a job that has not begun comes after any of them.
func (p positions) concern(j *job) bool {
	own := p[j.queue]
	return len(own) > 0 && own[0] < j.pos || len(own) == 0 && len(p) > 0 || len(p) > 1
}

// mark says that at a tell, and until the next mark's, the queue was published up to tail.
type mark struct{ tell, tail uint64 }

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
	var mine []*spoil
	for x := range s.open {
		if x.queue == q {
			mine = append(mine, x)
		}
	}
	var late []*queue
	if len(mine) > 0 {
		late = s.tellLocked(mine, s.tailsLocked())
	}
	s.queues = slices.DeleteFunc(s.queues, func(x *queue) bool { return x == q })
	s.passLocked(q, ^uint64(0))
	s.mu.Unlock()
	rouse(late, q)
}

// rouse wakes queues that may be done with all that was told, and asleep.
func rouse(queues []*queue, but *queue) {
	for _, q := range queues {
		if q != but {
			q.rouse()
		}
	}
}

// +checklocks:s.mu
func (s *spoils) initLocked() {
	s.open, s.openBuffers, s.openLists = map[*spoil]struct{}{}, map[*buffer]positions{}, map[*list]positions{}
	s.told, s.toldLists = map[*buffer]uint64{}, map[*list]uint64{}
}

// add notes what is spoiled from now on.
func (s *spoils) add(x *spoil) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.initLocked()
	}
	s.open[x] = struct{}{}
	for _, b := range x.buffers {
		s.openBuffers[b] = s.openBuffers[b].add(x)
	}
	if x.list != nil {
		s.openLists[x.list] = s.openLists[x.list].add(x)
	}
	s.active.Store(true)
}

// +checklocks:s.mu
func (s *spoils) removeLocked(x *spoil) {
	delete(s.open, x)
	for _, b := range x.buffers {
		if !s.openBuffers[b].remove(x) {
			delete(s.openBuffers, b)
		}
	}
	if x.list != nil && !s.openLists[x.list].remove(x) {
		delete(s.openLists, x.list)
	}
}

// tailsLocked is up to where each queue of the session is published.
//
// +checklocks:s.mu
func (s *spoils) tailsLocked() []uint64 {
	tails := make([]uint64, len(s.queues))
	for i, q := range s.queues {
		_, tails[i], _ = q.ring.Marks()
	}
	return tails
}

// tellLocked notes that completions were published when the queues were at tails. It says
// which queues have to tell when they are past that.
//
// +checklocks:s.mu
func (s *spoils) tellLocked(xs []*spoil, tails []uint64) (late []*queue) {
	s.tells++
	for _, x := range xs {
		s.removeLocked(x)
		for _, b := range x.buffers {
			if _, known := s.told[b]; !known {
				s.weight++
			}
			s.told[b] = s.tells
		}
		if l := x.list; l != nil {
			if _, known := s.toldLists[l]; !known {
				s.weight += 1 + len(l.uses)
			}
			s.toldLists[l] = s.tells
		}
	}
	if s.weight > maxTold {
		s.forgetLocked()
		s.toldAll = s.tells
	}
	for i, q := range s.queues {
		last := q.past
		if n := len(q.marks); n > 0 {
			last = q.marks[n-1].tail
		} else if tails[i] > last {
			s.behind++
		}
		if tails[i] > last {
			q.marks = append(q.marks, mark{s.tells, tails[i]})
		}
		if len(q.marks) > 0 {
			q.owes.Store(true)
			late = append(late, q)
		}
	}
	s.settleLocked()
	return late
}

// +checklocks:s.mu
func (s *spoils) forgetLocked() {
	clear(s.told)
	clear(s.toldLists)
	s.weight, s.toldAll = 0, 0
}

// settleLocked forgets what concerns nothing any more.
//
// +checklocks:s.mu
func (s *spoils) settleLocked() {
	if s.behind == 0 {
		s.forgetLocked()
	}
	s.active.Store(len(s.open)+s.behind > 0)
}

// pass notes that all of the queue before a position has ended.
func (s *spoils) pass(q *queue, until uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passLocked(q, until)
}

// +checklocks:s.mu
func (s *spoils) passLocked(q *queue, until uint64) {
	q.past = until
	n := 0
	for n < len(q.marks) && q.marks[n].tail <= until {
		n++
	}
	if n == 0 {
		return
	}
	if q.marks = slices.Delete(q.marks, 0, n); len(q.marks) == 0 {
		q.marks = nil
		s.behind--
		s.settleLocked()
	}
}

// hits reports whether a job that has not begun reads what is spoiled.
func (s *spoils) hits(j *job) (hit bool) {
	if !s.active.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Tells from this one on are of after the entry was published.
	since := ^uint64(0)
	if i := slices.IndexFunc(j.queue.marks, func(m mark) bool { return m.tail > j.pos }); i >= 0 {
		since = j.queue.marks[i].tell
	}
	all, told, open := s.toldAll, s.told, s.openBuffers
	j.eachBuffer(func(b *buffer, access backend.Access) bool {
		hit = access&backend.Read != 0 && (all >= since || told[b] >= since || open[b].concern(j))
		return !hit
	})
	if hit {
		return true
	}
	for l, at := range s.openLists {
		if at.concern(j) && l.feeds(j) {
			return true
		}
	}
	for l, tell := range s.toldLists {
		if tell >= since && l.feeds(j) {
			return true
		}
	}
	return false
}

// export tells what is spoiled for entries that are left, of buffers that are there.
func (s *spoils) export(t *table) (si SpoilsImage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) > 0 {
		return si, errFrozenLong
	}
	told := map[*buffer]uint64{}
	for b, tell := range s.told {
		told[b] = tell
	}
	for l, tell := range s.toldLists {
		for b, access := range l.uses {
			if access&backend.Write != 0 {
				told[b] = max(told[b], tell)
			}
		}
	}
	all := s.toldAll
	each(t, func(b *buffer) {
		if tell := max(told[b], all); tell > 0 {
			si.Buffers = append(si.Buffers, TellImage{b.h, tell})
		}
	})
	for _, q := range s.queues {
		for _, m := range q.marks {
			si.Marks = append(si.Marks, MarkImage{q.h, m.tell, m.tail})
		}
	}
	return si, nil
}

// restore is export's other side. The session does not run yet.
func (s *spoils) restore(t *table, si SpoilsImage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.initLocked()
	for _, x := range si.Buffers {
		b, err := lookup[buffer](t, x.Buffer)
		if err != nil {
			return malformed("%#x is spoiled, and no buffer", uint64(x.Buffer))
		}
		s.told[b] = x.Tell
		s.tells = max(s.tells, x.Tell)
	}
	s.weight = len(s.told)
	for _, x := range si.Marks {
		q, err := lookup[queue](t, x.Queue)
		if err != nil || x.Tail > q.taken+uint64(len(q.jobs)) {
			return malformed("queue %#x is marked at %d", uint64(x.Queue), x.Tail)
		}
		if n := len(q.marks); n == 0 {
			s.behind++
		} else if last := q.marks[n-1]; x.Tell <= last.tell || x.Tail <= last.tail {
			return malformed("queue %#x is marked at %d after %d", uint64(x.Queue), x.Tail, last.tail)
		}
		q.marks = append(q.marks, mark{x.Tell, x.Tail})
		s.tells = max(s.tells, x.Tell)
		q.owes.Store(true)
	}
	s.settleLocked()
	return nil
}
