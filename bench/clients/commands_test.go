package clients

import (
	"encoding/json"
	"math"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"capgpu/model"
	"capgpu/model/modeltest"
)

// TestCommands: the same clients against the whole stack: model-server, a session,
// a driver.
func TestCommands(t *testing.T) {
	s := startStack(t)
	t.Run("stories", func(t *testing.T) { commandsTellStories(t, s) })
	t.Run("library", func(t *testing.T) { commandsAndLibrary(t, s) })
	t.Run("page", func(t *testing.T) { commandsAndPage(t, s) })
}

// The texts of llama2.c, exactly, whole and streamed, of either format.
func commandsTellStories(t *testing.T, s *stack) {
	dir := modeltest.Stories(t)
	for _, file := range []string{"stories260Ktok512.gguf", "stories260K.bin"} {
		more := []string{"--name", "stories"}
		if strings.HasSuffix(file, ".bin") {
			more = append(more, "--tokenizer", filepath.Join(dir, "tok512.bin"))
		}

		c := newClient(s.serve(t, filepath.Join(dir, file), more...))
		for name, tokens := range map[string]int64{"t0.n64": 64, "t0.n128": 128} {
			want := strings.TrimSuffix(modeltest.StoriesText(t, name), "\n") // the reference's last newline is its program's
			params := openai.CompletionNewParams{
				Model: "stories", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("")},
				Temperature: openai.Float(0), MaxTokens: openai.Int(tokens),
			}

			whole, err := c.Completions.New(t.Context(), params)
			require.NoError(t, err)
			require.Equal(t, want, whole.Choices[0].Text, "%s %s", file, name)
			require.EqualValues(t, tokens, whole.Usage.CompletionTokens)
			var streamed strings.Builder
			stream := c.Completions.NewStreaming(t.Context(), params)
			for stream.Next() {
				streamed.WriteString(stream.Current().Choices[0].Text)
			}

			require.NoError(t, stream.Err())
			require.Equal(t, want, streamed.String(), "%s %s", file, name)
		}
	}
}

func commandsAndLibrary(t *testing.T, s *stack) {
	c := newClient(s.serve(t, madeUp(t, "tiny", model.F32), "--name", "made-up"))
	// A seed gives the same answers, whole and streamed, a different one for each
	// of three.
	params := openai.ChatCompletionNewParams{
		Model: "made-up", Messages: userSays("hello"), MaxCompletionTokens: openai.Int(24), N: openai.Int(3), Seed: openai.Int(7),
		Logprobs: openai.Bool(true), TopLogprobs: openai.Int(3),
	}

	whole, err := c.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Len(t, whole.Choices, 3)
	require.NotEqual(t, whole.Choices[0].Message.Content, whole.Choices[1].Message.Content)
	stream := c.Chat.Completions.NewStreaming(t.Context(), params)
	again := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		require.True(t, again.AddChunk(stream.Current()))
	}

	require.NoError(t, stream.Err())
	for i, choice := range whole.Choices {
		require.Equal(t, choice.Message.Content, again.Choices[i].Message.Content)
		require.Equal(t, choice.FinishReason, again.Choices[i].FinishReason)
		for _, token := range choice.Logprobs.Content {
			require.Len(t, token.TopLogprobs, 3)
			sum := 0.0
			for j, top := range token.TopLogprobs {
				sum += math.Exp(top.Logprob)
				require.True(t, j == 0 || top.Logprob <= token.TopLogprobs[j-1].Logprob)
			}
			require.LessOrEqual(t, sum, 1+1e-4)
			require.LessOrEqual(t, token.Logprob, token.TopLogprobs[0].Logprob)
		}
	}

	v, err := c.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: "made-up", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two", "one"}}})
	require.NoError(t, err)
	length := 0.0
	for _, x := range v.Data[0].Embedding {
		length += x * x
	}

	require.InDelta(t, 1, length, 1e-4)
	require.Equal(t, v.Data[0].Embedding, v.Data[2].Embedding)
	require.NotEqual(t, v.Data[0].Embedding, v.Data[1].Embedding)

	_, err = c.Completions.New(t.Context(), openai.CompletionNewParams{Model: "made-up", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(strings.Repeat("long ", 4000))}})
	requireError(t, err, 400, "E_INVALID", "prompt")
}

