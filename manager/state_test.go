package manager

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/control"
)

func TestStateBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStateBoard()
		var asker told
		ctx := context.Background()

		r, err := b.next(ctx, &asker, 0, time.Hour)
		require.NoError(t, err)
		require.Equal(t, control.NextStateReply{State: uint32(starting), Changed: true}, r, "the first answer comes at once")

		r, err = b.next(ctx, &asker, 0, time.Minute)
		require.NoError(t, err)
		require.False(t, r.Changed, "what was told is not told again")

		b.update(func(s *snapshot) { s.state, s.epoch = ready, 1 })
		r, _ = b.next(ctx, &asker, 0, time.Minute)
		require.Equal(t, uint32(ready), r.State)
		require.EqualValues(t, 1, r.Epoch)

		r, _ = b.next(ctx, &asker, 1, time.Minute)
		require.False(t, r.Changed)

		go func() {
			time.Sleep(time.Minute)
			b.update(func(s *snapshot) { s.state, s.cause = recovering, "killed" })
		}()
		began := time.Now()
		r, _ = b.next(ctx, &asker, 1, time.Hour)
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, control.NextStateReply{Epoch: 1, State: uint32(recovering), Changed: true, Cause: "killed"}, r)

		var other told
		r, _ = b.next(ctx, &other, 1, time.Hour)
		require.True(t, r.Changed, "another socket has not been told")

		// A whole life passes between two questions: what is now is told.
		b.update(func(s *snapshot) { s.state, s.epoch, s.cause = ready, 2, "" })
		b.update(func(s *snapshot) { s.state, s.cause = recovering, "again" })
		r, _ = b.next(ctx, &asker, 1, time.Hour)
		require.Equal(t, control.NextStateReply{Epoch: 2, State: uint32(recovering), Changed: true, Cause: "again"}, r)
		b.update(func(s *snapshot) { s.state, s.epoch, s.cause = ready, 3, "" })
		r, _ = b.next(ctx, &asker, 2, time.Hour)
		require.EqualValues(t, 3, r.Epoch)

		gone, cancel := context.WithCancel(ctx)
		cancel()
		_, err = b.next(gone, &asker, 3, time.Hour)
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestClipped(t *testing.T) {
	require.Equal(t, "short", clipped("short"))
	long := clipped(strings.Repeat("é", 200))
	require.LessOrEqual(t, len(long), control.MaxStringBytes)
	require.True(t, strings.HasSuffix(long, "é…"))
	require.NotContains(t, long, "\ufffd")
}
