package llama

import (
	"context"
	"time"

	"capgpu/gpuerr"
)

// How far Greedy runs ahead of its reader: enough that the device always has the next
// pass, and not so far that stopping takes long.
const (
	mostAhead  = 8
	leastAhead = 2
	aheadTime  = 2 * time.Millisecond
)

// Greedy takes the most likely token n times, beginning after a token at a position: each
// is the input of the pass at the next position, without a look from here. yield gets
// the tokens in order; after it says false no more passes are begun, and what those on
// their way write is not counted as written. Positions up to position+n-1 are reserved
// before, and position is not after what is written, else gpuerr.Invalid.
//
// When ctx ends first, the passes are stopped; tokens that were handed out are written.
func (m *Model) Greedy(ctx context.Context, q *Sequence, token int32, position, n int, yield func(token int32) bool) error {
	if err := m.usable(ctx); err != nil {
		return err
	}
	if n < 1 {
		return gpuerr.New(gpuerr.Invalid, "n: %d tokens are none", n)
	}
	m.asked = 0
	if err := m.checkGreedy(q, token, position, n); err != nil {
		return err
	}
	m.layRow(0, token, position, q.id)
	got, err := m.decode(ctx, q, position, n, yield)
	q.next = position + got
	return err
}

func (m *Model) checkGreedy(q *Sequence, token int32, position, n int) error {
	m.step++
	m.pool.mu.Lock()
	defer m.pool.mu.Unlock()
	return m.checkRowLocked(q, token, position, n)
}

// decode runs the passes and returns how many tokens were handed out.
func (m *Model) decode(ctx context.Context, q *Sequence, position, n int, yield func(token int32) bool) (got int, err error) {
	r := m.routines.greedy
	each := len(r.commands)
	ahead, ended := leastAhead, 0 // commands that have
	for begun := 0; got < n; {
		for ; begun < n && begun-got < ahead; begun++ {
			if err := m.submit(r); err != nil {
				return got, err
			}
		}
		k, err := m.collect(ctx)
		if err != nil {
			return got, err
		}
		for ended += k; got < ended/each; {
			t := m.history[(position+got)%historyKeep]
			if t >= uint32(m.b.config.Vocab) {
				return got, m.stop(ctx, gpuerr.New(gpuerr.Invalid, "the model makes no number of position %d: its weights are of no use", position+got))
			}
			got++
			if !yield(int32(t)) {
				return got, m.drain(ctx)
			}
		}
		ahead = m.ahead(each)
	}
	return got, nil
}

// ahead is how many passes of so many commands may be on their way.
func (m *Model) ahead(each int) int {
	most := max(min(mostAhead, queueEntries/2/each), 1)
	pass := max(m.passed*time.Duration(each), 1)
	return min(most, max(leastAhead, int(aheadTime/pass)))
}

// stop waits for what is on its way, for err.
func (m *Model) stop(ctx context.Context, err error) error {
	if failed := m.drain(ctx); failed != nil && m.ended != nil {
		return failed
	}
	return err
}
