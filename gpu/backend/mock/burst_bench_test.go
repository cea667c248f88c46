package mock_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend"
	"capgpu/gpu/backend/mock"
)

// BenchmarkBurst is one launch of a ready vecadd, in groups.
func BenchmarkBurst(b *testing.B) {
	d, _ := started(b, mock.Options{})
	for _, bytes := range []int{16, 4096} {
		buf := func() backend.Span { return backend.Span{Host: make([]byte, bytes)} }
		job := launch(b, d, "vecadd_f32", nil, buf(), buf(), buf())
		job.Context = new(backend.Context)
		r, _, ok := d.Prepare(job, nil)
		require.True(b, ok)
		for _, group := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%d bytes/%d", bytes, group), func(b *testing.B) {
				jobs, ends := make([]backend.Ready, group), make([]backend.End, group)
				for i := range jobs {
					jobs[i] = r
				}
				b.ReportAllocs()
				for b.Loop() {
					if d.Burst(1, jobs, ends) == 0 {
						b.Fatal("none")
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(group), "ns/launch")
			})
		}
		b.Run(fmt.Sprintf("%d bytes/prepare", bytes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r, _, _ = d.Prepare(job, r)
			}
		})
	}
}
