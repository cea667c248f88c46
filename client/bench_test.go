package client_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/control/server/servertest"
)

// BenchmarkBatch is the time of one small launch, from push to completion, in
// batches. Client and service share a process.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{1, 16, 128} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			svc := servertest.Start(b, servertest.Options{})
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
