package server

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/sample"
)

// rig is a server over the fake model, in a bubble of testing/synctest.
type rig struct {
	t     *testing.T
	s     *Server
	place *fakePlace
	ran   chan error
}

var testSize = size{sequences: 4, context: testContext, batch: 8, pages: 16, pagePositions: 8}

// inBubble runs a test with a running server.
func inBubble(t *testing.T, z size, o Options, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, z, o)
		r.run()
		defer r.s.Close(context.Background()) // when the test failed
		synctest.Wait()
		require.Equal(t, lm.Ready, r.s.Status().State)
		test(r)
		r.close()
	})
}

func newRig(t *testing.T, z size, o Options) *rig {
	o.Log = slog.New(slog.DiscardHandler)
	require.NoError(t, o.complete())
	p := &fakePlace{z: z, cost: time.Millisecond}
	info := lm.Info{Name: "test", Context: testContext, Vocab: testWords.Vocab(), Dim: testDim}
	s := newServer(o, info, testWords, p, z)
	s.chat = func(int, []lm.Message) ([]int32, error) { return []int32{1}, nil }
	return &rig{t: t, s: s, place: p, ran: make(chan error, 1)}
}

func (r *rig) run() { go func() { r.ran <- r.s.Run(context.Background()) }() }

// close ends the server; nothing may be left on the last engine.
func (r *rig) close() {
	r.t.Helper()
	synctest.Wait()
	r.sound()
	require.NoError(r.t, r.s.Close(context.Background()))
	require.NoError(r.t, <-r.ran)
	st := r.s.Status()
	require.Equal(r.t, lm.Stopped, st.State)
	require.Zero(r.t, st.Running+st.Waiting)
	require.Equal(r.t, st.Totals.Requests, st.Totals.Finished+st.Totals.Cancelled+st.Totals.Failed)
	_, err := r.s.Generate(context.Background(), lm.Request{Prompt: "x"})
	require.ErrorIs(r.t, err, gpuerr.Closed)
}

// sound compares the server's books with the engine's.
func (r *rig) sound() {
	r.t.Helper()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()

	if r.s.live == nil {
		require.Empty(r.t, r.s.requests.running)
		require.Zero(r.t, r.s.requests.shares.all.use.pages)
		return
	}

	e := r.s.live.engine.(*fakeEngine)
	require.Equal(r.t, e.z.pages-len(e.free), r.s.requests.shares.all.use.pages)
	require.Len(r.t, r.s.requests.running, e.open)
	pages := 0
	for i, x := range r.s.requests.running {
		require.Equal(r.t, running, x.state)
		pages += x.turn.use.pages
		require.Equal(r.t, len(x.gen.seq.(*fakeSequence).table), x.turn.use.pages)
		if i > 0 {
			require.Less(r.t, r.s.requests.running[i-1].turn.number, x.turn.number)
		}
	}

	require.Equal(r.t, r.s.requests.shares.all.use, use{waiting: r.s.requests.shares.all.use.waiting, places: len(r.s.requests.running), pages: pages})
}

func tokensOf(text string) []int32 { return testWords.Encode(text, encodePlain) }

func (r *rig) generate(q lm.Request) lm.Stream {
	r.t.Helper()
	return r.generateAs("", "", q)
}

func (r *rig) generateAs(peer, user string, q lm.Request) lm.Stream {
	r.t.Helper()
	s, err := r.s.Generate(by(peer, user), q)
	require.NoError(r.t, err)
	return s
}

// by is the context of a call by a user of a peer.
func by(peer, user string) context.Context {
	return lm.WithAsker(context.Background(), lm.Asker{Peer: peer, User: user})
}

// all pulls a stream to its end.
func all(s lm.Stream) (tokens []lm.Token, err error) {
	out := make([]lm.Token, 5)
	for {
		n, err := s.Next(context.Background(), out)
		tokens = append(tokens, out[:n]...)
		if n == 0 {
			if err == io.EOF {
				err = nil
			}
			return tokens, err
		}
	}
}

// right pulls a stream and compares it with the expected answer.
func (r *rig) right(q lm.Request, s lm.Stream) {
	r.t.Helper()
	got, err := all(s)
	require.NoError(r.t, err)
	want, f := expected(q, r.s.room())
	require.Equal(r.t, want, got)
	require.Equal(r.t, f, s.Finish())
	require.NoError(r.t, s.Close())
	require.Equal(r.t, f, s.Finish(), "a close behind the end changes nothing")
}

// greedy is the simplest request.
func greedy(prompt string, most int) lm.Request {
	return lm.Request{Prompt: prompt, MaxTokens: most, LogProbs: -1, IgnoreEnd: true}
}

// seeded is a request that samples its tokens.
func seeded(prompt string, most int, seed uint64) lm.Request {
	return lm.Request{Prompt: prompt, MaxTokens: most, LogProbs: -1, Sampling: sample.Params{Temperature: 1, Seed: seed, Seeded: true}}
}
