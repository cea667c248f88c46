package openai

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"capgpu/model/lm/lmtest"
)

// BenchmarkStream is the cost of sending a token, beside the model's part.
func BenchmarkStream(b *testing.B) {
	h := New(lmtest.New(), Options{})
	const tokens = 4000
	for b.Loop() {
		r := httptest.NewRequest("POST", "http://localhost/v1/chat/completions",
			strings.NewReader(`{"messages":[{"role":"user","content":"three two one"}],"stream":true,"max_tokens":4000}`))
		w := &sink{header: http.Header{}}
		h.ServeHTTP(w, r)
		if w.flushes < tokens {
			b.Fatal("it was cut short")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tokens, "ns/token")
}

// sink is a client that accepts everything.
type sink struct {
	header  http.Header
	flushes int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) Flush()                      { s.flushes++ }
