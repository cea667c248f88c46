package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/outcome"
)

var (
	errGone  = gpuerr.New(gpuerr.Disconnected, "the driver is gone")
	errSmall = gpuerr.Refused("deviceMemory", 100, 50)
)

// begun is a request that has delivered some of its answer.
func (r *rig) begun(q lm.Request) (lm.Stream, []lm.Token) {
	r.t.Helper()
	s := r.generate(q)
	out := make([]lm.Token, 1)
	n, err := s.Next(context.Background(), out)
	require.NoError(r.t, err)
	return s, out[:n]
}

// A request that has begun learns of it at once. One that has not waits, as does
// one that arrives meanwhile, and the next session answers both.
func TestDriverDies(t *testing.T) {
	z := testSize
	z.sequences = 1
	inBubble(t, z, Options{}, func(r *rig) {
		q, later := greedy("one", 60), seeded("two", 10, 1)
		s, got := r.begun(q)
		waits := r.generate(later)
		r.place.setRefuse(errGone)
		at := time.Now()
		r.place.engine().kill(errGone)
		rest, err := all(s)
		require.ErrorIs(t, err, gpuerr.Disconnected)
		require.Zero(t, time.Since(at), "within the pass")
		want, _ := expected(q, z)
		got = append(got, rest...)
		require.Equal(t, want[:len(got)], got, "what was told is true")
		require.Equal(t, lm.Unfinished, s.Finish())

		time.Sleep(3 * time.Second)
		require.Equal(t, lm.Recovering, r.s.Status().State)
		require.Contains(t, r.s.Status().Reason, "E_DISCONNECTED")
		also := r.generate(later)
		r.place.setRefuse(nil)
		r.right(later, waits)
		r.right(later, also)
		require.EqualValues(t, 1, r.s.Status().Totals.Recoveries)
		require.Equal(t, lm.Ready, r.s.Status().State)
	})
}

// If a session ends between a pass and the read of its results, the results are
// lost: no token is made of zeros.
func TestSessionEndsBeforeLogitsAreRead(t *testing.T) {
	z := testSize
	inBubble(t, z, Options{}, func(r *rig) {
		q := seeded("one", 60, 1)
		e, passes := r.place.engine(), 0
		e.beforeLogits = func() {
			if passes++; passes == 5 {
				e.kill(errGone)
			}
		}
		got, err := all(r.generate(q))
		require.ErrorIs(t, err, gpuerr.Disconnected)
		require.Len(t, got, 4)
		want, _ := expected(q, z)
		require.Equal(t, want[:4], got)
		r.right(q, r.generate(q))
	})
}

// No request waits for ever.
func TestPatience(t *testing.T) {
	z := testSize
	z.sequences = 1
	inBubble(t, z, Options{Patience: time.Minute}, func(r *rig) {
		_, _ = r.begun(greedy("one", 60))
		waits := r.generate(greedy("two", 10))
		r.place.setRefuse(errGone)
		r.place.engine().kill(errGone)
		at := time.Now()
		_, err := all(waits)
		require.ErrorIs(t, err, gpuerr.Disconnected)
		require.Equal(t, time.Minute, time.Since(at))
		_, err = r.s.Generate(context.Background(), greedy("three", 10))
		require.ErrorIs(t, err, gpuerr.Disconnected)
		r.place.setRefuse(errSmall) // another session has the room now: it may become free
		time.Sleep(time.Minute)
		require.Contains(t, r.s.Status().Reason, "E_QUOTA deviceMemory asked=100 available=50")
		r.place.setRefuse(nil)
		time.Sleep(mostPause)
		synctest.Wait()
		r.right(greedy("four", 10), r.generate(greedy("four", 10)))
	})
}

// The way a pass ended decides the error of its requests; the server continues in a
// new session.
func TestFailedPasses(t *testing.T) {
	for name, c := range map[string]struct {
		o    outcome.Outcome
		code gpuerr.Code
	}{
		"trap":    {outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause}, gpuerr.Poisoned},
		"fault":   {outcome.Outcome{Kind: outcome.Failed, Cause: outcome.IOMMUFault}, gpuerr.Poisoned},
		"error":   {outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}, gpuerr.DeviceLost},
		"timeout": {outcome.Outcome{Kind: outcome.TimedOut, Cause: outcome.Hang}, gpuerr.DeviceLost},
		"lost":    {outcome.Outcome{Kind: outcome.DeviceLost, Cause: outcome.Gone}, gpuerr.DeviceLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testSize, Options{}, func(r *rig) {
				s, _ := r.begun(greedy("one", 60))
				r.place.engine().failNext(&client.OutcomeError{Outcome: c.o})
				_, err := all(s)
				require.ErrorIs(t, err, c.code)
				r.right(greedy("two", 10), r.generate(greedy("two", 10)))
				require.Equal(t, 2, r.place.loads())
			})
		})
	}
}

