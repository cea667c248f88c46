package openai

import (
	"encoding/json"
	"flag"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares whole answers, streamed and not, with files. In a bubble the
// clock stands still, so that "created" is always the same.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		failAfter        int // 0: it does not fail
	}{
		{name: "completion.json", path: "/v1/completions", body: `{"model":"backwards","prompt":"b a","max_tokens":3}`},
		{name: "completion-lists.json", path: "/v1/completions", body: `{"prompt":["b a","d c"],"n":2,"max_tokens":2,"logprobs":2,"user":"u"}`},
		{name: "completion-tokens.json", path: "/v1/completions", body: `{"prompt":[[98,32,97],[99]],"max_tokens":4,"stop":" ","logprobs":0}`},
		{name: "completion-echo.json", path: "/v1/completions", body: `{"prompt":"b a","max_tokens":3,"echo":true,"logprobs":1}`},
		{name: "completion.sse", path: "/v1/completions", body: `{"prompt":[98,32,97],"max_tokens":3,"stream":true}`},
		{name: "completion-logprobs.sse", path: "/v1/completions", body: `{"prompt":"é","max_tokens":2,"stream":true,"logprobs":1}`},
		{name: "chat.json", path: "/v1/chat/completions", body: `{"messages":[{"role":"system","content":"be"},{"role":"user","content":[{"type":"text","text":"c "},{"type":"text","text":"a"}]}],"max_completion_tokens":3}`},
		{name: "chat-logprobs.json", path: "/v1/chat/completions", body: `{"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":2,"max_tokens":2}`},
		{name: "chat.sse", path: "/v1/chat/completions", body: `{"messages":[{"role":"user","content":"<b> a"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":4}`},
		{name: "chat-fails.sse", path: "/v1/chat/completions", body: `{"messages":[{"role":"user","content":"b a"}],"stream":true}`, failAfter: 2},
		{name: "embeddings.json", path: "/v1/embeddings", body: `{"model":"backwards","input":["a","ab"]}`},
		{name: "embeddings-base64.json", path: "/v1/embeddings", body: `{"input":"a","encoding_format":"base64","dimensions":4}`},
		{name: "models.json", path: "/v1/models"},
		{name: "model.json", path: "/v1/models/backwards"},
		{name: "status.json", path: "/v1/status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := lmtest.New()
				if c.failAfter > 0 {
					m.FailAfter, m.Failure = c.failAfter, gpuerr.New(gpuerr.DeviceLost, "the driver was killed")
				}

				method := http.MethodGet
				if c.body != "" {
					method = http.MethodPost
				}

				w := call(newTestAPI(m, Options{}).handler(), method, c.path, c.body)
				require.Equal(t, http.StatusOK, w.Code, w.Body.String())
				require.Zero(t, m.Open(), "nothing is left running")
				got := w.Body.String()
				if strings.HasSuffix(c.name, ".sse") {
					require.Equal(t, "text/event-stream; charset=utf-8", w.Header().Get("Content-Type"))
					require.True(t, w.Flushed)
					require.Equal(t, c.failAfter == 0, strings.HasSuffix(got, "data: [DONE]\n\n"))
				}

				file := filepath.Join("testdata", c.name)
				if *update {
					require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				}

				want, err := os.ReadFile(file)
				require.NoError(t, err)
				require.Equal(t, string(want), got)
			})
		})
	}
}

// TestStreamIsTheWhole: the chunks of every choice make the text that the answer
// has without streaming, with one end each.
func TestStreamIsTheWhole(t *testing.T) {
	h := New(lmtest.New(), Options{})
	const request = `"prompt":["one two three","ü z"],"n":3,"max_tokens":20,"logprobs":1`
	type choices struct {
		Choices []struct {
			Index        int
			Text         string
			FinishReason *string `json:"finish_reason"`
			LogProbs     textLogProbs
		}
	}

	var whole choices
	require.NoError(t, json.Unmarshal(call(h, "POST", "/v1/completions", "{"+request+"}").Body.Bytes(), &whole))
	require.Len(t, whole.Choices, 6)
	data := eventsOf(t, call(h, "POST", "/v1/completions", "{"+request+`,"stream":true}`).Body)
	text, ends, offsets := make([]string, 6), make([]string, 6), make([][]int, 6)
	for _, d := range data[:len(data)-1] {
		var part choices
		require.NoError(t, json.Unmarshal([]byte(d), &part))
		c := part.Choices[0]
		require.Empty(t, ends[c.Index], "nothing comes after the end")
		text[c.Index] += c.Text
		offsets[c.Index] = append(offsets[c.Index], c.LogProbs.TextOffset...)
		if c.FinishReason != nil {
			ends[c.Index] = *c.FinishReason
		}
	}

	for i, c := range whole.Choices {
		require.Equal(t, i, c.Index)
		require.Equal(t, c.Text, text[i])
		require.Equal(t, *c.FinishReason, ends[i])
		require.Equal(t, c.LogProbs.TextOffset, offsets[i])
	}
}

