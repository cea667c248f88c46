package client

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// However commands end, and however many are collected at a time, each completion is
// handed out once, in order, with its ticket and nothing of what was in its place before.
func TestCompletionsOfAnyKind(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	s := &Session{}
	q, server := bareQueue(t, s, 256)
	launches := bareLaunches(s, 3)
	trap := outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: outcome.Trap{Kind: outcome.OutOfBounds, Workgroup: 3, Offset: 8}}
	kinds := []struct {
		wire ring.Completion
		want Completion
	}{
		{ring.Completion{Outcome: outcome.Success, DeviceNanos: 7}, Completion{Outcome: outcome.Success, DeviceTime: 7}},
		{ring.Completion{Outcome: outcome.Success, DeviceNanos: 1<<63 + 7}, Completion{Outcome: outcome.Success, DeviceTime: 1<<63 - 1}},
		{ring.Completion{UserData: 5 | signalMark, Outcome: outcome.Success, DeviceNanos: 8}, Completion{Outcome: outcome.Success, EndedAt: 8}},
		{ring.Completion{UserData: signalMark, Outcome: outcome.Success, DeviceNanos: 1<<64 - 1}, Completion{Outcome: outcome.Success, EndedAt: 1<<63 - 1}},
		{ring.Completion{UserData: 5 | signalMark, Outcome: outcome.Outcome{Kind: outcome.Cancelled}}, Completion{Outcome: outcome.Outcome{Kind: outcome.Cancelled}}},
		{ring.Completion{Outcome: trap}, Completion{Outcome: trap}},
		{ring.Completion{Outcome: outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}, Code: gpuerr.Stale}, Completion{Outcome: outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}}},
		{ring.Completion{Outcome: outcome.Outcome{Kind: outcome.Cancelled}}, Completion{Outcome: outcome.Outcome{Kind: outcome.Cancelled}}},
	}
	batch := ring.NewBatch(0)
	var want []Completion
	ticket, refused, most := uint64(1), 0, 0
	out := make([]Completion, 300)
	for round := range 2000 {
		list := make([]*Launch, 1+r.IntN(256))
		for i := range list {
			list[i] = launches[r.IntN(1+round%3)]
		}
		s.poisoned.Store(nil)
		first, n, err := q.PushLaunches(list...)
		require.NoError(t, err)
		require.Equal(t, len(list), n)
		require.Equal(t, ticket, first)
		require.NoError(t, q.Flush())
		for left := n; left > 0; {
			taken, err := server.TakeMany(batch, left)
			require.NoError(t, err)
			done := make([]ring.Completion, taken)
			for i := range done {
				k := kinds[0]
				if round%4 > 0 && r.IntN(1+10*(round%4)) == 0 {
					k = kinds[r.IntN(len(kinds))]
				}
				done[i] = k.wire
				k.want.Ticket = ticket
				if k.wire.Code != gpuerr.None {
					k.want.Err = refusal(&k.wire)
				}
				want = append(want, k.want)
				ticket++
			}
			server.Publish(done)
			left -= taken
		}
		for len(want) > 0 {
			at := out[:1+r.IntN(len(out))]
			if r.IntN(3) == 0 {
				at = out[:1+r.IntN(6)]
			}
			got, err := q.Completions(t.Context(), at)
			require.NoError(t, err)
			require.Equal(t, want[:got], at[:got])
			for i := range want[:got] {
				if want[i].Err != nil {
					refused++
				}
			}
			most = max(most, got)
			want = want[got:]
		}
	}
	require.Greater(t, refused, 1000)
	require.Equal(t, len(handful{}), most)
}

// A run that ends in the middle of a full ring says so, and what was staged is what is told.
func TestPushLaunchesUntilFull(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 54))
	s := &Session{}
	q, server := bareQueue(t, s, 64)
	launches := bareLaunches(s, 3)
	batch := ring.NewBatch(0)
	staged, ticket := 0, uint64(1)
	var order []*Launch
	for round := range 3000 {
		list := make([]*Launch, r.IntN(100))
		for i := range list {
			list[i] = launches[r.IntN(1+round%3)]
		}
		first, n, err := q.PushLaunches(list...)
		require.Equal(t, ticket, first)
		if require.Equal(t, min(64-staged, len(list)), n); n < len(list) {
			require.ErrorIs(t, err, gpuerr.QueueFull)
		} else {
			require.NoError(t, err)
		}
		order = append(order, list[:n]...)
		staged, ticket = staged+n, ticket+uint64(n)
		if r.IntN(2) == 0 {
			require.NoError(t, q.Flush())
		}
		taken, err := server.TakeMany(batch, 1+r.IntN(70))
		require.NoError(t, err)
		for i := range batch.Entries {
			x := &batch.Entries[i]
			require.Equal(t, order[i].Bindings[0].Off, x.Args[1], "of the launch that was pushed")
		}
		order, staged = order[taken:], staged-taken
		server.Publish(slices.Repeat([]ring.Completion{{Outcome: outcome.Success}}, taken))
		for left := taken; left > 0; {
			got, err := q.Completions(t.Context(), make([]Completion, 70))
			require.NoError(t, err)
			left -= got
		}
	}
}

// A run is told that its session or queue takes no more, as a single launch is.
func TestPushLaunchesOfWhatIsOver(t *testing.T) {
	s, other := &Session{}, &Session{}
	q, _ := bareQueue(t, s, 64)
	launches, foreign := bareLaunches(s, 2), bareLaunches(other, 1)
	a, b := launches[0], launches[1]
	first, n, err := q.PushLaunches(a, a, a, b, b, foreign[0], a)
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.Equal(t, []any{uint64(1), 5}, []any{first, n})
	poison := gpuerr.New(gpuerr.Poisoned, "it is")
	s.poisoned.Store(poison)
	for _, list := range [][]*Launch{{a}, {b}, {a, a}, {b, b}, {b, b, a}} {
		first, n, err = q.PushLaunches(list...)
		require.Equal(t, error(poison), err)
		require.Equal(t, []any{uint64(6), 0}, []any{first, n})
	}
	s.poisoned.Store(nil)
	first, n, err = q.PushLaunches(b, b)
	require.NoError(t, err)
	require.Equal(t, []any{uint64(6), 2}, []any{first, n})
	q.closed.Store(true)
	for _, list := range [][]*Launch{{b}, {b, b}, {a, a}} {
		_, n, err = q.PushLaunches(list...)
		require.ErrorIs(t, err, gpuerr.Closed)
		require.Zero(t, n)
	}
}
