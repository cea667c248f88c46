package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
)

// BenchmarkBatch is the time of one small launch, from push to completion, in
// batches. Client and service share a process.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			svc := sessiontest.Start(b, sessiontest.Options{})
			ctx := context.Background()
			s := svc.Open(b)
			launch := client.Launch{Bindings: make([]client.Binding, 3)}
			for i := range launch.Bindings {
				buffer, err := s.CreateBuffer(ctx, 4096, client.Storage)
				require.NoError(b, err)
				launch.Bindings[i].Buffer = buffer
			}
			var err error
			launch.Program, err = s.OpenProgram(ctx, "vecadd_f32")
			require.NoError(b, err)
			q, err := s.CreateQueue(ctx, client.QueueOptions{})
			require.NoError(b, err)
			done := make([]client.Completion, size)
			b.ReportAllocs()
			b.ResetTimer()
			for pushed, taken := 0, 0; taken < b.N; {
				for range min(size, b.N-pushed) {
					if _, err := q.PushLaunch(&launch); err != nil {
						b.Fatal(err)
					}
					pushed++
				}
				if err := q.Flush(); err != nil {
					b.Fatal(err)
				}
				for taken < pushed {
					n, err := q.Completions(ctx, done)
					if err != nil {
						b.Fatal(err)
					}
					taken += n
				}
			}
		})
	}
}

// BenchmarkPush is what the client's own steps cost, per launch of three buffers: to
// stage it, and to collect its completion when that is there.
func BenchmarkPush(b *testing.B) {
	const n = 256
	svc := sessiontest.Start(b, sessiontest.Options{})
	ctx := context.Background()
	s := svc.Open(b)
	launch := client.Launch{Bindings: make([]client.Binding, 3)}
	for i := range launch.Bindings {
		buffer, err := s.CreateBuffer(ctx, 4096, client.Storage)
		require.NoError(b, err)
		launch.Bindings[i] = client.Binding{Buffer: buffer, Len: 16}
	}
	var err error
	launch.Program, err = s.OpenProgram(ctx, "vecadd_f32")
	require.NoError(b, err)
	launch.Grid, launch.Block = client.Dim3{X: 1, Y: 1, Z: 1}, launch.Program.Info().Block
	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: n})
	require.NoError(b, err)
	many := make([]*client.Launch, n)
	for i := range many {
		many[i] = &launch
	}
	done := make([]client.Completion, n)
	var one, all, collect time.Duration
	rounds := 0
	round := func(took *time.Duration, push func()) {
		began := time.Now()
		push()
		*took += time.Since(began)
		require.NoError(b, q.Flush())
		time.Sleep(500 * time.Microsecond) // until everything has come
		for taken := 0; taken < n; {
			began := time.Now()
			m, err := q.Completions(ctx, done)
			collect += time.Since(began)
			require.NoError(b, err)
			taken += m
		}
		rounds++
	}
	b.ReportAllocs()
	for b.Loop() {
		round(&one, func() {
			for range n {
				if _, err := q.PushLaunch(&launch); err != nil {
					b.Fatal(err)
				}
			}
		})
		round(&all, func() {
			if _, pushed, err := q.PushLaunches(many...); pushed != n || err != nil {
				b.Fatal(pushed, err)
			}
		})
	}
	b.ReportMetric(2*float64(one)/float64(rounds*n), "one-ns")
	b.ReportMetric(2*float64(all)/float64(rounds*n), "many-ns")
	b.ReportMetric(float64(collect)/float64(rounds*n), "collect-ns")
}