// status is the used part of /v1/status.
type status struct {
	State    string
	Requests struct{ Running, Waiting int }
	Cache    struct {
		Used int `json:"pages_used"`
	}
	Totals struct{ Recoveries, Cancelled uint64 }
}

func statusOf(t *testing.T, url string) (s status) {
	t.Helper()
	r, err := http.Get(url + "/v1/status")
	require.NoError(t, err)
	defer r.Body.Close()
	require.NoError(t, json.NewDecoder(r.Body).Decode(&s))
	return s
}

// A model that is slow enough for a person to stop it.
func commandsAndPage(t *testing.T, s *stack) {
	b := newBrowser(t)
	url := s.serve(t, madeUp(t, "42m", model.Q8_0))
	p := b.open(t, url)
	p.await(ready)
	require.Equal(t, "mock0 ready", p.text("#device")+" "+p.text("#device-state"))
	require.Regexp(t, `Device memory\s+[\d.]+ MiB(, no limit| of [\d.]+ GiB)`, p.text(`[data-resource="deviceMemory"]`))
	require.True(t, p.is(`document.querySelector('[data-resource="deviceMemory"] .fill').offsetWidth > 0`))
	require.Regexp(t, `Context\s+1,024 tokens`, p.text("#facts"))

	p.do(chromedp.Evaluate(`document.querySelector('input[value="text"]').click()`, nil), chromedp.SetValue("#tokens", "12", chromedp.ByQuery))
	p.say("a")
	p.await(`document.querySelector('.end .rate') !== null`)
	require.Regexp(t, `^[\d.,]+ tokens/s$`, p.text("#speed"))
	require.Contains(t, p.text(".end"), "12 tokens")
	p.do(chromedp.Click("#fresh", chromedp.ByQuery), chromedp.SetValue("#tokens", "1000", chromedp.ByQuery))
	p.say("a")
	p.await(lastText + `.length > 20`)
	p.await(`/running, waiting\s+1, 0/i.test(document.querySelector('#facts').innerText)`)
	require.NotContains(t, p.text("#cache"), "\n0 of")
	p.picture("real-light")
	p.do(chromedp.Click("#stop", chromedp.ByQuery))
	require.Eventually(t, func() bool {
		now := statusOf(t, url)
		return now.Requests.Running == 0 && now.Cache.Used == 0 && now.Totals.Cancelled == 1
	}, 5*time.Second, 5*time.Millisecond, "its cache is free at once")

	p.await(`document.querySelector('.end').textContent.includes('you stopped it')`)

	// The driver is killed in the middle of an answer: the page reports it, keeps
	// the text so far, and continues when the server does, which is by itself.
	p.do(chromedp.Click("#fresh", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector('input[value="chat"]').click()`, nil))
	p.say("a")
	p.await(lastText + `.length > 20`)
	pid, err := s.DriverPID()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	p.await(`/E_(DEVICE_LOST|DISCONNECTED)/.test(document.querySelector('.end.bad')?.innerText)`)
	require.True(t, p.is(lastText+`.length > 20`))
	p.picture("real-killed")
	p.await(ready)
	p.await(`/recovered\s+1 ×/i.test(document.querySelector('#facts').innerText)`)
	p.do(chromedp.SetValue("#tokens", "5", chromedp.ByQuery), chromedp.Click(".end.bad button", chromedp.ByQuery))
	p.await(`document.querySelector('.end.bad') === null && document.querySelector('.end')?.innerText.includes('5 tokens')`)
}
