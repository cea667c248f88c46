package accel

import (
	"context"
	"errors"

	"capgpu/client"
	"capgpu/gpuerr"
)

// request is one operation on a stream.
type request struct {
	traced
	op       string         // for errors
	work     client.Command // nil: an event, or a wait, alone
	after    *mark          // an event that it waits for; nil: none
	waitOnly bool           // no point of its own
	silent   bool           // a wait of this process: not in the trace, no number, no legacy order
}

// use holds the stream, prepares a request and submits it. Attempts that fail are traced too.
func (s *stream) use(r *request, prepare func() error) (*mark, error) {
	m, err := s.tryUse(r, prepare)
	if err != nil && !r.silent {
		r.traced.Event = 0
		s.g.options.Trace.add(s, r.traced, nil, err)
	}
	return m, err
}

func (s *stream) tryUse(r *request, prepare func() error) (*mark, error) {
	if !s.busy.CompareAndSwap(false, true) {
		return nil, s.errBusy(r.op)
	}
	defer s.busy.Store(false)
	s.poll()

	s.uses = s.uses[:0]
	if prepare != nil {
		// A GPU that is over says so before it says what is wrong with the arguments.
		if err := s.g.check(r.op); err != nil {
			return nil, err
		}
		if err := prepare(); err != nil {
			return nil, err
		}
	}

	for {
		m, err := s.submit(r)
		if errors.Is(err, gpuerr.Poisoned) {
			return nil, s.g.poisoned(err)
		}
		if err != errFull {
			return m, err
		}
		// Each piece of work has a deadline, so the oldest ends; the end of the session wakes, too.
		if err := s.collectOne(context.Background()); err != nil {
			return nil, s.errCollect(r.op, err)
		}
	}
}

// submit puts a request into the stream's queue: waits for what it comes after, the work, and the
// signal of its point. The bookkeeping is done under one lock with the queue, so that the order
// among streams is the order of the calls.
func (s *stream) submit(r *request) (*mark, error) {
	g := s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.closed {
		return nil, refuse(InvalidStream, r.op, "stream %d is closed", s.id)
	}
	if err := g.checkLocked(r.op); err != nil {
		return nil, err
	}

	after := s.orderLocked(r)
	for _, u := range s.uses {
		if err := u.admitLocked(r.op, s.slot, after, g.host); err != nil {
			return nil, err
		}
	}

	s.commands = s.commands[:0]
	for i := range s.waits {
		s.commands = append(s.commands, &s.waits[i])
	}
	if r.work != nil {
		s.commands = append(s.commands, r.work)
	}
	if !r.waitOnly {
		s.signal = client.Signal{Fence: s.fence, Value: s.point + 1}
		s.commands = append(s.commands, &s.signal)
	}
	if err := s.pushLocked(r.op); err != nil {
		return nil, err
	}

	if r.waitOnly {
		for range s.waits {
			s.pending = append(s.pending, pending{kind: 'w'})
		}
		s.known, s.loose = after, true
		g.options.Trace.add(s, r.traced, r.after, nil)
		return nil, nil
	}

	s.point++
	m := &mark{s: s, op: r.op, point: s.point, after: after}
	for range s.waits {
		s.pending = append(s.pending, pending{'w', m})
	}
	s.known, s.last, s.loose = after, m, false
	if r.work != nil {
		s.pending = append(s.pending, pending{'o', m})
	}
	s.pending = append(s.pending, pending{'s', m})
	for _, u := range s.uses {
		u.noteLocked(s.slot, m.point)
	}
	if !r.silent {
		g.lastEvent++
		m.id, r.traced.Event = g.lastEvent, g.lastEvent
		g.options.Trace.add(s, r.traced, m, nil)
	}
	return m, nil
}

// errFull is not told to callers.
var errFull = errors.New("the stream is full")

// pushLocked submits s.commands. errFull says that completions have to be taken first: a queue
// would stop if nobody took them, and with it the streams that wait for it.
//
// +checklocks:s.g.mu
func (s *stream) pushLocked(op string) error {
	if len(s.commands) == 0 {
		return nil
	}
	if len(s.pending)+len(s.commands) > queueEntries {
		return errFull
	}
	_, err := s.queue.Submit(s.commands...)
	if err == nil {
		return nil
	}
	if errors.Is(err, gpuerr.QueueFull) && len(s.pending) > 0 { // there is no room for its arguments
		return errFull
	}

	return wrap(EnqueueFailed, op, err)
}

// orderLocked fills s.waits with what the work has to wait for, and tells what it comes after. The
// default stream comes after all others, and they come after it: legacy synchronisation.
//
// +checklocks:s.g.mu
func (s *stream) orderLocked(r *request) clock {
	s.waits = s.waits[:0]
	after := s.known
	if r.after != nil {
		after = s.behindLocked(after, r.after)
	}
	if r.waitOnly || r.silent {
		return after
	}

	others := s.g.streams[:1]
	if s.slot == 0 {
		others = s.g.streams[1:]
	}
	for _, other := range others {
		if other != s && other.last != nil {
			after = s.behindLocked(after, other.last)
		}
	}
	return after
}

// behindLocked adds a wait for a mark, unless that is known to have ended.
//
// +checklocks:s.g.mu
func (s *stream) behindLocked(after clock, m *mark) clock {
	if m.s == s || m.point <= after.at(m.s.slot) {
		return after
	}
	if !m.done {
		s.waits = append(s.waits, client.WaitOrder{Fence: m.s.fence, Value: m.point})
	}
	return after.join(m.clock())
}
