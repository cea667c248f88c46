package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
	"capgpu/ring"
)

// BenchmarkBurst is a launch that a queue runs itself, through a real ring, with the
// client in another goroutine: alone, and in batches.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(map[int]string{1: "1", 64: "64", 256: "256"}[n], func(b *testing.B) {
			device, err := mock.New(mock.Options{})
			require.NoError(b, err)
			r := newRig(b, withBackend(device))
			s := r.open("alice")
			p, info, err := s.OpenProgram("vecadd_f32")
			require.NoError(b, err)
			q := r.queue(s, 512, 64<<10)
			var bindings []ring.Binding
			for range 3 {
				bindings = append(bindings, ring.Binding{Buffer: uint64(buf(b, s, 16)), Len: 16})
			}
			e := ring.LaunchEntry(0, uint64(p), ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3(info.Block), 0, 0)
			var done [256]ring.Completion
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += n {
				for range n {
					if err := q.ring.Push(&e, bindings, nil); err != nil {
						b.Fatal(err)
					}
				}
				if err := q.ring.Flush(); err != nil {
					b.Fatal(err)
				}
				for got := 0; got < n; {
					k, err := q.ring.Wait(b.Context(), done[:n-got])
					if err != nil {
						b.Fatal(err)
					}
					got += k
				}
			}
		})
	}
}

// BenchmarkCrowd is a launch of one of many sessions, which launch 16 each in their turn.
func BenchmarkCrowd(b *testing.B) {
	const sessions, each = 512, 16
	device, err := mock.New(mock.Options{})
	require.NoError(b, err)
	r := newRig(b, withBackend(device))
	var all [sessions]*client
	var entries [sessions]ring.Entry
	var bindings [sessions][]ring.Binding
	for i := range all {
		s := r.open("alice")
		p, info, err := s.OpenProgram("vecadd_f32")
		require.NoError(b, err)
		all[i] = r.queue(s, 16, 8192)
		for range 3 {
			bindings[i] = append(bindings[i], ring.Binding{Buffer: uint64(buf(b, s, 16)), Len: 16})
		}
		entries[i] = ring.LaunchEntry(0, uint64(p), ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3(info.Block), 0, 0)
	}
	var done [each]ring.Completion
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += sessions * each {
		for k, q := range all {
			for range each {
				if err := q.ring.Push(&entries[k], bindings[k], nil); err != nil {
					b.Fatal(err)
				}
			}
			if err := q.ring.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		for _, q := range all {
			for got := 0; got < each; {
				n, err := q.ring.Wait(b.Context(), done[:each-got])
				if err != nil {
					b.Fatal(err)
				}
				got += n
			}
		}
	}
}
