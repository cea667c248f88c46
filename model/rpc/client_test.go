package rpc

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
	"capgpu/model/sample"
)

func dialled(t *testing.T, model *lmtest.Model) (*rig, *Client) {
	r := newRig(t, model)
	c, err := Dial(r.ctx, r.path)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return r, c
}

// A client sees the model's own values.
func TestClientIsTheModel(t *testing.T) {
	r, c := dialled(t, lmtest.New())
	want := r.model.Info()
	want.Created = time.Time{} // not in the schema
	require.Equal(t, want, c.Info())
	s := r.model.Status()
	got := c.Status()
	require.Equal(t, s.Device, got.Device)
	require.Equal(t, s.Budget, got.Budget)
	require.Equal(t, s.State, got.State)
	hi, err := c.Tokenize(r.ctx, "hi")
	require.NoError(t, err)
	require.Equal(t, lmtest.Tokens("hi"), hi)
	_, err = c.Tokenize(r.ctx, strings.Repeat("x", 10000))
	require.ErrorIs(t, err, gpuerr.Invalid)
	messages := []lm.Message{{Role: "user", Content: "a b"}}
	tokens, err := c.Chat(r.ctx, messages)
	require.NoError(t, err)
	wantTokens, err := r.model.Chat(r.ctx, messages)
	require.NoError(t, err)
	require.Equal(t, wantTokens, tokens)
	_, err = c.Chat(r.ctx, []lm.Message{{Role: "root"}})
	require.ErrorIs(t, err, gpuerr.Invalid)
	v, u, err := c.Embed(r.ctx, []string{"abc"})
	require.NoError(t, err)
	require.Equal(t, [][]float32{{0, 0, 0, 1}}, v)
	require.Equal(t, 4, u.PromptTokens)
}

func TestClientGenerates(t *testing.T) {
	r, c := dialled(t, lmtest.New())
	q := lm.Request{
		Prompt: "a b", MaxTokens: 4, LogProbs: 1, Stop: []string{"x"}, IgnoreEnd: true,
		Sampling: sample.Params{Temperature: 1, TopK: 2, TopP: 0.5, MinP: 0.25, Repetition: 2, Presence: 1, Frequency: -1, PenaltyLast: 9, Seeded: true, Seed: 5, Bias: map[int32]float32{1: 2}},
	}

	s, err := c.Generate(r.ctx, q)
	require.NoError(t, err)
	got := r.model.Requests()[0]
	require.Equal(t, q, got)
	var text string
	out := make([]lm.Token, 3)
	for {
		n, err := s.Next(r.ctx, out)
		for _, one := range out[:n] {
			text += one.Text
			require.Len(t, one.Top, 1)
		}
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}

	require.Equal(t, "b a ", text)
	require.Equal(t, lm.Length, s.Finish())
	require.Equal(t, 4, s.Usage().CompletionTokens)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
}

// The client learns of the end of the request's context, of the stream and of the
// server.
func TestClientIsCancelled(t *testing.T) {
	model := lmtest.New()
	model.Pace = make(chan struct{})
	r, c := dialled(t, model)
	ctx, cancel := context.WithCancel(r.ctx)
	s, err := c.Generate(ctx, lm.Request{Prompt: "a", LogProbs: -1})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := s.Next(r.ctx, make([]lm.Token, 1))
		ended <- err
	}()

	cancel()
	require.Error(t, <-ended)
	require.Eventually(t, func() bool { return model.Open() == 0 }, 10*time.Second, time.Millisecond)

	s, err = c.Generate(r.ctx, lm.Request{Prompt: "a", LogProbs: -1})
	require.NoError(t, err)
	short, cancel := context.WithTimeout(r.ctx, time.Millisecond)
	defer cancel()

	_, err = s.Next(short, make([]lm.Token, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, s.Close())
	require.Zero(t, model.Open())
}

func TestDialNobody(t *testing.T) {
	_, err := Dial(t.Context(), t.TempDir()+"/none.sock")
	require.ErrorIs(t, err, gpuerr.Disconnected)
}

// If a context ends while a stream is being opened, only the stream ends.
func TestClientGivesUpWhileItAsks(t *testing.T) {
	r, c := dialled(t, lmtest.New())
	for range 300 {
		ctx, cancel := context.WithCancel(r.ctx)
		go cancel()
		if s, err := c.Generate(ctx, lm.Request{Prompt: "a b", MaxTokens: 4}); err == nil {
			require.NoError(t, s.Close())
		}
	}
	s, err := c.Generate(r.ctx, lm.Request{Prompt: "a b", MaxTokens: 4})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
