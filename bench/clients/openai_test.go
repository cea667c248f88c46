package clients

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

// token is the token of the tests' servers.
const token = "a token of the tests"

func newClient(url string, more ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{option.WithBaseURL(url + "/v1"), option.WithAPIKey(token), option.WithMaxRetries(0)}, more...)...)
}

func userSays(text string) []openai.ChatCompletionMessageParamUnion {
	return []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}
}

func TestModels(t *testing.T) {
	c := newClient(startFake(t, lmtest.New()))
	page, err := c.Models.List(t.Context())
	require.NoError(t, err)
	require.Len(t, page.Data, 1)
	require.Equal(t, "backwards", page.Data[0].ID)
	m, err := c.Models.Get(t.Context(), "backwards")
	require.NoError(t, err)
	require.Equal(t, "capgpu", m.OwnedBy)
	require.EqualValues(t, 1700000000, m.Created)
	_, err = c.Models.Get(t.Context(), "gpt-4")
	requireError(t, err, 404, "E_INVALID", "model")
}

func TestCompletions(t *testing.T) {
	c := newClient(startFake(t, lmtest.New()))
	r, err := c.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "backwards", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"two one", "b a"}},
		MaxTokens: openai.Int(7), N: openai.Int(2), Logprobs: openai.Int(1), Temperature: openai.Float(0), Seed: openai.Int(-3),
	})
	require.NoError(t, err)
	require.Len(t, r.Choices, 4)
	for i, want := range []string{"one two", "one two", "a b a b", "a b a b"} {
		require.EqualValues(t, i, r.Choices[i].Index)
		require.Equal(t, want, r.Choices[i].Text)
		require.Equal(t, openai.CompletionChoiceFinishReasonLength, r.Choices[i].FinishReason)
		require.Len(t, r.Choices[i].Logprobs.Tokens, 7)
		require.Equal(t, -0.5, r.Choices[i].Logprobs.TokenLogprobs[6])
	}

	require.EqualValues(t, 28, r.Usage.CompletionTokens)
	require.EqualValues(t, 8+4, r.Usage.PromptTokens)

	r, err = c.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "backwards", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{256, 'b', ' ', 'a'}},
		MaxTokens: openai.Int(100), Stop: openai.CompletionNewParamsStopUnion{OfStringArray: []string{"b"}},
	})
	require.NoError(t, err)
	require.Equal(t, openai.CompletionChoiceFinishReasonStop, r.Choices[0].FinishReason)

	stream := c.Completions.NewStreaming(t.Context(), openai.CompletionNewParams{
		Model: "backwards", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("b a")}, MaxTokens: openai.Int(5),
	})

	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Current().Choices[0].Text)
	}

	require.NoError(t, stream.Err())
	require.Equal(t, "a b a", text.String())
}

func TestChat(t *testing.T) {
	m := lmtest.New()
	c := newClient(startFake(t, m))
	params := openai.ChatCompletionNewParams{
		Model: "backwards", MaxCompletionTokens: openai.Int(8), Logprobs: openai.Bool(true), TopLogprobs: openai.Int(2), User: openai.String("me"),
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.DeveloperMessage("x"), openai.AssistantMessage("y"),
			openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("b "), openai.TextContentPart("a")}),
		},
	}

	r, err := c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "a b y x ", r.Choices[0].Message.Content)
	require.EqualValues(t, "assistant", r.Choices[0].Message.Role)
	require.Equal(t, "length", r.Choices[0].FinishReason)
	require.Len(t, r.Choices[0].Logprobs.Content, 8)
	require.Equal(t, "a", r.Choices[0].Logprobs.Content[0].TopLogprobs[0].Token)
	require.Equal(t, []int64{'b'}, r.Choices[0].Logprobs.Content[0].TopLogprobs[1].Bytes)
	require.Equal(t, "me", m.Askers()[0].User)

	// The library's own accumulator makes the same answer from the stream.
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	whole := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		require.True(t, whole.AddChunk(stream.Current()))
	}

	require.NoError(t, stream.Err())
	require.Equal(t, r.Choices[0].Message.Content, whole.Choices[0].Message.Content)
	require.Equal(t, "length", whole.Choices[0].FinishReason)
	require.Equal(t, r.Usage.TotalTokens, whole.Usage.TotalTokens)
}

func TestEmbeddings(t *testing.T) {
	c := newClient(startFake(t, lmtest.New()))
	params := openai.EmbeddingNewParams{Model: "backwards", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "abc"}}}
	r, err := c.Embeddings.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, []float64{0, 1, 0, 0}, r.Data[0].Embedding)
	require.Equal(t, []float64{0, 0, 0, 1}, r.Data[1].Embedding)
	require.EqualValues(t, 6, r.Usage.TotalTokens)

	params.Dimensions = openai.Int(2)
	_, err = c.Embeddings.New(t.Context(), params)
	requireError(t, err, 400, "E_UNIMPLEMENTED", "dimensions")
}

