package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/cmdline"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
)

func TestToken(t *testing.T) {
	h := New(lmtest.New(), Options{Token: "s3cret"})
	for _, path := range []string{"/v1/models", "/v1/models/backwards", "/v1/status", "/metrics"} {
		for _, shown := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret", "Bearer s3cret s3cret"} {
			w := call(h, "GET", path, "", "Authorization", shown)
			require.Equal(t, http.StatusUnauthorized, w.Code, shown)
			require.Equal(t, "E_DENIED", problemIn(t, w).Code)
			require.Contains(t, w.Header().Get("WWW-Authenticate"), "Bearer")
		}
		require.Equal(t, 200, call(h, "GET", path, "", "Authorization", "Bearer s3cret").Code)
		require.Equal(t, 200, call(h, "GET", path, "", "Authorization", "bearer s3cret", "Host", "gpu.example:8080").Code, "a token is enough from anywhere")
	}

	for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/v1/embeddings"} {
		require.Equal(t, http.StatusUnauthorized, call(h, "POST", path, "{}").Code)
	}

	for _, path := range []string{"/", "/healthz", "/page/view.js"} {
		require.Equal(t, 200, call(h, "GET", path, "").Code, "nothing secret in it")
	}
}

// TestOrigins: pages of other origins are refused, whatever they call themselves.
func TestOrigins(t *testing.T) {
	m := lmtest.New()
	open, closed := New(m, Options{}), New(m, Options{Token: "t"})
	ask := func(h http.Handler, header ...string) int {
		return call(h, "POST", "/v1/completions", "{}", append(header, "Authorization", "Bearer t")...).Code
	}

	for _, host := range []string{"localhost", "LocalHost:80", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]", "[::ffff:127.0.0.1]:80"} {
		require.Equal(t, 200, ask(open, "Host", host), host)
		require.Equal(t, 200, ask(open, "Host", host, "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin"), host)
	}

	for _, host := range []string{"", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[fe80::1]", "localhost:80:80", "0.0.0.0"} {
		require.Equal(t, 403, ask(open, "Host", host), host)
		require.Equal(t, 403, call(open, "GET", "/", "", "Host", host).Code, "nor is anything read")
		require.Equal(t, 200, ask(closed, "Host", host), host)
	}

	for _, h := range []http.Handler{open, closed} {
		for _, origin := range []string{"http://evil.example", "null", "http://localhost:9", "://", "http://localhost.evil.example:8080", "file://"} {
			require.Equal(t, 403, ask(h, "Origin", origin), origin)
			require.Equal(t, 403, call(h, "GET", "/v1/models", "", "Origin", origin, "Authorization", "Bearer t").Code)
		}
		require.Equal(t, 403, ask(h, "Sec-Fetch-Site", "cross-site"))
		require.Equal(t, 403, ask(h, "Sec-Fetch-Site", "same-site"))
		require.Equal(t, 200, call(h, "GET", "/", "", "Sec-Fetch-Site", "cross-site").Code, "a link may lead to the page")
	}

	require.Empty(t, call(open, "GET", "/v1/models", "", "Origin", "http://localhost:8080").Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, http.StatusMethodNotAllowed, call(open, "OPTIONS", "/v1/completions", "").Code, "no preflight is granted")

	// A UNIX socket cannot be reached by a name.
	r := httptest.NewRequest("GET", "/v1/models", nil)
	r.Host = "capgpu"
	w := httptest.NewRecorder()
	open.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/x.sock", Net: "unix"})))
	require.Equal(t, 200, w.Code)
}

