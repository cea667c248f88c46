package ring_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

func TestRollbackForgetsEntriesAndArguments(t *testing.T) {
	s, err := ring.NewServer(ring.Config{Entries: 4, ArgBytes: 4096})
	require.NoError(t, err)
	defer s.Close(gpuerr.Closed)
	memory, sq, cq, err := s.HandOut()
	require.NoError(t, err)
	c, err := ring.Attach(memory, sq, cq)
	require.NoError(t, err)
	defer c.Close()

	launch := func(userData uint64, bindings int) error {
		if bindings == 0 {
			e := ring.NopEntry(userData)
			return c.Push(&e, nil, nil)
		}
		e := ring.LaunchEntry(userData, 1, ring.Dim3{}, ring.Dim3{}, 0, 0)
		return c.Push(&e, make([]ring.Binding, 32*bindings), nil)
	}
	take := func() (ring.Entry, bool) {
		var e ring.Entry
		ok, err := s.Take(&e)
		require.NoError(t, err)
		if ok {
			s.Consumed()
		}
		return e, ok
	}
	// Many times round, so that slots and arena wrap at every phase.
	for round := range uint64(20) {
		kept := 1 + round*10
		require.NoError(t, launch(kept, int(round%3)))
		mark := c.Mark()
		require.NoError(t, launch(kept+1, 1))
		require.NoError(t, launch(kept+2, 1))
		require.ErrorIs(t, launch(kept+3, 4), gpuerr.QueueFull, "the arena has no room")
		c.Rollback(mark)
		require.Equal(t, 3, c.Free())
		require.NoError(t, launch(kept+4, 1))
		require.NoError(t, c.Flush())
		c.Rollback(mark) // flushed: too late
		for _, want := range []uint64{kept, kept + 4} {
			e, ok := take()
			require.True(t, ok)
			require.Equal(t, want, e.UserData)
			require.NoError(t, ring.Check(&e, 4096))
			s.Complete(&ring.Completion{UserData: e.UserData, Outcome: outcome.Success})
		}
		_, ok := take()
		require.False(t, ok, "what was rolled back is not seen")
		s.Flush()
		var out [4]ring.Completion
		n, err := c.Poll(out[:])
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Equal(t, 4, c.Free())
		require.NoError(t, launch(kept+5, 4), "the whole arena is free again")
		c.Rollback(c.Mark() - 1)
	}
}
