package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/sample"
)

func TestOneAnswer(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		for _, q := range []lm.Request{
			greedy("hello", 20),
			{Prompt: "hello", MaxTokens: 20},
			{Prompt: "hello", MaxTokens: 20, LogProbs: 3, Echo: true},
			{Prompt: "a long prompt of several batches, é", MaxTokens: 9, LogProbs: 2, Echo: true},
			{Prompt: "hello", MaxTokens: 20, LogProbs: -1, Echo: true},
			{Tokens: []int32{1, 270 - 10, 261}, MaxTokens: 1, LogProbs: -7},
			{Prompt: "everything that there is room for", LogProbs: -1, IgnoreEnd: true},
			{Prompt: strings.Repeat("z", testContext-1), LogProbs: 0, IgnoreEnd: true}, // one token is left
			{Prompt: strings.Repeat("z", testContext-3), LogProbs: -1, IgnoreEnd: true},
			{Prompt: "stop", Stop: []string{"a", "dog"}, LogProbs: -1},
			{Prompt: "stop", Stop: []string{"ab", "bab", "dogdog"}, Sampling: sample.Params{Temperature: 0.8, Seed: 3, Seeded: true}},
			{Prompt: "p", MaxTokens: 30, Sampling: sample.Params{Repetition: 1.3, Presence: 0.5, PenaltyLast: 10}},
		} {
			r.right(q, r.generate(q))
		}

		u := r.s.Status().Totals
		require.EqualValues(t, 12, u.Requests)
		require.EqualValues(t, 12, u.Finished)
		require.Positive(t, u.Steps)
		require.Positive(t, u.Busy)
	})
}

func TestUsage(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		s := r.generate(greedy("0123456789012345", 10)) // 17 tokens in passes of 1, 2, 4, 8 and 2 rows: 5 ms
		_, err := all(s)
		require.NoError(t, err)
		u := s.Usage()
		require.Equal(t, lm.Usage{PromptTokens: 17, CompletionTokens: 10, Prefill: 5 * time.Millisecond, Decode: 9 * time.Millisecond, DeviceTime: 14 * time.Millisecond}, u)
	})
}

func TestRefusals(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		long := strings.Repeat("z", testContext)
		for name, q := range map[string]lm.Request{
			"maxTokens: -1 is negative":         {Prompt: "x", MaxTokens: -1},
			"logProbs: 21":                      {Prompt: "x", LogProbs: 21},
			"stop: 17 strings":                  {Prompt: "x", Stop: make([]string, 17)},
			"stop: string 1 has 0 bytes":        {Prompt: "x", Stop: []string{"a", ""}},
			"stop: string 0 has 257 bytes":      {Prompt: "x", Stop: []string{strings.Repeat("x", 257)}},
			"stop: string 0 is not UTF-8":       {Prompt: "x", Stop: []string{"\xc3"}},
			"tokens: there are none":            {Tokens: []int32{}},
			"tokens: element 1 is 268":          {Tokens: []int32{1, 268}},
			"tokens: element 0 is -1":           {Tokens: []int32{-1}},
			"prompt: more than 96 tokens":       {Prompt: long},
			"prompt: 200 tokens":                {Tokens: make([]int32, 200)},
			"prompt: 4194305 bytes":             {Prompt: strings.Repeat("z", maxPromptBytes+1)},
			"temperature: -1":                   {Prompt: "x", Sampling: sample.Params{Temperature: -1}},
			"bias: token 500 is not of the 268": {Prompt: "x", Sampling: sample.Params{Bias: map[int32]float32{500: 1}}},
		} {
			_, err := r.s.Generate(context.Background(), q)
			require.ErrorIs(t, err, gpuerr.Invalid)
			require.ErrorContains(t, err, name)
		}

		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := r.s.Generate(ctx, lm.Request{Prompt: "x"})
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, r.s.Status().Totals.Requests)
	})
}

