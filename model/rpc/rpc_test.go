package rpc

import (
	"fmt"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
	"capgpu/schema"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func TestGenerate(t *testing.T) {
	r := newRig(t, lmtest.New())
	got, last := r.all(r.generate(text("one two three", 13)))
	require.Equal(t, "three two one", got)
	require.Equal(t, schema.FinishReason_length, last.Finish())
	u, err := last.Usage()
	require.NoError(t, err)
	require.EqualValues(t, 14, u.PromptTokens())
	require.EqualValues(t, 13, u.CompletionTokens())
	require.Equal(t, -1, r.model.Requests()[0].LogProbs, "not asked for")
}

func TestEveryFieldArrives(t *testing.T) {
	r := newRig(t, lmtest.New())
	s := r.generate(func(q schema.GenerateRequest) error {
		q.SetMaxTokens(7)
		q.SetLogProbs(2)
		q.SetIgnoreEnd(true)
		stops, err := q.NewStop(2)
		require.NoError(t, err)
		require.NoError(t, stops.Set(0, "x"))
		require.NoError(t, stops.Set(1, "b "))
		p, err := q.NewSampling()
		require.NoError(t, err)
		p.SetTemperature(0.5)
		p.SetTopK(4)
		p.SetTopP(0.75)
		p.SetMinP(0.125)
		p.SetRepetitionPenalty(1.25)
		p.SetPresencePenalty(0.5)
		p.SetFrequencyPenalty(0.25)
		p.SetPenaltyLast(-1)
		p.SetSeeded(true)
		p.SetSeed(99)
		bias, err := p.NewBias(1)
		require.NoError(t, err)
		bias.At(0).SetId(3)
		bias.At(0).SetValue(-2)
		tokens, err := q.Prompt().NewTokens(3)
		require.NoError(t, err)
		for i, c := range "a b" {
			tokens.Set(i, c)
		}

		return nil
	})

	got, last := r.all(s)
	require.Equal(t, "b ", got)
	require.Equal(t, schema.FinishReason_stop, last.Finish())
	q := r.model.Requests()[0]
	p := q.Sampling
	require.Equal(t, map[int32]float32{3: -2}, p.Bias)
	p.Bias = nil
	require.Equal(t, "{0.5 4 0.75 0.125 1.25 0.5 0.25 -1 99 true map[]}", fmt.Sprint(p))
	require.Equal(t, []int32{'a', ' ', 'b'}, q.Tokens)
	require.Equal(t, []string{"x", "b "}, q.Stop)
	require.Equal(t, 2, q.LogProbs)
	require.True(t, q.IgnoreEnd)
}

func TestTokensCarryTheirProbabilities(t *testing.T) {
	r := newRig(t, lmtest.New())
	s := r.generate(func(q schema.GenerateRequest) error {
		q.SetLogProbs(2)
		return q.Prompt().SetText("ab")
	})

	tokens, err := r.next(s, 1, time.Second).Tokens()
	require.NoError(t, err)
	require.Equal(t, 1, tokens.Len())
	one := tokens.At(0)
	require.EqualValues(t, 'a', one.Id())
	require.EqualValues(t, -0.5, one.LogProb())
	top, err := one.Top()
	require.NoError(t, err)
	require.Equal(t, 2, top.Len())
	b, err := top.At(1).Text()
	require.NoError(t, err)
	require.Equal(t, "b", string(b))
}

func TestMessages(t *testing.T) {
	r := newRig(t, lmtest.New())
	chat := func(role string) ask {
		return func(q schema.GenerateRequest) error {
			q.SetMaxTokens(7)
			list, err := q.Prompt().NewMessages(2)
			require.NoError(t, err)
			require.NoError(t, list.At(0).SetRole("system"))
			require.NoError(t, list.At(0).SetContent("be"))
			require.NoError(t, list.At(1).SetRole(role))
			return list.At(1).SetContent("kind")
		}
	}

	got, _ := r.all(r.generate(chat("user")))
	require.Equal(t, "kind be", got)
	require.Equal(t, r.model.Info().ChatStops, r.model.Requests()[0].Stop)
	f, release := r.languageModel().Generate(r.ctx, asked(chat("root")))
	require.Contains(t, refused(r, gpuerr.Invalid, f, release), "role")
}

// A pull without a result answers when its time is up. Another call, or close,
// passes one that waits.
func TestNextWaits(t *testing.T) {
	model := lmtest.New()
	pace := make(chan struct{})
	model.Pace = pace
	r := newRig(t, model)
	s := r.generate(text("abc", 0))
	require.False(t, r.next(s, 1, time.Millisecond).Done())
	waiting, release := s.Next(r.ctx, upTo(1, 10*time.Second))
	defer release()

	pace <- struct{}{}
	res, err := waiting.Struct()
	require.NoError(t, err)
	tokens, err := res.Tokens()
	require.NoError(t, err)
	require.Equal(t, 1, tokens.Len())

	waiting, release = s.Next(r.ctx, upTo(1, 10*time.Second))
	defer release()
	closed, release := s.Close(r.ctx, nil)
	await(r, closed, release)
	if res, err = waiting.Struct(); err == nil { // the answer ended before its capability
		require.Equal(t, schema.FinishReason_cancelled, res.Finish())
	} else {
		require.ErrorIs(t, rpcguard.FromException(err), gpuerr.Closed)
	}

	require.Zero(t, model.Open())
	f, release := s.Next(r.ctx, upTo(1, 0))
	refused(r, gpuerr.Closed, f, release)
	again, release := s.Close(r.ctx, nil)
	await(r, again, release)
}

// Dropping a stream cancels it, and so does the end of the connection.
func TestDroppedIsCancelled(t *testing.T) {
	model := lmtest.New()
	model.Pace = make(chan struct{})
	r := newRig(t, model)
	f, release := r.languageModel().Generate(r.ctx, asked(text("abc", 0)))
	_, err := f.Struct()
	require.NoError(t, err)
	require.Equal(t, 1, model.Open())
	release()
	require.Eventually(t, func() bool { return model.Open() == 0 }, 10*time.Second, time.Millisecond)

	server, conn := r.dial()
	got, release := server.LanguageModel(r.ctx, nil)
	defer release()
	f, release = got.Model().Generate(r.ctx, asked(text("abc", 0)))
	defer release()

	_, err = f.Struct()
	require.NoError(t, err)
	waiting, release := f.Stream().Next(r.ctx, upTo(1, time.Minute))
	defer release()

	require.Equal(t, 1, model.Open())
	conn.Close()
	_, err = waiting.Struct()
	require.Error(t, err)
	require.Eventually(t, func() bool { return model.Open() == 0 }, 10*time.Second, time.Millisecond)
}

func TestFailures(t *testing.T) {
	model := lmtest.New()
	model.FailAfter, model.Failure = 2, gpuerr.New(gpuerr.DeviceLost, "the driver died")
	r := newRig(t, model)
	s := r.generate(text("abc", 0))
	for range 2 {
		require.False(t, r.next(s, 1, time.Second).Done())
	}
	f, release := s.Next(r.ctx, upTo(1, time.Second))
	require.Contains(t, refused(r, gpuerr.DeviceLost, f, release), "the driver died")
	f, release = s.Next(r.ctx, upTo(0, time.Second))
	require.Contains(t, refused(r, gpuerr.Invalid, f, release), "max")
}

func TestRefusals(t *testing.T) {
	model := lmtest.New()
	model.Refuse = func(q lm.Request) error {
		if q.MaxTokens == 5 {
			return gpuerr.Refused("pages", 10, 3)
		}
		return nil
	}

	r := newRig(t, model)
	m := r.languageModel()
	for want, fill := range map[string]ask{
		"asked=10 available=3": text("a", 5),
		"maxTokens":            text("a", 1<<31),
		"prompt: no tokens": func(q schema.GenerateRequest) error {
			_, err := q.Prompt().NewTokens(0)
			return err
		},
		"messages: 0": func(q schema.GenerateRequest) error {
			_, err := q.Prompt().NewMessages(0)
			return err
		},
		"17 strings": func(q schema.GenerateRequest) error {
			_, err := q.NewStop(17)
			return err
		},
		"1025 entries": func(q schema.GenerateRequest) error {
			p, err := q.NewSampling()
			require.NoError(t, err)
			_, err = p.NewBias(1025)
			return err
		},
		"topK": func(q schema.GenerateRequest) error {
			p, err := q.NewSampling()
			p.SetTopK(1 << 31)
			return err
		},
	} {
		code := gpuerr.Invalid
		if want == "asked=10 available=3" {
			code = gpuerr.Quota
		}
		f, release := m.Generate(r.ctx, asked(fill))
		require.Contains(t, refused(r, code, f, release), want)
	}

	require.Zero(t, model.Open())
}

// One connection gets its number of places and no more, and gets them back.
func TestPlaces(t *testing.T) {
	model := lmtest.New()
	r := newRig(t, model)
	m := r.languageModel()
	var streams []schema.TokenStream
	for range maxStreams {
		f, release := m.Generate(r.ctx, asked(text("a", 1)))
		streams = append(streams, await(r, f, release).Stream())
	}
	f, release := m.Generate(r.ctx, asked(text("a", 1)))
	refused(r, gpuerr.Busy, f, release)
	closed, release := streams[0].Close(r.ctx, nil)
	await(r, closed, release)
	f, release = m.Generate(r.ctx, asked(text("a", 1)))
	await(r, f, release)
}

// The interface is the permission.
func TestEmbedder(t *testing.T) {
	r := newRig(t, lmtest.New())
	got, release := r.server.Embedder(r.ctx, nil)
	e := await(r, got, release).Embedder()
	f, release := e.Embed(r.ctx, func(p schema.Embedder_embed_Params) error {
		texts, err := p.NewTexts(2)
		require.NoError(t, err)
		require.NoError(t, texts.Set(0, "ab"))
		return texts.Set(1, "abc")
	})

	res := await(r, f, release)
	rows, err := res.Embeddings()
	require.NoError(t, err)
	require.Equal(t, 2, rows.Len())
	row, err := rows.At(1)
	require.NoError(t, err)
	v := capnp.Float32List(row.List())
	require.Equal(t, lmtest.Dim, v.Len())
	require.EqualValues(t, 1, v.At(3))

	f, release = e.Embed(r.ctx, func(p schema.Embedder_embed_Params) error {
		_, err := p.NewTexts(maxTexts + 1)
		return err
	})
	require.Contains(t, refused(r, gpuerr.Invalid, f, release), "texts")
	g, release := schema.LanguageModel(e).Generate(r.ctx, asked(text("a", 1)))
	refused(r, gpuerr.Unimplemented, g, release)
}

func TestInfoAndStatus(t *testing.T) {
	r := newRig(t, lmtest.New())
	f, release := r.languageModel().Info(r.ctx, nil)
	info, err := await(r, f, release).Info()
	require.NoError(t, err)
	name, err := info.Name()
	require.NoError(t, err)
	require.Equal(t, "backwards", name)
	require.EqualValues(t, 1234, info.Parameters())

	r.model.Set(func(s *lm.Status) { s.State, s.Reason = lm.Recovering, "the driver died" })
	g, release := r.server.Status(r.ctx, nil)
	status, err := await(r, g, release).Status()
	require.NoError(t, err)
	require.Equal(t, schema.ModelState_recovering, status.State())
	reason, err := status.Reason()
	require.NoError(t, err)
	require.Equal(t, "the driver died", reason)
	budget, err := status.Budget()
	require.NoError(t, err)
	require.EqualValues(t, 64<<20, budget.At(0).Limit())

	tokens, release := r.languageModel().Tokenize(r.ctx, func(p schema.LanguageModel_tokenize_Params) error { return p.SetText("hi") })
	list, err := await(r, tokens, release).Tokens()
	require.NoError(t, err)
	require.Equal(t, 3, list.Len())
}
