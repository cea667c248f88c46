package llama

import (
	"context"
	"time"

	"capgpu/gpuerr"
)

// How far Greedy runs ahead of its reader: enough that the device always has the
// next pass, and not so far that stopping takes long. Short passes are grouped into
// one list, so that they share the cost of its submission.
const (
	aheadTime  = 2 * time.Millisecond
	leastAhead = 2  // passes
	mostAhead  = 40 // passes: the history keeps more
	listPasses = 8  // of a list of several
	listTime   = aheadTime
)

// Greedy takes the most likely token n times, beginning after a token at a
// position. Each token is the input of the pass at the next position, without a
// check on this side. yield gets the tokens in order. After it returns false no
// more passes are begun, and writes of passes in flight do not count as written.
// Positions up to position+n-1 must be reserved, and position must not be after the
// written ones, else gpuerr.Invalid.
//
// When ctx ends first, the passes are stopped; tokens that were handed out are
// written.
func (m *Model) Greedy(ctx context.Context, q *Sequence, token int32, position, n int, yield func(token int32) bool) error {
	if err := m.usable(ctx); err != nil {
		return err
	}
	if n < 1 {
		return gpuerr.New(gpuerr.Invalid, "n: %d tokens are none", n)
	}
	m.steps.asked = 0
	if err := m.checkGreedy(q, token, position, n); err != nil {
		return err
	}
	m.layRow(0, token, position, q.id)
	m.steps.flight = flight{}
	got, err := m.decode(ctx, position, n, yield)
	q.next = position + got
	return err
}

func (m *Model) checkGreedy(q *Sequence, token int32, position, n int) error {
	m.steps.step++
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.checkRowLocked(q, token, position, n)
}

// flight is the passes of Greedy that are in flight.
type flight struct {
	begun, ended int                 // passes
	passes       [queueEntries]uint8 // passes that end with each command, as a ring
	pushed, took int                 // commands
}

// begin records a submitted routine of this many passes.
func (f *flight) begin(commands, passes int) {
	for i := range commands {
		f.passes[(f.pushed+i)%len(f.passes)] = 0
	}
	f.pushed += commands
	f.passes[(f.pushed-1)%len(f.passes)] = uint8(passes)
	f.begun += passes
}

// end records commands that have ended.
func (f *flight) end(commands int) (passes int) {
	for range commands {
		passes += int(f.passes[f.took%len(f.passes)])
		f.took++
	}
	f.ended += passes
	return passes
}

// decode runs n passes and returns how many tokens were handed out.
func (m *Model) decode(ctx context.Context, position, n int, yield func(token int32) bool) (got int, err error) {
	f := &m.steps.flight
	for got < n {
		if err := m.runAhead(n - f.begun); err != nil {
			return got, err
		}

		before := m.deviceNanos.Load()
		commands, err := m.collect(ctx)
		if err != nil {
			return got, err
		}
		if passes := f.end(commands); passes > 0 {
			m.steps.passTime = max(time.Duration(m.deviceNanos.Load()-before)/time.Duration(passes), 1)
		}

		// All are copied before any is handed out, because the session may end
		// meanwhile, and its memory with it.
		var tokens [historyKeep]uint32
		for i := range f.ended - got {
			tokens[i] = m.shared.history[(position+got+i)%historyKeep]
		}

		if err := m.kept(); err != nil {
			return got, err
		}

		for i := 0; got < f.ended; i, got = i+1, got+1 {
			if err := ctx.Err(); err != nil {
				return got, m.stop(ctx, err)
			}

			t := tokens[i]
			if t >= uint32(m.b.config.Vocab) {
				return got, m.stop(ctx, gpuerr.New(gpuerr.Invalid, "the model makes no number of position %d: its weights are of no use", position+got))
			}
			if !yield(int32(t)) {
				return got + 1, m.drain(ctx)
			}
		}
	}

	return got, nil
}

// runAhead submits passes, at most left.
func (m *Model) runAhead(left int) error {
	r, f := m.routines, &m.steps.flight
	ahead := leastAhead
	if m.steps.passTime > 0 {
		ahead = min(max(leastAhead, int(aheadTime/m.steps.passTime)), mostAhead)
	}

	several := r.several != nil && m.steps.passTime > 0 && m.steps.passTime*listPasses <= listTime
	if several {
		ahead = max(ahead, listPasses+1) // two lists: one runs while the other waits
	}

	for left > 0 && f.begun-f.ended < ahead && m.steps.onWay+len(r.greedy.commands) <= queueEntries/2 {
		next, passes := r.greedy, 1
		if several && left >= listPasses {
			next, passes = r.several, listPasses
		}
		if err := m.submit(next); err != nil {
			return err
		}
		f.begin(len(next.commands), passes)
		left -= passes
	}

	return nil
}

// stop waits for everything in flight, because of err.
func (m *Model) stop(ctx context.Context, err error) error {
	if failed := m.drain(ctx); failed != nil && m.ended != nil {
		return failed
	}
	return err
}
