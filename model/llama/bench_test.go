package llama

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/gpu/backend/mock"
	"capgpu/model"
	"capgpu/model/modeltest"
)

// benchSession is a session of a service in this process, or of the one at
// CAPGPU_SOCKET.
func benchSession(b *testing.B) *client.Session {
	b.Helper()
	path := os.Getenv("CAPGPU_SOCKET")
	if path == "" {
		return open(b, mock.Options{})
	}
	conn, err := client.Dial(context.Background(), path)
	require.NoError(b, err)
	b.Cleanup(func() { conn.Close() })
	s, err := conn.Open(context.Background(), 0)
	require.NoError(b, err)
	b.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// benchTokens is the length of a text in the figures.
const benchTokens = 256

// BenchmarkDecode times one token of a text of 256, of the real model, on one CPU's
// worth of work: with run-ahead decode on the device (greedy), with each token read
// back (step), and by the same kernels without a service.
func BenchmarkDecode(b *testing.B) {
	f := stories(b, storiesBin)
	ctx := context.Background()
	report := func(b *testing.B) {
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
	}

	b.Run("greedy", func(b *testing.B) {
		m := load(b, benchSession(b), f, Options{Sequences: 1})
		q := newSequence(b, m, benchTokens)
		b.ReportAllocs()
		b.ResetTimer()
		before := m.DeviceTime()
		for left := b.N; left > 0; left -= benchTokens {
			if err := m.Greedy(ctx, q, f.Tokenizer.BOS(), 0, min(left, benchTokens), func(int32) bool { return true }); err != nil {
				b.Fatal(err)
			}
		}
		report(b)
		b.ReportMetric(float64(m.DeviceTime()-before)/float64(b.N), "device-ns/op")
	})

	b.Run("step", func(b *testing.B) {
		m := load(b, benchSession(b), f, Options{Sequences: 1})
		q := newSequence(b, m, benchTokens)
		token := f.Tokenizer.BOS()
		rows := make([]Row, 1)
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			at := i % benchTokens
			if at == 0 {
				token = f.Tokenizer.BOS()
			}
			rows[0] = Row{q, at, token, true}
			if err := m.Step(ctx, rows); err != nil {
				b.Fatal(err)
			}
			token = modeltest.Argmax(m.Logits(0))
		}

		report(b)
	})

	b.Run("in-process", func(b *testing.B) {
		p := newInProcess(b, f, Options{Sequences: 1})
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			if i%benchTokens == 0 {
				p.begin(f.Tokenizer.BOS())
			}
			p.next()
		}
		report(b)
	})
}

// BenchmarkLoad times loading the real model and closing it.
func BenchmarkLoad(b *testing.B) {
	f := stories(b, storiesBin)
	s := benchSession(b)
	ctx := context.Background()
	for b.Loop() {
		m, err := Load(ctx, s, f, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := m.Close(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkThroughTheService generates texts of 256 tokens, alternately through the
// service and by the same kernels without one. The ratio is of the medians.
func BenchmarkThroughTheService(b *testing.B) {
	b.Run("stories260K", func(b *testing.B) { benchThrough(b, stories(b, storiesBin)) })
	for _, typ := range []model.Type{model.F32, model.Q8_0} {
		b.Run("15M-"+typ.String(), func(b *testing.B) {
			benchThrough(b, seeded(1, model.Config{
				Dim: 288, Hidden: 768, Layers: 6, Heads: 6, KVHeads: 6, HeadDim: 48, Vocab: 32000, Context: benchTokens,
				NormEps: 1e-5, RopeBase: 10000,
			}, true, typ))
		})
	}
}

func benchThrough(b *testing.B, f *model.File) {
	const begin = 1
	ctx := context.Background()
	m := load(b, benchSession(b), f, Options{Sequences: 1})
	q := newSequence(b, m, benchTokens)
	p := newInProcess(b, f, Options{Sequences: 1})
	var through, without []float64
	for b.Loop() {
		began := time.Now()
		if err := m.Greedy(ctx, q, begin, 0, benchTokens, func(int32) bool { return true }); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		p.begin(begin)
		for range benchTokens {
			p.next()
		}
		through = append(through, float64(middle.Sub(began)))
		without = append(without, float64(time.Since(middle)))
	}

	slices.Sort(through)
	slices.Sort(without)
	mid := len(through) / 2
	b.ReportMetric(benchTokens*1e9/through[mid], "through-tokens/s")
	b.ReportMetric(benchTokens*1e9/without[mid], "without-tokens/s")
	b.ReportMetric(without[mid]/through[mid], "ratio")
	b.ReportMetric(without[len(without)/10]/through[len(through)/10], "ratio-p10")
}

// BenchmarkPass times a pass of several rows of the real model: of one text that
// begins (a prompt), and of as many texts that continue.
func BenchmarkPass(b *testing.B) {
	f := stories(b, storiesBin)
	for _, n := range []int{1, 4, 8, 32} {
		m := load(b, benchSession(b), f, Options{Sequences: n})
		rows := make([]Row, n)
		run := func(b *testing.B, position func(i int) int, seq func(i int) *Sequence) {
			for i := range rows {
				rows[i] = Row{seq(i), position(i), int32(i + 1), i == n-1}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := m.Step(context.Background(), rows); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "rows/s")
		}

		b.Run(fmt.Sprintf("prompt-%d", n), func(b *testing.B) {
			q := newSequence(b, m, n)
			defer q.Close()
			run(b, func(i int) int { return i }, func(int) *Sequence { return q })
		})

		b.Run(fmt.Sprintf("texts-%d", n), func(b *testing.B) {
			var all []*Sequence
			for range n {
				q := newSequence(b, m, 100)
				defer q.Close()
				if err := m.Greedy(context.Background(), q, 1, 0, 99, func(int32) bool { return true }); err != nil {
					b.Fatal(err)
				}
				all = append(all, q)
			}
			run(b, func(int) int { return 99 }, func(i int) *Sequence { return all[i] })
		})
	}
}
