package gpu

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/ledger"
	"capgpu/outcome"
	"capgpu/ring"
)

var someTrap = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.OutOfBounds, Binding: 1, Offset: 64}}

// Work behind a trap, in the device, in the reactor or in another queue of the session,
// ends cancelled and is never begun.
func TestTrapPoisonsWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f := buf(t, s, 4096), newFence(t, s, 0)
		q, other := r.queue(s, 16, 0), r.queue(s, 16, 0)
		for range 6 {
			q.fill(b, 0, 4, 1)
		}
		q.signal(f, 1)
		synctest.Wait()
		other.fill(b, 0, 4, 1)
		synctest.Wait()
		sent := len(hand.jobs)
		require.Greater(t, sent, 1)
		hand.finish(hand.nth(t, 0), someTrap, time.Microsecond)
		c := q.take(7)
		require.Equal(t, someTrap, c[0].Outcome)
		for _, c := range c[1:6] {
			require.Equal(t, poisonedOutcome, c.Outcome)
		}
		require.Equal(t, someTrap, c[6].Outcome, "the guilty outcome stands for all of it")
		require.Equal(t, poisonedOutcome, other.one().Outcome)
		require.Len(t, hand.jobs, sent, "what was not in the device is not sent")
		st, err := s.FenceState(f)
		require.NoError(t, err)
		require.Equal(t, FenceState{Reached: 1, Promised: 1, Outcome: someTrap}, st)

		q.fill(b, 0, 4, 1)
		q.fill(b, 0, 4097, 1)
		q.signal(f, 2)
		c = q.take(3)
		require.Equal(t, poisonedOutcome, c[0].Outcome)
		require.Equal(t, gpuerr.Invalid, c[1].Code, "what is wrong with an entry is told all the same")
		require.Equal(t, outcome.Failed, c[2].Outcome.Kind)
		require.Len(t, hand.jobs, sent)
		r.close()
	})
}

// Calls that make work are refused, by the name of the first trap; those that look
// or end something go on.
func TestPoisonedSession(t *testing.T) {
	hand := newHandBackend()
	r := newMemRig(t, withBackend(hand))
	s := r.open("alice")
	b, f, p := buf(t, s, 4096), newFence(t, s, 0), prog(t, s, "p")
	q := r.queue(s, 16, 4096)
	require.Zero(t, s.Describe().Poisoned)
	q.fill(b, 0, 4, 1)
	q.fill(b, 0, 4, 1)
	first, second := hand.nth(t, 0), hand.nth(t, 1)
	hand.obedient = false
	hand.finish(first, someTrap, 0)
	later := someTrap
	later.Trap.Kind = outcome.Misaligned
	hand.finish(second, later, 0) // a device that went on all the same
	q.take(2)

	ctx := context.Background()
	for name, call := range map[string]func() error{
		"CreateBuffer": func() error { _, err := s.CreateBuffer(ctx, 4096, 0); return err },
		"CreateFence":  func() error { _, err := s.CreateFence(0); return err },
		"CreateQueue":  func() error { _, err := s.CreateQueue(0, 0); return err },
		"OpenProgram":  func() error { _, _, err := s.OpenProgram("p"); return err },
		"LoadProgram": func() error {
			_, _, err := s.LoadProgram(ctx, b, 0, 8)
			return err
		},
		"Restrict": func() error { _, err := s.Restrict(Policy{}); return err },
	} {
		err := call()
		require.ErrorIs(t, err, gpuerr.Poisoned, name)
		require.ErrorContains(t, err, "outOfBounds binding=1 offset=64", name)
	}
	require.Equal(t, someTrap, s.Describe().Poisoned)
	require.Equal(t, someTrap.Trap.String(), s.status().Trap)
	require.EqualValues(t, 1, s.Budget()[ledger.Buffers].Used)
	require.Len(t, host(t, s, b), 4096)
	require.NoError(t, s.SignalFence(f, 1))
	st, err := s.WaitFence(ctx, f, 1)
	require.NoError(t, err)
	require.Equal(t, outcome.Success, st.Outcome)
	require.NoError(t, s.CancelQueue(q.h))
	require.NoError(t, s.CloseQueue(q.h))
	require.NoError(t, s.CloseProgram(p))
	require.NoError(t, s.DestroyFence(f))
	require.NoError(t, s.DestroyBuffer(b))
	require.NoError(t, s.Close())
	r.idle(s)
}

