package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/sample"
	"capgpu/outcome"
)

// chaosSeeds is the number of random runs; CAPGPU_CHAOS sets another number.
func chaosSeeds(t *testing.T) uint64 {
	if text := os.Getenv("CAPGPU_CHAOS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 32)
		require.NoError(t, err)
		return n
	}
	return 40
}

// randomRequest is any request that is accepted.
func randomRequest(x *rand.Rand) lm.Request {
	q := lm.Request{
		MaxTokens: x.IntN(40),
		LogProbs:  x.IntN(4) - 1,
		Echo:      x.IntN(4) == 0,
		IgnoreEnd: x.IntN(2) == 0,
	}

	for range 1 + x.IntN(30) {
		q.Tokens = append(q.Tokens, int32(x.IntN(testWords.Vocab())))
	}

	if x.IntN(2) == 0 {
		q.Sampling = sample.Params{Temperature: 1, TopK: x.IntN(5), Seed: x.Uint64(), Seeded: true}
	}
	if x.IntN(3) == 0 {
		q.Sampling.Repetition = 1.2
	}
	if x.IntN(3) == 0 {
		q.Stop = [][]string{{"ab"}, {"dogdog", "ba"}, {"é"}, {"\n", " cat"}}[x.IntN(4)]
	}
	if x.IntN(3) == 0 {
		q.LogProbs, q.Sampling = -1, sample.Params{}
	}

	return q
}

// anybody is one of two users of one of three peers.
func anybody(x *rand.Rand) context.Context {
	return by(string(rune('a'+x.IntN(3))), string(rune('u'+x.IntN(2))))
}

// TestChaos drives the server at random. Requests of all kinds arrive, are pulled
// fast, slowly or not at all, and are cancelled; pages are scarce; and the device
// is lost in all kinds of ways. Every finished text equals the one that the slow
// reference computes alone, and every other text is a prefix of it. Nothing is
// left, and the books agree.
func TestChaos(t *testing.T) {
	var sum lm.Totals
	for seed := range chaosSeeds(t) {
		synctest.Test(t, func(t *testing.T) { liveThrough(t, seed, &sum) })
	}
	t.Logf("%+v", sum)
	require.Positive(t, sum.Finished)
	require.Positive(t, sum.Cancelled)
	require.Positive(t, sum.Failed)
	require.Positive(t, sum.Recoveries)
}

func liveThrough(t *testing.T, seed uint64, sum *lm.Totals) {
	x := rand.New(rand.NewPCG(seed, 0))
	z := size{sequences: 1 + x.IntN(5), context: testContext, batch: 1 + x.IntN(9), pagePositions: 1 << (2 + x.IntN(3))}
	z.pages = (70+x.IntN(100))/z.pagePositions + 1
	r := newRig(t, z, Options{Ahead: 1 + x.IntN(40), Waiting: 5 + x.IntN(20)})
	r.place.delay = 3 * time.Millisecond
	if x.IntN(3) == 0 { // slow enough for turns to be taken
		r.place.cost = time.Duration(1+x.IntN(40)) * time.Millisecond
	}

	r.run()
	defer r.s.Close(context.Background())
	synctest.Wait()
	time.Sleep(10 * time.Millisecond)

	calm := seed%4 == 0 // nothing goes wrong
	stop := make(chan struct{})
	var around sync.WaitGroup
	if !calm {
		around.Go(func() { trouble(r, rand.New(rand.NewPCG(seed, 1)), stop) })
	}

	var asking sync.WaitGroup
	for range 30 {
		y := rand.New(rand.NewPCG(x.Uint64(), 2))
		asking.Go(func() { oneClient(r, y, calm) })
		time.Sleep(time.Duration(x.IntN(12)) * time.Millisecond)
		if x.IntN(5) == 0 {
			synctest.Wait()
			r.sound()
		}
	}

	asking.Wait()
	close(stop)
	around.Wait()
	time.Sleep(10 * time.Second) // the last fault is over
	synctest.Wait()
	st := r.s.Status()
	require.Equal(t, lm.Ready, st.State)
	require.Zero(t, st.PagesUsed)
	require.Zero(t, st.Running+st.Waiting)
	r.right(greedy("after all", 10), r.generate(greedy("after all", 10)))
	r.close()
	st = r.s.Status()
	sum.Requests += st.Totals.Requests
	sum.Finished += st.Totals.Finished
	sum.Cancelled += st.Totals.Cancelled
	sum.Failed += st.Totals.Failed
	sum.Recoveries += st.Totals.Recoveries
	sum.CompletionTokens += st.Totals.CompletionTokens
}