func TestUnknownPaths(t *testing.T) {
	h := New(lmtest.New(), Options{})
	for _, path := range []string{"/v1", "/v2/models", "/page/", "/page/nothing.js", "/index.html", "/v1/completions/"} {
		w := call(h, "GET", path, "")
		require.Equal(t, 404, w.Code, path)
		require.Equal(t, "E_UNIMPLEMENTED", problemIn(t, w).Code)
	}
	for path, allow := range map[string]string{"/v1/completions": "POST", "/v1/chat/completions": "POST", "/v1/embeddings": "POST", "/v1/models": "GET", "/healthz": "GET", "/": "GET"} {
		w := call(h, "DELETE", path, "")
		require.Equal(t, 405, w.Code, path)
		require.Equal(t, allow, w.Header().Get("Allow"))
		problemIn(t, w)
	}
	require.Equal(t, 404, call(h, "GET", "/v1/models/other", "").Code)
	require.Equal(t, 404, call(h, "GET", "/v1/models/a/b", "").Code)
}

func TestHealth(t *testing.T) {
	m := lmtest.New()
	h := New(m, Options{})
	for state := lm.Loading; state <= lm.Stopped; state++ {
		m.Set(func(s *lm.Status) { s.State, s.Reason = state, "because" })
		w := call(h, "GET", "/healthz", "")
		require.Equal(t, state == lm.Ready, w.Code == 200)
		require.Equal(t, state == lm.Loading || state == lm.Recovering, w.Header().Get("Retry-After") != "")
		require.JSONEq(t, fmt.Sprintf(`{"state":%q,"reason":"because"}`, state), w.Body.String())
		require.Equal(t, 200, call(h, "GET", "/v1/status", "").Code, "which can be asked at any time")
	}
	m.Set(func(s *lm.Status) { s.State = lm.Loading })
	w := call(h, "POST", "/v1/completions", "{}")
	require.Equal(t, 503, w.Code)
	require.Equal(t, "E_BUSY", problemIn(t, w).Code)
	require.Empty(t, m.Requests())
}

// TestMaxRequests: the number of requests is bounded, and a place is free again
// when one ends.
func TestMaxRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, let := paced()
		h := New(m, Options{MaxRequests: 4}) // a single asker has two of them
		done := make(chan int, 2)
		for range 2 {
			go func() { done <- call(h, "POST", "/v1/completions", `{"max_tokens":1}`).Code }()
		}

		synctest.Wait()
		w := call(h, "POST", "/v1/embeddings", `{"input":"a"}`)
		require.Equal(t, 429, w.Code)
		require.Equal(t, "E_BUSY", problemIn(t, w).Code)
		require.Equal(t, 200, call(h, "GET", "/healthz", "").Code, "which is not counted")
		let <- struct{}{}
		require.Equal(t, 200, <-done)
		synctest.Wait()
		require.Equal(t, 200, call(h, "POST", "/v1/embeddings", `{"input":"a"}`).Code)
		let <- struct{}{}
		require.Equal(t, 200, <-done)
	})
}

func TestEmbeddingsOfTheModel(t *testing.T) {
	require.Equal(t, 500, call(New(brokenEmbedder{lmtest.New()}, Options{}), "POST", "/v1/embeddings", `{"input":["a","b"]}`).Code)
}

type brokenEmbedder struct{ *lmtest.Model }

func (brokenEmbedder) Embed(context.Context, []string) ([][]float32, lm.Usage, error) {
	return [][]float32{{1}}, lm.Usage{}, nil // one for two texts
}