// TestRequests: the requests that reach the model.
func TestRequests(t *testing.T) {
	m := lmtest.New()
	h := New(m, Options{})
	last := func(path, body string) lm.Request {
		t.Helper()
		w := call(h, "POST", path, body)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		all := m.Requests()
		return all[len(all)-1]
	}

	r := last("/v1/completions", `{}`)
	require.Equal(t, 16, r.MaxTokens)
	require.Equal(t, -1, r.LogProbs)
	require.Equal(t, float32(1), r.Sampling.Temperature)
	require.Equal(t, float32(1), r.Sampling.TopP)
	require.False(t, r.Sampling.Seeded)
	require.False(t, r.Echo || r.IgnoreEnd)

	r = last("/v1/completions", `{"prompt":null,"temperature":0,"top_p":0,"top_k":-1,"min_p":0.5,"repetition_penalty":1.5,"presence_penalty":-2,
		"frequency_penalty":1e-1,"seed":-1,"user":"u","logit_bias":{"256":-100,"0":1.5},"stop":["x","y","x"],"echo":true,"ignore_eos":true,
		"best_of":1,"suffix":"","max_tokens":1,"logprobs":0,"metadata":{"a":"b"},"service_tier":"auto","no_such_field":1}`)

	p := r.Sampling
	require.Zero(t, p.Temperature)
	require.Equal(t, float32(math.SmallestNonzeroFloat32), p.TopP, "0 is the fewest, not all")
	require.Zero(t, p.TopK)
	require.Equal(t, []float32{0.5, 1.5, -2, 0.1}, []float32{p.MinP, p.Repetition, p.Presence, p.Frequency})
	require.Equal(t, -1, p.PenaltyLast)
	require.True(t, p.Seeded)
	require.Equal(t, uint64(math.MaxUint64), p.Seed)
	require.Equal(t, map[int32]float32{256: -100, 0: 1.5}, p.Bias)
	require.Equal(t, []string{"x", "y"}, r.Stop)
	require.True(t, r.Echo && r.IgnoreEnd)
	require.Zero(t, r.LogProbs)
	require.Equal(t, 100000, last("/v1/completions", `{"prompt":"`+strings.Repeat("a ", 2040)+`","max_tokens":100000}`).MaxTokens, "more than there is room for")

	before := len(m.Requests())
	last("/v1/chat/completions", `{"messages":[{"role":"developer","content":"a"},{"role":"assistant","content":"b","tool_calls":[]}],"n":3,"seed":5,
		"max_completion_tokens":2,"max_tokens":999999999,"tools":[],"tool_choice":"auto","response_format":{ "type" : "text" }}`)

	seeds := map[uint64]bool{}
	require.Equal(t, []string{"\nUser:"}, m.Requests()[before].Stop, "the template's")
	for _, r := range m.Requests()[before:] {
		seeds[r.Sampling.Seed] = true
		require.Equal(t, lmtest.Tokens("a\nb"), r.Tokens)
		require.Equal(t, 2, r.MaxTokens)
	}

	require.Equal(t, map[uint64]bool{5: true, 6: true, 7: true}, seeds, "three answers, none twice")
	require.Zero(t, last("/v1/chat/completions", `{"messages":[{"role":"user","content":""}],"stop":"\u0020"}`).MaxTokens, "to the end")
}

// TestLogProbs: probabilities that JSON cannot express.
func TestLogProbs(t *testing.T) {
	require.Nil(t, finite(float32(math.NaN())))
	require.Equal(t, float32(-9999), *finite(float32(math.Inf(-1))))
	require.Equal(t, float32(9999), *finite(float32(math.Inf(1))))
	require.Equal(t, float32(-0.5), *finite(-0.5))
	require.Equal(t, `bytes:\xe2\x96`, visible([]byte{0xe2, 0x96}))
	require.Equal(t, "é", visible([]byte("é")))
	require.Equal(t, []byte{0xe2}, bytesOf(&lm.Token{ID: 7, Top: []lm.Alternative{{ID: 6, Text: []byte("x")}, {ID: 7, Text: []byte{0xe2}}}}))
	require.Equal(t, byteList{0xe2}, tokenOf([]byte{0xe2}, 0).Bytes)
}