// oneClient makes one request, or embeds one text, and checks the result.
func oneClient(r *rig, x *rand.Rand, calm bool) {
	if x.IntN(8) == 0 {
		v, _, err := r.s.Embed(anybody(x), []string{"text"})
		if err == nil {
			require.Equal(r.t, vectorOf(tokensOf("text")), v[0])
		} else {
			typed(r.t, err)
		}
		return
	}

	q := randomRequest(x)
	s, err := r.s.Generate(anybody(x), q)
	if err != nil {
		require.ErrorIs(r.t, err, gpuerr.Busy)
		return
	}

	pause, cancelAt := time.Duration(0), -1
	switch x.IntN(4) {
	case 0:
		pause = time.Duration(x.IntN(20)) * time.Millisecond
	case 1:
		cancelAt = x.IntN(20)
	case 2:
		time.Sleep(time.Duration(x.IntN(300)) * time.Millisecond)
	}

	var got []lm.Token
	out := make([]lm.Token, 1+x.IntN(8))
	for n := 1; n > 0; {
		if cancelAt >= 0 && len(got) >= cancelAt {
			require.NoError(r.t, s.Close())
		}
		n, err = s.Next(context.Background(), out)
		got = append(got, out[:n]...)
		time.Sleep(pause)
	}

	want, f := expected(q, r.place.z)
	if len(got) > 0 {
		require.Equal(r.t, want[:min(len(got), len(want))], got, "%+v", q)
	}

	switch {
	case s.Finish() == lm.Cancelled:
		require.GreaterOrEqual(r.t, cancelAt, 0)
	case s.Finish() != lm.Unfinished:
		require.Equal(r.t, f, s.Finish())
		if cancelAt < 0 { // otherwise it had ended before, and Close dropped the rest
			require.Len(r.t, got, len(want))
		}
	default:
		typed(r.t, err)
		if calm { // only a missing reader ends an answer
			require.ErrorIs(r.t, err, gpuerr.Busy)
		}
	}

	require.NoError(r.t, s.Close())
}

// typed checks that a fault ends a request with one of the codes that package lm
// documents.
func typed(t *testing.T, err error) {
	t.Helper()
	require.Contains(t, []gpuerr.Code{gpuerr.DeviceLost, gpuerr.Disconnected, gpuerr.Busy, gpuerr.Poisoned}, gpuerr.CodeOf(err), "%v", err)
}

// trouble loses the device, now and then.
func trouble(r *rig, x *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			r.place.setRefuse(nil)
			r.place.engine().failNext(nil)
			return
		case <-time.After(time.Duration(20+x.IntN(150)) * time.Millisecond):
		}

		e := r.place.engine()
		switch x.IntN(6) {
		case 0:
			e.kill(gpuerr.New(gpuerr.Disconnected, "the driver is gone"))
		case 1:
			e.kill(gpuerr.New(gpuerr.DeviceLost, "the device is gone"))
		case 2:
			r.place.setRefuse(errors.Join(gpuerr.Refused("deviceMemory", 2, 1)))
			e.kill(gpuerr.New(gpuerr.Disconnected, "the driver is gone"))
			time.Sleep(time.Duration(x.IntN(50)) * time.Millisecond)
			r.place.setRefuse(nil)
		case 3:
			e.failNext(&client.OutcomeError{Outcome: outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause}})
		case 4:
			e.failNext(&client.OutcomeError{Outcome: outcome.Outcome{Kind: outcome.TimedOut, Cause: outcome.Hang}})
		case 5:
			e.failNext(&client.OutcomeError{Outcome: outcome.Outcome{Kind: outcome.Innocent, Cause: outcome.Reset}})
		}
	}
}
