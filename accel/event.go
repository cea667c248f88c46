package accel

import (
	"context"
	"time"
)

// Event is the end of one piece of work, or a point in a stream. It is a value; the zero one is
// invalid.
type Event[S Space] struct{ m *mark }

// AnyEvent is an Event of any space.
type AnyEvent interface{ get() *mark }

func (e Event[S]) get() *mark { return e.m }

func markOf(e AnyEvent) *mark {
	if e == nil {
		return nil
	}
	return e.get()
}

// ID counts from 1 over all streams of a GPU; 0 is the zero event's.
func (e Event[S]) ID() uint32 {
	if e.m == nil {
		return 0
	}
	return e.m.id
}

// Done reports whether the event has come to pass, and how. It does not give back what its work has
// borrowed: a wait does.
func (e Event[S]) Done() (bool, error) {
	const op = "Done"
	if e.m == nil {
		return false, errZero(op)
	}
	e.m.s.poll()
	g := e.m.s.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sticky != nil {
		return e.m.done, g.sticky
	}
	if !e.m.done {
		return false, g.checkLocked(op)
	}
	return true, e.m.err
}

// Synchronize waits for the event and all that it comes after, gives back what that has borrowed,
// and says how it ended.
func (e Event[S]) Synchronize(ctx context.Context) error {
	const op = "Synchronize"
	if e.m == nil {
		return errZero(op)
	}
	g := e.m.s.g
	err := g.await(ctx, op, e.m, true)
	g.options.Trace.wait(e.m.s, e.m.id, err)
	return err
}

// Elapsed is the time between the ends of two events of one GPU, in milliseconds, by the clock of its
// driver. Both must have been waited for, or Done.
func Elapsed(start, end AnyEvent) (ms float32, err error) {
	const op = "Elapsed"
	var at [2]time.Duration
	both := [2]*mark{markOf(start), markOf(end)}
	if both[0] == nil {
		return 0, errZero(op)
	}
	if err := both[0].s.g.valid(op, both[1]); err != nil {
		return 0, err
	}
	for i, m := range both {
		m.s.poll()
		m.s.g.mu.Lock()
		done, failed := m.done, m.err
		at[i] = m.end
		m.s.g.mu.Unlock()
		if failed != nil {
			return 0, failed
		}
		if !done {
			return 0, refuse(InvalidEvent, op, "event %d has not ended", m.id)
		}
	}
	return float32(float64(at[1]-at[0]) / float64(time.Millisecond)), nil
}

// valid refuses the zero event, and that of another GPU.
func (g *GPU) valid(op string, m *mark) error {
	if m == nil {
		return errZero(op)
	}
	if m.s.g != g {
		return refuse(ForeignEvent, op, "event %d is of another GPU", m.id)
	}
	return nil
}

func errZero(op string) error { return refuse(InvalidEvent, op, "the zero event") }