// A pass that another's fault has reset costs only time.
func TestInnocent(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		reset := &client.OutcomeError{Outcome: outcome.Outcome{Kind: outcome.Innocent, Cause: outcome.Reset}}
		ask := func(i int) lm.Request {
			q := seeded("text", 80, uint64(i))
			q.IgnoreEnd = true
			return q
		}

		var streams []lm.Stream
		for i := range 5 {
			streams = append(streams, r.generate(ask(i)))
		}

		for range mostResets {
			time.Sleep(10 * time.Millisecond)
			r.place.engine().failNext(reset)
			for n := r.place.loads(); r.place.loads() == n; {
				time.Sleep(time.Millisecond)
			}
		}

		for i, s := range streams {
			r.right(ask(i), s)
		}

		require.Equal(t, 1+mostResets, r.place.loads())

		r.place.onLoad = func(e *fakeEngine) { e.failNext(reset) }
		s := r.generate(greedy("one", 80))
		r.place.engine().failNext(reset)
		_, err := all(s)
		require.ErrorIs(t, err, gpuerr.DeviceLost, "not again and again")
		r.place.onLoad = nil
		r.place.engine().failNext(nil)
	})
}

// A failure of the first load is an error of Run.
func TestFirstLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, testSize, Options{Start: time.Minute})
		r.place.setRefuse(errSmall)
		r.run()
		require.ErrorIs(t, r.s.Await(context.Background()), gpuerr.Quota)
		require.ErrorIs(t, <-r.ran, gpuerr.Quota, "that is not waited for")

		r = newRig(t, testSize, Options{Start: time.Minute})
		r.place.setRefuse(errGone)
		r.run()
		at := time.Now()
		require.ErrorIs(t, <-r.ran, gpuerr.Disconnected)
		require.GreaterOrEqual(t, time.Since(at), time.Minute)

		r = newRig(t, testSize, Options{Start: time.Minute})
		r.place.setRefuse(errGone)
		r.run()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()

		require.ErrorIs(t, r.s.Await(ctx), context.DeadlineExceeded)
		time.Sleep(20 * time.Second)
		_, err := r.s.Generate(context.Background(), greedy("x", 1))
		require.ErrorIs(t, err, gpuerr.Busy)
		require.Equal(t, lm.Loading, r.s.Status().State)
		r.place.setRefuse(nil)
		require.NoError(t, r.s.Await(context.Background()))
		r.right(greedy("x", 3), r.generate(greedy("x", 3)))
		r.close()
		require.NoError(t, r.s.Await(context.Background()), "it was loaded once")

		r = newRig(t, testSize, Options{})
		require.NoError(t, r.s.Close(context.Background()))
		require.NoError(t, r.s.Close(context.Background()))
		require.ErrorIs(t, r.s.Run(context.Background()), gpuerr.Closed)
		require.ErrorIs(t, r.s.Await(context.Background()), gpuerr.Closed)
	})
}

func TestTakenAway(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		r.place.keeps = true
		s, _ := r.begun(greedy("one", 60))
		var waits []lm.Stream
		for range 6 {
			waits = append(waits, r.generate(greedy("two", 60)))
		}

		r.place.engine().kill(gpuerr.New(gpuerr.Revoked, "by an operator"))
		for _, s := range append(waits, s) {
			_, err := all(s)
			require.ErrorIs(t, err, gpuerr.Revoked)
			require.ErrorContains(t, err, "by an operator")
		}

		time.Sleep(time.Hour)
		require.Equal(t, lm.Revoked, r.s.Status().State)
		require.Contains(t, r.s.Status().Reason, "by an operator")
		require.Equal(t, 1, r.place.loads(), "it takes nothing behind anybody's back")
		_, err := r.s.Generate(context.Background(), greedy("x", 1))
		require.ErrorIs(t, err, gpuerr.Revoked)
		r.s.Reopen()
		synctest.Wait()
		r.right(greedy("x", 3), r.generate(greedy("x", 3)))
		r.s.Reopen() // of no effect
		synctest.Wait()
		require.Equal(t, 2, r.place.loads())
	})
}

// A stopping service revokes its sessions, and the server waits for the next one.
func TestServiceStops(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		r.place.engine().kill(gpuerr.New(gpuerr.Revoked, "the device is being closed"))
		r.right(greedy("x", 3), r.generate(greedy("x", 3)))
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		var streams []lm.Stream
		for range 6 {
			streams = append(streams, r.generate(greedy("x", 60)))
		}

		time.Sleep(5 * time.Millisecond) // four have begun
		drained := make(chan error, 1)
		go func() { drained <- r.s.Drain(context.Background()) }()
		synctest.Wait()
		_, err := r.s.Generate(context.Background(), greedy("x", 1))
		require.ErrorIs(t, err, gpuerr.Closed)
		require.Equal(t, lm.Stopped, r.s.Status().State)
		r.place.engine().kill(errGone) // the first ones end badly, the others are still served
		for i, s := range streams {
			if i < 4 {
				_, err := all(s)
				require.ErrorIs(t, err, gpuerr.Disconnected)
			} else {
				r.right(greedy("x", 60), s)
			}
		}

		require.NoError(t, <-drained)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.NoError(t, r.s.Drain(ctx))
	})
	inBubble(t, testSize, Options{Ahead: 4}, func(r *rig) {
		s := r.generate(greedy("nobody pulls this", 60))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.s.Drain(ctx), context.DeadlineExceeded)
		require.NoError(t, r.s.Close(context.Background()))
		_, err := all(s)
		require.ErrorIs(t, err, gpuerr.Closed)
	})
}