// TestMetrics: the exposition is well-formed, its names follow the conventions, and it
// counts what happened.
func TestMetrics(t *testing.T) {
	m := lmtest.New()
	m.Set(func(s *lm.Status) {
		s.Totals.CompletionTokens = 77
		s.Budget = append(s.Budget, client.BudgetEntry{Resource: "deviceTime", Used: 5, Limit: noLimit})
	})

	h := New(m, Options{})
	for range 3 {
		require.Equal(t, 200, call(h, "POST", "/v1/completions", `{"prompt":"b a","max_tokens":4}`).Code)
	}

	call(h, "POST", "/v1/completions", `{"n":-1}`)
	m.Failure = gpuerr.New(gpuerr.DeviceLost, "gone")
	call(h, "POST", "/v1/completions", `{"stream":true}`)
	call(h, "GET", "/made/up/1", "")
	call(h, "GET", "/made/up/2", "")
	w := call(h, "GET", "/metrics", "")
	require.Equal(t, 200, w.Code)
	require.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain"))
	text := w.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	for _, line := range []string{
		`capgpu_model_http_choices_total{finish="length"} 3`, `capgpu_model_http_choices_total{finish="E_DEVICE_LOST"} 1`,
		`capgpu_model_http_requests_total{route="POST /v1/completions",status="200"} 3`, `capgpu_model_http_requests_total{route="POST /v1/completions",status="400"} 1`,
		`capgpu_model_http_requests_total{route="POST /v1/completions",status="503"} 1`, `capgpu_model_http_requests_total{route="other",status="404"} 2`,
		`capgpu_model_time_to_first_token_seconds_count 3`, `capgpu_model_inter_token_seconds_count 9`,
		`capgpu_model_completion_tokens_total 77`, `capgpu_model_state{state="ready"} 1`, `capgpu_model_state{state="revoked"} 0`,
		`capgpu_model_info{format="gguf",model="backwards"} 1`, `capgpu_model_build_info{version="` + cmdline.Revision() + `"} 1`, `capgpu_model_cache_pages 64`,
		`capgpu_model_budget_used{resource="deviceMemory"} 3.145728e+06`, `capgpu_model_budget_limit{resource="deviceMemory"} 6.7108864e+07`,
		`capgpu_model_budget_used{resource="deviceTime"} 5`,
	} {
		require.Contains(t, text, line+"\n")
	}

	require.NotContains(t, text, `capgpu_model_budget_limit{resource="deviceTime"}`, "no limit")
	require.NotContains(t, text, "made")
}

// TestMeter: tokens that came together share the time since the last ones.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMetrics(lmtest.New())
		m := s.meter()
		time.Sleep(2 * time.Second)
		m.came(2)
		time.Sleep(3 * time.Second)
		m.came(3)
		w := httptest.NewRecorder()
		s.serve(w, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range []string{
			"capgpu_model_time_to_first_token_seconds_sum 2", "capgpu_model_time_to_first_token_seconds_count 1",
			"capgpu_model_inter_token_seconds_sum 3", "capgpu_model_inter_token_seconds_count 3", `capgpu_model_inter_token_seconds_bucket{le="1"} 3`,
		} {
			require.Contains(t, w.Body.String(), line+"\n")
		}
	})
}

// TestPageFiles: the browser gets the page under its policy, and its files name
// only existing files of this server.
func TestPageFiles(t *testing.T) {
	h := New(lmtest.New(), Options{})
	w := call(h, "GET", "/", "")
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	policy := w.Header().Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	etag := w.Header().Get("ETag")
	require.Equal(t, http.StatusNotModified, call(h, "GET", "/", "", "If-None-Match", etag).Code)
	require.Equal(t, 200, call(h, "GET", "/", "", "If-None-Match", `"x"`).Code)

	files, err := fs.Glob(pageFiles, "page/*")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	names := regexp.MustCompile(`"(/page/[^"]*)"`)
	dangerous := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?://|\son[a-z]+=|<style|style="`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotEmpty(t, kinds[file[strings.LastIndex(file, "."):]], file)
		for _, name := range names.FindAllSubmatch(text, -1) {
			require.Equal(t, 200, call(h, "GET", string(name[1]), "").Code, "%s in %s", name[1], file)
		}
		if !strings.HasSuffix(file, ".svg") {
			require.Empty(t, dangerous.FindAllString(string(text), -1), file)
		}
	}
}

// TestStatusHasNoLimit: a missing limit is null, not 2^64 - 1, which JavaScript
// could not hold.
func TestStatusHasNoLimit(t *testing.T) {
	m := lmtest.New()
	m.Set(func(s *lm.Status) { s.Budget = []client.BudgetEntry{{Resource: "deviceTime", Used: 1, Limit: noLimit}} })
	var s statusBody
	require.NoError(t, json.NewDecoder(bytes.NewReader(call(New(m, Options{}), "GET", "/v1/status", "").Body.Bytes())).Decode(&s))
	require.Nil(t, s.Budget[0].Limit)
}