// A trap concerns its own session and none above, below or beside it.
func TestTrapPoisonsOneSession(t *testing.T) {
	r := newMemRig(t)
	parent := r.open("alice")
	var below [2]*Session
	for i := range below {
		var err error
		below[i], err = parent.Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
		require.NoError(t, err)
	}
	grandchild, err := below[0].Restrict(Policy{Facet: FacetFull, Limits: ledger.NoLimits()})
	require.NoError(t, err)
	run := func(s *Session) outcome.Outcome {
		b := buf(t, s, 4096)
		q := r.queue(s, 16, 0)
		q.fill(b, 0, 4096, 0x01020304)
		how := q.one().Outcome
		if how.Kind == outcome.OK {
			require.EqualValues(t, 0x01020304, binary.LittleEndian.Uint32(host(t, s, b)[4092:]))
		}
		return how
	}
	b := buf(t, below[0], 4096)
	q := r.queue(below[0], 16, 4096)
	q.launch(prog(t, below[0], "trap"), whole(b))
	require.Equal(t, outcome.TrapCause, q.one().Outcome.Cause)
	require.ErrorIs(t, below[0].unpoisoned(), gpuerr.Poisoned)
	for _, s := range []*Session{parent, below[1], grandchild, r.open("alice"), r.open("bob")} {
		require.Equal(t, outcome.Success, run(s))
	}
}

// The device itself begins nothing after a trap, however its completions and the
// core's cancels cross.
func TestNothingRunsAfterATrap(t *testing.T) {
	dev, err := mock.New(mock.Options{LogEntries: 4096})
	require.NoError(t, err)
	r := newMemRig(t, withBackend(dev))
	for range 50 {
		s := r.open("alice")
		b, p := buf(t, s, 4096), prog(t, s, "trap")
		q, other := r.queue(s, 64, 4096), r.queue(s, 64, 4096)
		other.fill(b, 0, 4, 1)
		q.launch(p, whole(b))
		for range 20 {
			q.push(ring.FillEntry(0, uint64(b), 0, 4, 7, 0), nil, nil)
			other.fill(b, 4, 4, 2)
		}
		for i, c := range q.take(21) {
			if i == 0 {
				require.Equal(t, outcome.TrapCause, c.Outcome.Cause)
			} else {
				require.Equal(t, poisonedOutcome, c.Outcome)
			}
		}
		ran := true
		for _, c := range other.take(21) {
			if c.Outcome.Kind != outcome.OK {
				require.Equal(t, poisonedOutcome, c.Outcome)
				ran = false
			} else {
				require.True(t, ran, "nothing runs after what was cancelled")
			}
		}
		require.NotEqualValues(t, 7, binary.LittleEndian.Uint32(host(t, s, b)))
		require.NoError(t, s.Close())
	}
	log, _ := dev.Log()
	for _, e := range log {
		require.NotEqual(t, mock.Stopped, e.End, "%+v", e)
	}
}

// A deadline is not a trap.
func TestTimeoutPoisonsNothing(t *testing.T) {
	r := newMemRig(t)
	s := r.open("alice")
	b := buf(t, s, 4096)
	q := r.queue(s, 16, 4096)
	q.launchFor(time.Millisecond, prog(t, s, "spin"))
	require.Equal(t, hangOutcome, q.one().Outcome)
	q.fill(b, 0, 4, 1)
	requireOK(t, q.one())
	require.Zero(t, s.Poisoned())
}