// A request that could never have all its positions is refused with both numbers.
func TestTooLargeForTheCache(t *testing.T) {
	z := testSize
	z.pages = 4 // 32 positions
	inBubble(t, z, Options{}, func(r *rig) {
		_, err := r.s.Generate(context.Background(), greedy("0123456789", 23)) // 11 + 23 - 1
		var e *gpuerr.Error
		require.True(t, errors.As(err, &e))
		require.Equal(t, gpuerr.Quota, e.Code)
		require.Equal(t, []any{ResourcePositions, uint64(33), uint64(32)}, []any{e.Resource, e.Asked, e.Available})

		q := greedy("0123456789", 22)
		r.right(q, r.generate(q))
		q = greedy("0123456789", 0) // as many as there is room for
		s := r.generate(q)
		r.right(q, s)
		require.Equal(t, 22, s.Usage().CompletionTokens)
		_, _, err = r.s.Embed(context.Background(), []string{strings.Repeat("x", 32)})
		require.ErrorIs(t, err, gpuerr.Quota)
	})
}

func TestStreamEnds(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		s := r.generate(greedy("x", 3))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := s.Next(ctx, make([]lm.Token, 1))
		require.ErrorIs(t, err, context.Canceled)
		n, err := s.Next(context.Background(), nil)
		require.NoError(t, err)
		require.Zero(t, n)
		tokens, err := all(s)
		require.NoError(t, err)
		require.Len(t, tokens, 3)
		for range 2 {
			n, err = s.Next(context.Background(), make([]lm.Token, 1))
			require.Zero(t, n)
			require.Equal(t, io.EOF, err)
		}

		// A second caller waits for the first, and the end wakes both.
		s = r.generate(lm.Request{Prompt: "y"})
		done := make(chan struct{})
		for range 2 {
			go func() {
				_, _ = all(s)
				done <- struct{}{}
			}()
		}

		<-done
		<-done
	})
}

// Everything that a cancelled request holds is free when Close returns, whatever it
// was doing.
func TestCancel(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		for _, wait := range []time.Duration{0, time.Microsecond, 1500 * time.Microsecond, 20 * time.Millisecond} {
			s := r.generate(greedy("some text", 80))
			other := r.generate(lm.Request{Prompt: "other", MaxTokens: 30, IgnoreEnd: true, LogProbs: 1})
			time.Sleep(wait)
			synctest.Wait()
			require.NoError(t, s.Close())
			x := s.(*request)
			r.s.mu.Lock()
			state, holds, kept := x.state, x.gen.seq != nil, len(x.out.buf)
			r.s.mu.Unlock()
			require.Equal(t, gone, state)
			require.False(t, holds)
			require.Zero(t, kept)
			n, err := s.Next(context.Background(), make([]lm.Token, 9))
			require.Zero(t, n)
			require.Equal(t, io.EOF, err)
			require.Equal(t, lm.Cancelled, s.Finish())
			require.NoError(t, s.Close())
			r.right(lm.Request{Prompt: "other", MaxTokens: 30, IgnoreEnd: true, LogProbs: 1}, other)
			synctest.Wait()
			r.sound()
			require.Zero(t, r.s.Status().PagesUsed)
		}

		ctx, cancel := context.WithCancel(context.Background())
		s, err := r.s.Generate(ctx, greedy("some text", 80))
		require.NoError(t, err)
		time.Sleep(5 * time.Millisecond)
		cancel()
		_, err = all(s)
		require.NoError(t, err)
		require.Equal(t, lm.Cancelled, s.Finish())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Zero(t, r.s.Status().PagesUsed)
		require.EqualValues(t, 5, r.s.Status().Totals.Cancelled)
	})
}

