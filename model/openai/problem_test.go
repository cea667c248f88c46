package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

// TestProblems: every code of ours has a status, a type, and the right advice about
// trying again.
func TestProblems(t *testing.T) {
	const secret = "/var/lib/secret.sock"
	want := map[gpuerr.Code]struct {
		status int
		retry  string
		stop   bool // X-Should-Retry: false
	}{
		gpuerr.Invalid: {status: 400}, gpuerr.LaunchLimit: {status: 400}, gpuerr.Unimplemented: {status: 400}, gpuerr.Denied: {status: 403},
		gpuerr.Quota: {status: 429, retry: "1"}, gpuerr.Busy: {status: 429, retry: "1"}, gpuerr.QueueFull: {status: 429, retry: "1"}, gpuerr.Banned: {status: 429, retry: "1"},
		gpuerr.DeviceLost: {status: 503, retry: "2"}, gpuerr.Disconnected: {status: 503, retry: "2"}, gpuerr.NoDevice: {status: 503, retry: "2"},
		gpuerr.Revoked: {status: 503, stop: true}, gpuerr.Closed: {status: 503, stop: true},
		gpuerr.Stale: {status: 500, stop: true}, gpuerr.Poisoned: {status: 500, stop: true}, gpuerr.Internal: {status: 500, stop: true},
		gpuerr.IO: {status: 500, stop: true}, gpuerr.Version: {status: 500, stop: true}, gpuerr.Protocol: {status: 500, stop: true}, gpuerr.Program: {status: 500, stop: true}, gpuerr.NoProgram: {status: 500, stop: true},
	}

	m := lmtest.New()
	h := New(m, Options{})
	for _, code := range gpuerr.Codes() {
		expected, ok := want[code]
		require.True(t, ok, "%v is new: how is it told?", code)

		// The error is wrapped as deep as real ones.
		m.Refuse = func(lm.Request) error { return fmt.Errorf("generate: %w", gpuerr.New(code, "why, %s", secret)) }
		w := call(h, "POST", "/v1/completions", "{}")
		require.Equal(t, expected.status, w.Code, code)
		require.Equal(t, expected.retry, w.Header().Get("Retry-After"), code)
		require.Equal(t, expected.stop, w.Header().Get("X-Should-Retry") == "false", code)
		p := problemIn(t, w)
		switch code {
		case gpuerr.IO, gpuerr.Version, gpuerr.Protocol, gpuerr.Program, gpuerr.NoProgram, gpuerr.Internal:
			require.Equal(t, "E_INTERNAL", p.Code)
			require.NotContains(t, w.Body.String(), secret, "what happened inside is for the log")
		default:
			require.Equal(t, code.String(), p.Code)
			require.Contains(t, p.Message, "why")
		}
	}

	m.Refuse = func(lm.Request) error { return gpuerr.Refused("positions", 100, 7) }
	p := problemIn(t, call(h, "POST", "/v1/completions", "{}"))
	require.Equal(t, "positions", p.Resource)
	require.EqualValues(t, 100, *p.Asked)
	require.EqualValues(t, 7, *p.Available)

	m.Refuse = func(lm.Request) error { return errors.New("open " + secret) }
	w := call(h, "POST", "/v1/completions", "{}")
	require.Equal(t, "E_INTERNAL", problemIn(t, w).Code)
	require.NotContains(t, w.Body.String(), secret)
	m.Refuse = func(lm.Request) error { return context.Canceled }
	require.Equal(t, http.StatusServiceUnavailable, call(h, "POST", "/v1/completions", "{}").Code)
}

