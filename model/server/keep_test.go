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

// The cache that is loaded after an innocent reset may be smaller. A request that
// no longer fits, running or parked, is told so and keeps no other waiting.
func TestSmallerCache(t *testing.T) {
	z := testSize
	z.sequences = 2
	inBubble(t, z, Options{Ahead: 30}, func(r *rig) {
		reset := &client.OutcomeError{Outcome: outcome.Outcome{Kind: outcome.Innocent, Cause: outcome.Reset}}
		long := func(seed uint64) lm.Request {
			q := seeded("text", 90, seed)
			q.IgnoreEnd = true
			return q
		}

		unpulled := r.generate(long(1))
		time.Sleep(100 * time.Millisecond) // it has made all the tokens that it may
		pulled := r.generate(long(2))
		time.Sleep(20 * time.Millisecond)
		r.place.z.pages = 6 // 48 positions
		r.place.engine().failNext(reset)
		for n := r.place.loads(); r.place.loads() == n; {
			time.Sleep(time.Millisecond)
		}

		q := greedy("one", 5)
		other := r.generate(q)
		r.right(q, other)
		for _, s := range []lm.Stream{pulled, unpulled} {
			tokens, err := all(s)
			require.NotEmpty(t, tokens, "what was told is true")
			require.ErrorIs(t, err, gpuerr.Quota)
			require.ErrorContains(t, err, "more positions than the whole cache has")
		}
	})
}

// A finished answer keeps only the text that its client may still read; a parked
// one keeps no memory of steps.
func TestEndedKeepsLittle(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		q := seeded("text", 5, 1)
		q.IgnoreEnd = true
		q.Sampling.Repetition, q.Sampling.PenaltyLast = 1.1, 1<<20
		q.Stop = []string{"never that"}
		checked, err := r.s.newRequest(context.Background(), q)
		require.NoError(t, err)
		require.Equal(t, -1, checked.want.sampling.PenaltyLast, "no ring for more tokens than there can be")
		s := r.generate(q).(*request)
		<-s.out.released
		r.s.mu.Lock()
		require.Equal(t, lm.Length, s.out.finish)
		require.Len(t, s.out.buf, 5)
		require.Nil(t, s.gen.chooser)
		require.Nil(t, s.gen.tokens)
		require.Nil(t, s.gen.text.decoder)
		require.Nil(t, s.gen.text.stop)
		require.Len(t, r.s.requests.unread, 1)
		r.s.mu.Unlock()
		r.right(q, s)
		require.Nil(t, s.out.buf)
		require.Empty(t, r.s.requests.unread)
	})
}

// The number of finished answers that nobody reads is bounded by the number that
// may wait.
func TestManyUnread(t *testing.T) {
	inBubble(t, testSize, Options{Waiting: 4}, func(r *rig) {
		q := greedy("text", 5)
		var streams []lm.Stream
		for range 6 {
			streams = append(streams, r.generate(q))
			time.Sleep(20 * time.Millisecond)
		}

		synctest.Wait()
		require.Len(t, r.s.requests.unread, 4)
		for _, s := range streams[:2] {
			tokens, err := all(s)
			require.Empty(t, tokens)
			require.ErrorIs(t, err, gpuerr.Busy)
			require.Equal(t, lm.Unfinished, s.Finish())
		}

		for _, s := range streams[2:] {
			r.right(q, s)
		}

		require.Empty(t, r.s.requests.unread)
	})
}
