package accel

import (
	"context"
	"errors"
	"slices"
	"time"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// collect takes completions of the stream until done says so, which is asked with g.mu held.
func (s *stream) collect(ctx context.Context, done func() bool) error {
	select {
	case s.collecting <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.collecting }()

	for {
		s.g.mu.Lock()
		ready := done() || len(s.pending) == 0
		s.g.mu.Unlock()
		if ready {
			return nil
		}

		slice, stop := context.WithTimeout(ctx, collectSlice)
		n, err := s.queue.Completions(slice, s.batch[:])
		stop()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return err
		}
		if err != nil {
			s.g.poll() // the stream may wait for another that nobody collects from
			continue
		}
		s.apply(s.batch[:n])
	}
}

// collectSlice is how long a wait looks at one stream before it looks at all.
const collectSlice = 50 * time.Millisecond

// poll takes the completions of all streams that have come.
func (g *GPU) poll() {
	g.mu.Lock()
	streams := slices.DeleteFunc(slices.Clone(g.streams), func(s *stream) bool { return s.opening })
	g.mu.Unlock()
	for _, s := range streams {
		s.poll()
	}
}

// collectOne takes some completions.
func (s *stream) collectOne(ctx context.Context) error {
	s.g.mu.Lock()
	before := len(s.pending)
	s.g.mu.Unlock()
	return s.collect(ctx, func() bool { return len(s.pending) < before })
}

// poll takes the completions that have come, unless another goroutine is taking them.
func (s *stream) poll() {
	select {
	case s.collecting <- struct{}{}:
	default:
		return
	}
	defer func() { <-s.collecting }()
	for {
		n, err := s.queue.Poll(s.batch[:])
		if n == 0 || err != nil { // the next call finds out why
			return
		}
		s.apply(s.batch[:n])
	}
}

// apply notes how commands have ended. Where the signal of a point was refused, which the tenant's
// limit of what is in flight can do, this process reaches the point itself: other streams may wait
// for it, and would for ever.
func (s *stream) apply(done []client.Completion) {
	point := s.note(done)
	if point == 0 {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	_ = s.fence.Signal(ctx, point) // it fails where a later point was promised, which does as well
}

// note is apply; it returns the last point that has a refused signal, or 0.
func (s *stream) note(done []client.Completion) (refused uint64) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	for i := range done {
		c := &done[i]
		if len(s.pending) == 0 {
			return refused // a completion of nothing
		}
		p := s.pending[0]
		s.pending = s.pending[1:]
		switch p.kind {
		case 'w':
			if c.Err != nil && p.mark != nil { // the work behind it does not run
				s.g.judgeLocked(p.mark, c)
			}
		case 'o':
			p.mark.busy = c.DeviceTime
			if p.mark.err == nil {
				s.g.judgeLocked(p.mark, c)
			}
		case 's':
			m := p.mark
			if c.Err != nil {
				refused = m.point
			}
			if m.err == nil && c.Err != nil {
				m.err = &Error{Code: EnqueueFailed, Op: m.op, Msg: "the event behind it was refused, whether it ran or not", Err: c.Err}
			} else if m.err == nil {
				s.g.judgeLocked(m, c)
			}
			m.end, m.done, s.ended = c.EndedAt, true, m.point
			if m.err != nil {
				s.untold = append(s.untold, m)
			}
		}
	}
	return refused
}

// judgeLocked notes how the work of a mark has ended. The first work that failed is the sticky error;
// work that was refused, or was not run for another's fault, is not.
//
// +checklocks:g.mu
func (g *GPU) judgeLocked(m *mark, c *client.Completion) {
	if c.Err != nil {
		m.err = wrap(EnqueueFailed, m.op, c.Err)
		return
	}
	if c.Outcome.Kind == outcome.OK {
		return
	}

	e := ended(m.op, c.Outcome)
	m.err = e
	switch c.Outcome.Kind {
	case outcome.TimedOut:
		if !g.options.SurviveHang {
			g.failLocked(e)
		}
	case outcome.Failed, outcome.Innocent, outcome.DeviceLost:
		g.failLocked(e)
	}
}

// +checklocks:g.mu
func (g *GPU) failLocked(e *Error) {
	if g.sticky == nil {
		g.sticky = e
	}
}

// poisoned is the sticky error of a session in which nothing runs any more: the work that failed, if
// that can be found out, else what the session says.
func (g *GPU) poisoned(err error) error {
	g.poll()
	g.mu.Lock()
	defer g.mu.Unlock()
	var e *Error
	if errors.As(err, &e) {
		g.failLocked(e)
		return g.sticky
	}
	return err
}

// wrap is wrap for a call of the session: where that is poisoned, the error is the sticky one.
func (g *GPU) wrap(ctx context.Context, code Code, op string, err error) error {
	err = wrap(code, op, err)
	if !errors.Is(err, gpuerr.Poisoned) {
		return err
	}
	if sticky := g.reason(ctx, op); sticky != nil {
		return sticky
	}
	return g.poisoned(err)
}

// await waits for a mark and all that it comes after, gives back what that has borrowed, and says
// how it ended: the sticky error, else for a wait for this event its own, else one that no wait has
// told yet.
func (g *GPU) await(ctx context.Context, op string, m *mark, event bool) error {
	if err := g.collectAll(ctx, op, m.clock()); err != nil {
		return err
	}

	g.mu.Lock()
	target := m.clock()
	g.host = g.host.join(target)
	var err error
	if event {
		err = m.err
	}
	for slot, point := range target {
		if told := g.streams[slot].tellLocked(point); err == nil {
			err = told
		}
	}
	sticky := g.sticky
	g.mu.Unlock()

	if sticky == nil && cancelled(err) {
		sticky = g.reason(ctx, op)
	}
	if sticky != nil {
		return sticky
	}
	return err
}

// collectAll waits until all points of a clock have ended.
func (g *GPU) collectAll(ctx context.Context, op string, target clock) error {
	for slot, point := range target {
		if point == 0 {
			continue
		}
		g.mu.Lock()
		s := g.streams[slot]
		g.mu.Unlock()
		if err := s.collect(ctx, func() bool { return s.ended >= point }); err != nil {
			return s.errCollect(op, err)
		}
	}
	return nil
}

// reason looks for the work that is at fault where other work was not run. It has ended, or is about
// to.
func (g *GPU) reason(ctx context.Context, op string) *Error {
	g.mu.Lock()
	var target clock
	for slot, s := range g.streams {
		target = target.with(slot, s.point)
	}
	g.mu.Unlock()
	_ = g.collectAll(ctx, op, target) // the caller has an error to tell already
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sticky
}

func cancelled(err error) bool {
	var how *client.OutcomeError
	return errors.As(err, &how) && how.Outcome.Kind == outcome.Cancelled
}

// tellLocked takes the first failure, up to a point, that no wait has told. The caller holds g.mu.
func (s *stream) tellLocked(point uint64) error {
	var first error
	kept := s.untold[:0]
	for _, m := range s.untold {
		switch {
		case m.point > point:
			kept = append(kept, m)
		case first == nil:
			first = m.err
		}
	}
	s.untold = kept
	return first
}

// errCollect is why completions do not come any more.
func (s *stream) errCollect(op string, err error) error {
	s.g.mu.Lock()
	closed := s.closed && !s.g.closed && s.g.session.Err() == nil
	s.g.mu.Unlock()
	if closed {
		return &Error{Code: InvalidStream, Op: op, Err: err}
	}
	return wrap(DeviceUnavailable, op, err)
}