// TestParams: fields of the model's messages appear in the API's spelling.
func TestParams(t *testing.T) {
	for message, want := range map[string]string{
		"maxTokens: 5000 are more than 4096": "max_tokens", "topP: 2": "top_p", "logProbs: 21": "logprobs", "TopK: x": "top_k",
		"generate: E_INVALID: x": "generate", "E_INVALID: stop: too many": "stop", "bias: x": "logit_bias", "tokens: none": "prompt",
		"messages[0].role: x": "messages[0].role", "repetition: 0": "repetition_penalty",
		"no field here": "", "two words: x": "", ": x": "", "": "", strings.Repeat("x", 100) + ": y": "", "é: x": "",
	} {
		got, ok := paramOf(message)
		require.Equal(t, want, got, message)
		require.Equal(t, want != "", ok, message)
	}
	m := lmtest.New()
	m.Refuse = func(lm.Request) error { return gpuerr.New(gpuerr.Invalid, "prompt: 5000 tokens; the context has 4096") }
	require.Equal(t, "prompt", *problemIn(t, call(New(m, Options{}), "POST", "/v1/completions", "{}")).Param)
}

// TestRefusals: errors in a request, by the field.
func TestRefusals(t *testing.T) {
	const completions, chat, embed = "/v1/completions", "/v1/chat/completions", "/v1/embeddings"
	many := func(what string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(what+",", n), ",") + "]"
	}

	for _, c := range []struct {
		path, body string
		status     int
		code       string
		param      string // "": none
	}{
		{completions, ``, 400, "E_INVALID", ""},
		{completions, `[]`, 400, "E_INVALID", ""},
		{completions, `{`, 400, "E_INVALID", ""},
		{completions, `{"prompt":"a"} x`, 400, "E_INVALID", ""},
		{completions, `{"prompt":"a","prompt":"b"}`, 400, "E_INVALID", ""},
		{completions, "{\"prompt\":\"\xff\"}", 400, "E_INVALID", ""},
		{completions, strings.Repeat(`{"a":`, 20000), 400, "E_INVALID", ""},
		{completions, `{"prompt":"` + strings.Repeat("a", 5<<20) + `"}`, 413, "E_INVALID", ""},
		{completions, `{"model":"gpt-4"}`, 404, "E_INVALID", "model"},
		{completions, `{"model":7}`, 400, "E_INVALID", "model"},
		{completions, `{"prompt":7}`, 400, "E_INVALID", "prompt"},
		{completions, `{"prompt":{}}`, 400, "E_INVALID", "prompt"},
		{completions, `{"prompt":[]}`, 400, "E_INVALID", "prompt"},
		{completions, `{"prompt":[[]]}`, 400, "E_INVALID", "prompt[0]"},
		{completions, `{"prompt":["a",7]}`, 400, "E_INVALID", "prompt[1]"},
		{completions, `{"prompt":[1,"a"]}`, 400, "E_INVALID", "prompt[1]"},
		{completions, `{"prompt":[257]}`, 400, "E_INVALID", "prompt[0]"},
		{completions, `{"prompt":[[1],[-1]]}`, 400, "E_INVALID", "prompt[1][0]"},
		{completions, `{"prompt":[1.5]}`, 400, "E_INVALID", "prompt[0]"},
		{completions, `{"prompt":` + many("1", 4097) + `}`, 400, "E_INVALID", "prompt"},
		{completions, `{"prompt":` + many(`"a"`, 33) + `}`, 400, "E_INVALID", "prompt"},
		{completions, `{"prompt":["a","b"],"n":17}`, 400, "E_INVALID", "n"},
		{completions, `{"n":0}`, 400, "E_INVALID", "n"},
		{completions, `{"n":99999999999999999999}`, 400, "E_INVALID", "n"},
		{completions, `{"n":"1"}`, 400, "E_INVALID", "n"},
		{completions, `{"best_of":2}`, 400, "E_UNIMPLEMENTED", "best_of"},
		{completions, `{"suffix":"x"}`, 400, "E_UNIMPLEMENTED", "suffix"},
		{completions, `{"max_tokens":0}`, 400, "E_INVALID", "max_tokens"},
		{completions, `{"max_tokens":2147483648}`, 400, "E_INVALID", "max_tokens"},
		{completions, `{"max_tokens":1e2}`, 400, "E_INVALID", "max_tokens"},
		{completions, `{"logprobs":21}`, 400, "E_INVALID", "logprobs"},
		{completions, `{"logprobs":true}`, 400, "E_INVALID", "logprobs"},
		{completions, `{"echo":1}`, 400, "E_INVALID", "echo"},
		{completions, `{"stream":"yes"}`, 400, "E_INVALID", "stream"},
		{completions, `{"stream_options":{"include_usage":true}}`, 400, "E_INVALID", "stream_options"},
		{completions, `{"stream":true,"stream_options":[]}`, 400, "E_INVALID", "stream_options"},
		{completions, `{"stream":true,"stream_options":{"include_usage":1}}`, 400, "E_INVALID", "stream_options.include_usage"},
		{completions, `{"temperature":2.1}`, 400, "E_INVALID", "temperature"},
		{completions, `{"temperature":-1}`, 400, "E_INVALID", "temperature"},
		{completions, `{"temperature":1e999}`, 400, "E_INVALID", "temperature"},
		{completions, `{"temperature":"1"}`, 400, "E_INVALID", "temperature"},
		{completions, `{"top_p":1.01}`, 400, "E_INVALID", "top_p"},
		{completions, `{"top_k":-2}`, 400, "E_INVALID", "top_k"},
		{completions, `{"min_p":-0.1}`, 400, "E_INVALID", "min_p"},
		{completions, `{"presence_penalty":3}`, 400, "E_INVALID", "presence_penalty"},
		{completions, `{"frequency_penalty":-3}`, 400, "E_INVALID", "frequency_penalty"},
		{completions, `{"repetition_penalty":0}`, 400, "E_INVALID", "repetition_penalty"},
		{completions, `{"seed":1.5}`, 400, "E_INVALID", "seed"},
		{completions, `{"user":` + `"` + strings.Repeat("u", 257) + `"}`, 400, "E_INVALID", "user"},
		{completions, `{"stop":7}`, 400, "E_INVALID", "stop"},
		{completions, `{"stop":["a",""]}`, 400, "E_INVALID", "stop[1]"},
		{completions, `{"stop":` + many(`"a"`, 17) + `}`, 400, "E_INVALID", "stop"},
		{completions, `{"stop":"` + strings.Repeat("s", 257) + `"}`, 400, "E_INVALID", "stop"},
		{completions, `{"logit_bias":{"257":1}}`, 400, "E_INVALID", "logit_bias"},
		{completions, `{"logit_bias":{"-1":1}}`, 400, "E_INVALID", "logit_bias"},
		{completions, `{"logit_bias":{"a":1}}`, 400, "E_INVALID", "logit_bias"},
		{completions, `{"logit_bias":{"5":1,"05":-1}}`, 400, "E_INVALID", "logit_bias"},
		{completions, `{"logit_bias":{"1":101}}`, 400, "E_INVALID", "logit_bias.1"},
		{completions, `{"logit_bias":{` + numbered(1025) + `}}`, 400, "E_INVALID", "logit_bias"},
		{completions, `{` + numbered(257) + `}`, 400, "E_INVALID", ""},
		{completions, `{"logit_bias":[]}`, 400, "E_INVALID", "logit_bias"},
		{completions, `{"response_format":{"type":"json_object"}}`, 400, "E_UNIMPLEMENTED", "response_format"},
		{completions, `{"min_tokens":3}`, 400, "E_UNIMPLEMENTED", "min_tokens"},
		{completions, `{"grammar":"root ::= x"}`, 400, "E_UNIMPLEMENTED", "grammar"},

		{chat, `{}`, 400, "E_INVALID", "messages"},
		{chat, `{"messages":[]}`, 400, "E_INVALID", "messages"},
		{chat, `{"messages":"a"}`, 400, "E_INVALID", "messages"},
		{chat, `{"messages":[7]}`, 400, "E_INVALID", "messages[0]"},
		{chat, `{"messages":[{}]}`, 400, "E_INVALID", "messages[0].role"},
		{chat, `{"messages":[{"role":"user"}]}`, 400, "E_INVALID", "messages[0].content"},
		{chat, `{"messages":[{"role":"user","content":7}]}`, 400, "E_INVALID", "messages[0].content"},
		{chat, `{"messages":[{"role":"wizard","content":"a"}]}`, 400, "E_INVALID", "messages[0].role"},
		{chat, `{"messages":[{"role":"tool","content":"a"}]}`, 400, "E_UNIMPLEMENTED", "messages[0].role"},
		{chat, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"a","tool_calls":[{}]}]}`, 400, "E_UNIMPLEMENTED", "messages[1].tool_calls"},
		{chat, `{"messages":[{"role":"user","content":"a","name":"Bob"}]}`, 400, "E_UNIMPLEMENTED", "messages[0].name"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, 400, "E_UNIMPLEMENTED", "messages[0].content[0].type"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, 400, "E_INVALID", "messages[0].content[0].text"},
		{chat, `{"messages":[{"role":"user","content":[{"type":"text","text":7}]}]}`, 400, "E_INVALID", "messages[0].content[0].text"},
		{chat, `{"messages":` + many(`{"role":"user","content":"a"}`, 1025) + `}`, 400, "E_INVALID", "messages"},
		{chat, `{"tools":[{}],"messages":[{"role":"user","content":"a"}]}`, 400, "E_UNIMPLEMENTED", "tools"},
		{chat, `{"tool_choice":"required","messages":[{"role":"user","content":"a"}]}`, 400, "E_UNIMPLEMENTED", "tool_choice"},
		{chat, `{"functions":[{}],"messages":[{"role":"user","content":"a"}]}`, 400, "E_UNIMPLEMENTED", "functions"},
		{chat, `{"modalities":["audio"],"messages":[{"role":"user","content":"a"}]}`, 400, "E_UNIMPLEMENTED", "modalities"},
		{chat, `{"top_logprobs":3,"messages":[{"role":"user","content":"a"}]}`, 400, "E_INVALID", "top_logprobs"},
		{chat, `{"max_completion_tokens":-1,"messages":[{"role":"user","content":"a"}]}`, 400, "E_INVALID", "max_completion_tokens"},
		{chat, `{"stop":["a","b","c","d","e","f","g","h","i","j","k","l","m","n","o","p"],"messages":[{"role":"user","content":"a"}]}`, 400, "E_INVALID", "stop"},

		{embed, `{}`, 400, "E_INVALID", "input"},
		{embed, `{"input":""}`, 400, "E_INVALID", "input"},
		{embed, `{"input":[]}`, 400, "E_INVALID", "input"},
		{embed, `{"input":["a",""]}`, 400, "E_INVALID", "input[1]"},
		{embed, `{"input":[1,2]}`, 400, "E_UNIMPLEMENTED", "input[0]"},
		{embed, `{"input":{}}`, 400, "E_INVALID", "input"},
		{embed, `{"input":` + many(`"a"`, 257) + `}`, 400, "E_INVALID", "input"},
		{embed, `{"input":"a","dimensions":3}`, 400, "E_UNIMPLEMENTED", "dimensions"},
		{embed, `{"input":"a","encoding_format":"hex"}`, 400, "E_INVALID", "encoding_format"},
		{embed, `{"input":"a","model":"gpt-4"}`, 404, "E_INVALID", "model"},
	} {
		name := c.path + " " + c.body[:min(len(c.body), 100)]
		m := lmtest.New()
		w := call(New(m, Options{}), "POST", c.path, c.body)
		require.Equal(t, c.status, w.Code, "%s: %s", name, w.Body)
		p := problemIn(t, w)
		require.Equal(t, c.code, p.Code, "%s: %s", name, p.Message)
		if c.param == "" {
			require.Nil(t, p.Param, name)
		} else {
			require.NotNil(t, p.Param, "%s: %s", name, p.Message)
			require.Equal(t, c.param, *p.Param, "%s: %s", name, p.Message)
			require.True(t, strings.HasPrefix(p.Message, c.param+": "), p.Message)
		}
		require.Empty(t, m.Requests(), "the model was not asked")
		require.Less(t, w.Body.Len(), 1000)
	}
}

// numbered is this many members of an object.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d":1`, i)
	}
	return b.String()[1:]
}