// An answer that nobody pulls stops, delays no other, and gives its place up to
// others.
func TestUnpulled(t *testing.T) {
	z := testSize
	z.sequences = 2
	inBubble(t, z, Options{Ahead: 6}, func(r *rig) {
		q1, q2 := greedy("one", 40), seeded("two", 40, 5)
		q2.IgnoreEnd = true
		s1, s2 := r.generate(q1), r.generate(q2)
		time.Sleep(time.Second)
		synctest.Wait()
		st := r.s.Status()
		require.Equal(t, 2, st.Running, "they keep their places while nobody wants them")
		require.EqualValues(t, 12, st.Totals.CompletionTokens)
		steps := st.Totals.Steps
		time.Sleep(time.Second)
		require.Equal(t, steps, r.s.Status().Totals.Steps, "nothing runs in vain")

		for range 3 { // others take both places
			q3, q4 := greedy("three", 20), seeded("four", 20, 6)
			s3, s4 := r.generate(q3), r.generate(q4)
			r.right(q3, s3)
			r.right(q4, s4)
		}

		synctest.Wait()
		require.Equal(t, 2, r.s.Status().Waiting)
		r.right(q1, s1)
		r.right(q2, s2)
	})
}

// Answers that nobody pulls are not kept without end.
func TestManyUnpulled(t *testing.T) {
	z := testSize
	z.sequences = 1
	inBubble(t, z, Options{Ahead: 2, Waiting: 3}, func(r *rig) {
		var streams []lm.Stream
		for i := range 6 {
			q := greedy("x", 10)
			streams = append(streams, r.generateAs(string(rune('a'+i)), "", q))
			time.Sleep(50 * time.Millisecond)
		}
		tokens, err := all(streams[0])
		require.Len(t, tokens, 2)
		require.ErrorIs(t, err, gpuerr.Busy)
		for _, s := range streams[2:] {
			r.right(greedy("x", 10), s)
		}
		_, err = all(streams[1])
		require.ErrorIs(t, err, gpuerr.Busy)
	})
}

// A request alone runs decode ahead, and stops that when another comes.
func TestRunAhead(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		q := greedy("alone", 80)
		s := r.generate(q)
		time.Sleep(20500 * time.Microsecond)
		synctest.Wait()
		before := r.place.engine().aheads.Load()
		require.Greater(t, before, int64(15))
		other := lm.Request{Prompt: "b", MaxTokens: 5, IgnoreEnd: true}
		s2 := r.generate(other)
		time.Sleep(3 * time.Millisecond)
		synctest.Wait()
		require.LessOrEqual(t, r.place.engine().aheads.Load(), before+1)
		require.Positive(t, s2.Usage().CompletionTokens)
		r.right(other, s2)
		r.right(q, s)
		require.Greater(t, r.place.engine().aheads.Load(), before+20, "it goes on ahead afterwards")
	})
}

// When pages run out the youngest request waits; every answer is still right.
func TestPagesRunOut(t *testing.T) {
	z := testSize
	z.pages = 12 // of 96 positions one whole context
	inBubble(t, z, Options{}, func(r *rig) {
		var streams []lm.Stream
		var asked []lm.Request
		for i := range 4 {
			q := seeded("a text for "+string(rune('0'+i)), 80, uint64(i))
			q.IgnoreEnd = true
			asked = append(asked, q)
			streams = append(streams, r.generate(q))
		}
		for i := range streams {
			r.right(asked[i], streams[i])
		}
		require.Greater(t, r.place.engine().opened, 4, "somebody had to begin anew")
	})
}

func TestEmbed(t *testing.T) {
	inBubble(t, testSize, Options{}, func(r *rig) {
		q := greedy("beside", 60)
		s := r.generate(q)
		texts := []string{"one", "another text", ""}
		vectors, u, err := r.s.Embed(context.Background(), texts)
		require.NoError(t, err)
		for i, text := range texts {
			require.Equal(t, vectorOf(tokensOf(text)), vectors[i])
		}

		require.Equal(t, len(tokensOf("one"))+len(tokensOf("another text"))+1, u.PromptTokens)
		require.Positive(t, u.DeviceTime)
		r.right(q, s)
		_, _, err = r.s.Embed(context.Background(), nil)
		require.ErrorIs(t, err, gpuerr.Invalid)
		_, _, err = r.s.Embed(context.Background(), []string{"x", strings.Repeat("y", testContext)})
		require.ErrorContains(t, err, "texts: number 1: more than 96 tokens")
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Microsecond)
		defer cancel()

		_, _, err = r.s.Embed(ctx, []string{"late"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
