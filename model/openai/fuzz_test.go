package openai

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

var fuzzAPI = newAPI(lmtest.New(), Options{})

// refusedWell checks that an error is the client's, in a few words.
func refusedWell(t *testing.T, err error) {
	t.Helper()
	var p *problem
	require.True(t, errors.As(err, &p), "%v", err)
	require.Contains(t, []int{400, 404}, p.status)
	require.NotEmpty(t, p.Message)
	require.Less(t, len(p.Message), 1000)
	require.True(t, utf8.ValidString(p.Message), "%q", p.Message)
}

// withinBounds checks a request that is passed on to the model.
func withinBounds(t *testing.T, r *lm.Request) {
	t.Helper()
	info := fuzzAPI.m.Info()
	s := r.Sampling
	require.True(t, s.Temperature >= 0 && s.Temperature <= 2)
	require.True(t, s.TopP > 0 && s.TopP <= 1)
	require.True(t, s.MinP >= 0 && s.MinP <= 1)
	require.True(t, s.TopK >= 0)
	require.True(t, s.Repetition > 0 && s.Repetition <= 100)
	require.True(t, s.Presence >= -2 && s.Presence <= 2 && s.Frequency >= -2 && s.Frequency <= 2)
	require.LessOrEqual(t, len(s.Bias), 1024)
	for id, b := range s.Bias {
		require.True(t, id >= 0 && int(id) < info.Vocab && b >= -100 && b <= 100)
	}

	require.LessOrEqual(t, len(r.Stop), lm.MaxStops)
	for _, stop := range r.Stop {
		require.True(t, stop != "" && len(stop) <= lm.MaxStopBytes)
	}

	require.True(t, r.MaxTokens >= 0 && r.MaxTokens <= math.MaxInt32)
	require.True(t, r.LogProbs >= -1 && r.LogProbs <= lm.MaxLogProbs)
}

// plainRequest is a body as encoding/json alone reads it, for the fields on which
// both agree. It ignores case, and does not notice duplicates.
type plainRequest struct {
	Model       *string          `json:"model"`
	N           *int             `json:"n"`
	Stream      *bool            `json:"stream"`
	Temperature *float64         `json:"temperature"`
	Seed        *int64           `json:"seed"`
	MaxTokens   *int             `json:"max_tokens"`
	Echo        *bool            `json:"echo"`
	Messages    []map[string]any `json:"messages"`
}

// same compares the members in the exact spelling.
func same(t *testing.T, body []byte, f fields, c *common) {
	t.Helper()
	var exact map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(body, &exact))
	for name := range f {
		require.JSONEq(t, string(exact[name]), string(f[name]))
	}

	var p plainRequest
	again, err := json.Marshal(f)
	require.NoError(t, err)
	if json.Unmarshal(again, &p) != nil {
		return // a name that differs only in case, with another type
	}
	if p.N != nil && f.has("n") {
		require.Equal(t, *p.N, c.n)
	}
	if p.Temperature != nil && f.has("temperature") {
		require.Equal(t, float32(*p.Temperature), c.request.Sampling.Temperature)
	}

	require.Equal(t, f.has("seed"), c.request.Sampling.Seeded)
	if p.Seed != nil && f.has("seed") {
		require.Equal(t, uint64(*p.Seed), c.request.Sampling.Seed)
	}
}

func seeds(f *testing.F, more ...string) {
	for _, s := range append(more, ``, `{`, `[]`, `{"a":1,"a":2}`, `{"n":3,"N":"x"}`,
		`{"model":"backwards","stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":0,"top_k":3,"min_p":0.1,"seed":-7,"user":"u","stop":["a","b"],"logit_bias":{"1":-5.5},"n":2,"repetition_penalty":1.1}`) {
		f.Add([]byte(s))
	}
}

func FuzzCompletion(f *testing.F) {
	seeds(f, `{"prompt":"a"}`, `{"prompt":["a","b"],"echo":true,"logprobs":5}`, `{"prompt":[1,2,3],"max_tokens":7}`, `{"prompt":[[1],[2,3]]}`, `{"prompt":[[1],"a"]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseObject(body)
		if err != nil {
			refusedWell(t, err)
			return
		}

		c, err := fuzzAPI.parseCompletion(o)
		if err != nil {
			refusedWell(t, err)
			return
		}

		withinBounds(t, &c.request)
		require.Positive(t, c.request.MaxTokens)
		require.NotEmpty(t, c.prompts)
		require.LessOrEqual(t, len(c.prompts)*c.n, fuzzAPI.o.MaxChoices)
		for _, p := range c.prompts {
			require.LessOrEqual(t, len(p.Tokens), fuzzAPI.m.Info().Context)
			require.LessOrEqual(t, len(p.Prompt), len(body))
			require.True(t, p.Tokens == nil || p.Prompt == "")
			for _, id := range p.Tokens {
				require.True(t, id >= 0 && int(id) < fuzzAPI.m.Info().Vocab)
			}
		}

		same(t, body, o, &c.common)
	})
}

func FuzzChat(f *testing.F) {
	seeds(f, `{"messages":[{"role":"user","content":"a"}]}`, `{"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"logprobs":true,"top_logprobs":4,"max_completion_tokens":9}`,
		`{"messages":[{"role":"tool","content":"a"}],"tools":[]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseObject(body)
		if err != nil {
			refusedWell(t, err)
			return
		}

		c, err := fuzzAPI.parseChat(o)
		if err != nil {
			refusedWell(t, err)
			return
		}

		withinBounds(t, &c.request)
		require.NotEmpty(t, c.messages)
		total := 0
		for _, m := range c.messages {
			require.Contains(t, []string{"system", "user", "assistant"}, m.Role)
			total += len(m.Content)
		}

		require.LessOrEqual(t, total, len(body))
		var plain struct {
			Messages []json.RawMessage `json:"messages"`
		}

		require.NoError(t, json.Unmarshal([]byte(`{"messages":`+string(o["messages"])+`}`), &plain))
		require.Len(t, c.messages, len(plain.Messages))
		same(t, body, o, &c.common)
	})
}

func FuzzEmbedding(f *testing.F) {
	seeds(f, `{"input":"a"}`, `{"input":["a","b"],"encoding_format":"base64","dimensions":4}`, `{"input":[1]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		o, err := parseObject(body)
		if err != nil {
			refusedWell(t, err)
			return
		}
		q, err := fuzzAPI.parseEmbedding(o)
		if err != nil {
			refusedWell(t, err)
			return
		}
		require.NotEmpty(t, q.texts)
		require.LessOrEqual(t, len(q.texts), fuzzAPI.o.MaxInputs)
		for _, text := range q.texts {
			require.NotEmpty(t, text)
		}
	})
}
