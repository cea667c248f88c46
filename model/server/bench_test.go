package server

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/model/llama"
	"capgpu/model/lm"
	"capgpu/model/load"
	"capgpu/model/modeltest"
	"capgpu/model/sample"
)

// BenchmarkAnswers generates tokens of stories260K through a service in this
// process: one request with run-ahead decode, one with sampling, and several at a
// time.
func BenchmarkAnswers(b *testing.B) {
	f, err := load.Open(modeltest.Stories(b) + "/stories260K.bin")
	require.NoError(b, err)
	defer f.Close()

	svc := sessiontest.Start(b, sessiontest.Options{})
	o := optionsFor(svc, llama.Options{Sequences: 16})
	o.File = f
	l := startLive(b, svc, o)
	drawn := sample.Params{Temperature: 1, TopP: 0.9, Seed: 1, Seeded: true}
	for _, c := range []struct {
		name string
		many int
		q    lm.Request
	}{
		{"ahead", 1, lm.Request{LogProbs: -1}},
		{"likelihoods", 1, lm.Request{LogProbs: 0}},
		{"drawn", 1, lm.Request{LogProbs: -1, Sampling: drawn}},
		{"likelihoods", 4, lm.Request{LogProbs: 0}},
		{"likelihoods", 16, lm.Request{LogProbs: 0}},
	} {
		b.Run(fmt.Sprintf("%s/%d", c.name, c.many), func(b *testing.B) {
			c.q.IgnoreEnd, c.q.MaxTokens = true, 256
			b.ReportAllocs()
			tokens := 0
			for b.Loop() {
				var asking sync.WaitGroup
				for range c.many {
					s, err := l.Generate(context.Background(), c.q)
					require.NoError(b, err)
					asking.Go(func() {
						_, _ = all(s)
						s.Close()
					})
					tokens += c.q.MaxTokens
				}
				asking.Wait()
			}

			b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
