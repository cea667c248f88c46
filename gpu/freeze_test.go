package gpu

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Nothing of a frozen device moves, whatever is signalled or published, and all of it goes
// on with Thaw.
func TestNothingMovesWhileFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hand := newHandBackend()
		hand.auto = true
		r := newMemRig(t, withBackend(hand))
		s := r.open("alice")
		b, f := buf(t, s, 4096), newFence(t, s, 0)
		held, idle := r.queue(s, 16, 0), r.queue(s, 16, 0)
		held.wait(f, 1)
		held.fill(b, 0, 4, 1)
		synctest.Wait()
		require.NoError(t, r.dev.Freeze(t.Context()))
		require.True(t, r.dev.Frozen())
		require.ErrorIs(t, r.dev.Freeze(t.Context()), gpuerr.Busy)
		require.NoError(t, s.SignalFence(f, 1))
		idle.fill(b, 0, 4, 2)
		synctest.Wait()
		require.Zero(t, held.left()+idle.left())
		require.Empty(t, hand.jobs)
		require.True(t, r.dev.Frozen())
		r.dev.Thaw()
		requireOK(t, held.take(2)...)
		requireOK(t, idle.one())
		r.close()
	})
}

// A queue that is closed moves all the same, and then the device is not told to a successor.
func TestCloseMovesWhatIsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemRig(t)
		s := r.open("alice")
		f := newFence(t, s, 0)
		q := r.queue(s, 16, 0)
		q.wait(f, 1)
		synctest.Wait()
		require.NoError(t, r.dev.Freeze(t.Context()))
		require.NoError(t, s.CloseQueue(q.h))
		require.Equal(t, outcome.Revoked, q.one().Outcome.Kind)
		require.False(t, r.dev.Frozen())
		_, _, err := r.dev.Snapshot()
		require.ErrorIs(t, err, gpuerr.Busy)
		r.dev.Thaw()
		r.close()
	})
}