// The answer's JSON has base64; the library leaves decoding to its user.
func TestEmbeddingsInBase64(t *testing.T) {
	c := newClient(startFake(t, lmtest.New()))
	var raw struct {
		Data []struct{ Embedding string }
	}
	require.NoError(t, c.Post(t.Context(), "embeddings", map[string]any{"input": "abc", "encoding_format": "base64"}, &raw))
	b, err := base64.StdEncoding.DecodeString(raw.Data[0].Embedding)
	require.NoError(t, err)
	require.Len(t, b, 4*lmtest.Dim)
	require.Equal(t, float32(1), math.Float32frombits(binary.LittleEndian.Uint32(b[12:])))
}

func requireError(t *testing.T, err error, status int, code, param string) {
	t.Helper()
	var e *openai.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, status, e.StatusCode, e.Message)
	require.Equal(t, code, e.Code)
	require.Equal(t, param, e.Param)
	require.NotEmpty(t, e.Message)
}

func TestErrors(t *testing.T) {
	m := lmtest.New()
	url := startFake(t, m)
	c := newClient(url)
	params := openai.ChatCompletionNewParams{Model: "backwards", Messages: userSays("a"), MaxTokens: openai.Int(1)}

	_, err := c.Chat.Completions.New(t.Context(), params, option.WithAPIKey("wrong"))
	requireError(t, err, 401, "E_DENIED", "")
	wrong := params
	wrong.Model = "gpt-4"
	_, err = c.Chat.Completions.New(t.Context(), wrong)
	requireError(t, err, 404, "E_INVALID", "model")
	wrong = params
	wrong.Temperature = openai.Float(3)
	_, err = c.Chat.Completions.New(t.Context(), wrong)
	requireError(t, err, 400, "E_INVALID", "temperature")
	wrong = params
	wrong.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "f"})}
	_, err = c.Chat.Completions.New(t.Context(), wrong)
	requireError(t, err, 400, "E_UNIMPLEMENTED", "tools")

	for _, s := range []struct {
		err    error
		status int
		code   string
	}{
		{gpuerr.Refused("positions", 100, 7), 429, "E_QUOTA"},
		{gpuerr.New(gpuerr.Busy, "9 requests wait"), 429, "E_BUSY"},
		{gpuerr.New(gpuerr.DeviceLost, "gone"), 503, "E_DEVICE_LOST"},
		{gpuerr.New(gpuerr.Revoked, "by the operator"), 503, "E_REVOKED"},
	} {
		m.Refuse = func(lm.Request) error { return s.err }
		_, err = c.Chat.Completions.New(t.Context(), params)
		requireError(t, err, s.status, s.code, "")
	}

	// The library retries by itself when that is of use, and never otherwise.
	asked := 0
	m.Refuse = func(lm.Request) error {
		if asked++; asked == 1 {
			return gpuerr.New(gpuerr.Busy, "now")
		}
		return nil
	}

	_, err = c.Chat.Completions.New(t.Context(), params, option.WithMaxRetries(1))
	require.NoError(t, err)
	require.Equal(t, 2, asked)
	asked = 0
	m.Refuse = func(lm.Request) error { asked++; return gpuerr.New(gpuerr.Revoked, "by the operator") }
	_, err = c.Chat.Completions.New(t.Context(), params, option.WithMaxRetries(2))
	requireError(t, err, 503, "E_REVOKED", "")
	require.Equal(t, 1, asked)
}

// A broken stream is an error for the library, after it has handed out everything
// before.
func TestBrokenStream(t *testing.T) {
	m := lmtest.New()
	m.FailAfter, m.Failure = 3, gpuerr.New(gpuerr.DeviceLost, "the driver was killed")
	c := newClient(startFake(t, m))
	stream := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{Model: "backwards", Messages: userSays("b a")})
	var text strings.Builder
	for stream.Next() {
		text.WriteString(stream.Current().Choices[0].Delta.Content)
	}
	require.Equal(t, "a b", text.String())
	var broken *ssestream.StreamError
	require.ErrorAs(t, stream.Err(), &broken)
	require.ErrorContains(t, stream.Err(), "E_DEVICE_LOST")
}

// A client that leaves frees its resources, with a stream or without.
func TestCancelled(t *testing.T) {
	m := lmtest.New()
	let := make(chan struct{})
	m.Pace = let
	c := newClient(startFake(t, m))
	params := openai.ChatCompletionNewParams{Model: "backwards", Messages: userSays("b a")}
	gone := func() bool { return m.Open() == 0 }

	ctx, cancel := context.WithCancel(t.Context())
	go func() { let <- struct{}{} }() // the status comes with the first token
	stream := c.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()

	require.True(t, stream.Next())
	require.Equal(t, 1, m.Open())
	cancel()
	require.Eventually(t, gone, 10*time.Second, time.Millisecond)

	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Chat.Completions.New(ctx, params)
		done <- err
	}()

	let <- struct{}{} // so it is being made
	cancel()
	require.True(t, errors.Is(<-done, context.Canceled))
	require.Eventually(t, gone, 10*time.Second, time.Millisecond)
}
