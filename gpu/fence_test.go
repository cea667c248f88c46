package gpu

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

func TestFenceOrder(t *testing.T) {
	f := &fence{initial: 10, reached: 10, promised: 10}
	require.NoError(t, f.promise(11))
	require.NoError(t, f.promise(1<<33))
	require.ErrorIs(t, f.promise(1<<33), gpuerr.Invalid)
	require.ErrorIs(t, f.promise(5), gpuerr.Invalid)
	how, over := f.look(10)
	require.True(t, over)
	require.Equal(t, outcome.Success, how)

	// The second ends first: it must not be reached before the first.
	require.True(t, f.end(1<<33, outcome.Success))
	_, over = f.look(11)
	require.False(t, over)
	require.True(t, f.end(11, errorOutcome))
	how, _ = f.look(11)
	require.Equal(t, errorOutcome, how)
	how, _ = f.look(12)
	require.Equal(t, outcome.Success, how, "the first point of at least 12 is 2^33")
	require.False(t, f.end(11, outcome.Success), "a point ends once")
	how, _ = f.look(11)
	require.Equal(t, errorOutcome, how)
}

// A client makes the core remember only so much, and that is given up when it ends.
func TestOpenPointsAreBounded(t *testing.T) {
	f := &fence{}
	for v := range uint64(1024) {
		require.NoError(t, f.promise(v+1))
		if v > 0 {
			require.True(t, f.end(v+1, outcome.Success), "out of order: stays open")
		}
	}
	require.ErrorIs(t, f.promise(2000), gpuerr.QueueFull)
	require.LessOrEqual(t, cap(f.open), 2048)
	require.True(t, f.end(1, outcome.Success))
	require.EqualValues(t, 1024, f.reached)
	require.Zero(t, cap(f.open))
	require.NoError(t, f.promise(2000))
}

func TestFenceDies(t *testing.T) {
	f := &fence{}
	require.NoError(t, f.promise(1))
	f.end(1, outcome.Success)
	require.NoError(t, f.promise(2))
	f.die(revokedOutcome)
	f.die(lostOutcome)
	require.False(t, f.end(2, outcome.Success))
	how, over := f.look(2)
	require.True(t, over)
	require.Equal(t, revokedOutcome, how, "the first death stands")
	how, _ = f.look(1)
	require.Equal(t, outcome.Success, how, "what was reached stays")
	require.ErrorIs(t, f.promise(3), gpuerr.Stale)
}

// However long ago, an answer is never better than the truth.
func TestFenceHistoryIsNeverBetter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &fence{}
		truth := map[uint64]outcome.Outcome{}
		kinds := []outcome.Outcome{outcome.Success, outcome.Success, outcome.Success, cancelledOutcome, errorOutcome, hangOutcome}
		var values []uint64
		v := uint64(0)
		for range rapid.IntRange(1, 150).Draw(rt, "points") {
			v += rapid.Uint64Range(1, 5).Draw(rt, "step")
			if f.promise(v) != nil {
				rt.Fatal("refused")
			}
			truth[v] = rapid.SampledFrom(kinds).Draw(rt, "how")
			values = append(values, v)
		}
		for _, i := range rapid.Permutation(values).Draw(rt, "order") {
			f.end(i, truth[i])
		}
		for i, value := range values {
			for probe := value; probe > 0 && (i == 0 || probe > values[i-1]); probe-- {
				how, over := f.look(probe)
				if !over {
					rt.Fatalf("%d is reached", probe)
				}
				if outcome.Worse(truth[value], how) != how && how != truth[value] {
					rt.Fatalf("point %d ended %v, told %v", value, truth[value], how)
				}
				if len(values)-i <= fencePoints && how.Kind != truth[value].Kind {
					rt.Fatalf("recent point %d ended %v, told %v", value, truth[value], how)
				}
			}
		}
	})
}

func TestWaitFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t)
		s := r.open("alice")
		f := newFence(t, s, 0)

		short, stop := context.WithTimeout(context.Background(), 300*time.Microsecond)
		begin := time.Now()
		st, err := s.WaitFence(short, f, 1)
		stop()
		require.NoError(t, err)
		require.Equal(t, outcome.Pending, st.Outcome.Kind, "time is up is no error")
		require.Equal(t, 300*time.Microsecond, time.Since(begin))

		type answer struct {
			st  FenceState
			err error
		}
		wait := func(h Handle, v uint64) <-chan answer {
			c := make(chan answer, 1)
			go func() {
				st, err := s.WaitFence(context.Background(), h, v)
				c <- answer{st, err}
			}()
			synctest.Wait()
			return c
		}
		one, two := wait(f, 1), wait(f, 2)
		require.NoError(t, s.SignalFence(f, 1))
		require.Equal(t, FenceState{Reached: 1, Promised: 1, Outcome: outcome.Success}, (<-one).st)
		require.ErrorIs(t, s.SignalFence(f, 1), gpuerr.Invalid)
		require.Empty(t, two)
		require.NoError(t, s.SignalFence(f, 1<<32+7))
		require.Equal(t, outcome.Success, (<-two).st.Outcome, "signal before wait and past 2^32")
		require.EqualValues(t, 1<<32+7, (<-wait(f, 1<<32)).st.Reached)

		dead := wait(f, 1<<40)
		require.NoError(t, s.DestroyFence(f))
		require.Equal(t, outcome.Revoked, (<-dead).st.Outcome.Kind)
		g := newFence(t, s, 0)
		closed := wait(g, 1)
		require.NoError(t, s.Close())
		got := <-closed
		require.NoError(t, got.err)
		require.Equal(t, revokedOutcome, got.st.Outcome)
		r.close()
	})
}
