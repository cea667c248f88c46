package gpu

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/ring"
)

// smallLaunch adds vectors of four numbers, in buffers of their own.
func smallLaunch(b *testing.B, s *Session) (e ring.Entry, bindings []ring.Binding) {
	p, info, err := s.OpenProgram("vecadd_f32")
	require.NoError(b, err)
	for range 3 {
		bindings = append(bindings, ring.Binding{Buffer: uint64(buf(b, s, 16)), Len: 16})
	}
	return ring.LaunchEntry(0, uint64(p), ring.Dim3{X: 1, Y: 1, Z: 1}, ring.Dim3(info.Block), 0, 0), bindings
}

// launches pushes a launch n times.
func (c *client) launches(b *testing.B, n int, e *ring.Entry, bindings []ring.Binding) {
	for range n {
		if err := c.ring.Push(e, bindings, nil); err != nil {
			b.Fatal(err)
		}
	}
	if err := c.ring.Flush(); err != nil {
		b.Fatal(err)
	}
}

// waits takes n completions.
func (c *client) waits(b *testing.B, n int, done []ring.Completion) {
	for got := 0; got < n; {
		k, err := c.ring.Wait(b.Context(), done[:n-got])
		if err != nil {
			b.Fatal(err)
		}
		got += k
	}
}

// BenchmarkLaunches is a launch on the mock device through a real ring, with the client in another goroutine:
// alone, and in batches.
func BenchmarkLaunches(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := newRig(b)
			s := r.open("alice")
			q := r.queue(s, 512, 64<<10)
			e, bindings := smallLaunch(b, s)
			var done [256]ring.Completion
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += n {
				q.launches(b, n, &e, bindings)
				q.waits(b, n, done[:])
			}
		})
	}
}

// BenchmarkSessions is a launch of one of many sessions, which launch 16 each in their turn.
func BenchmarkSessions(b *testing.B) {
	const sessions, each = 512, 16
	r := newRig(b)
	var all [sessions]*client
	var entries [sessions]ring.Entry
	var bindings [sessions][]ring.Binding
	for i := range all {
		s := r.open("alice")
		all[i] = r.queue(s, 16, 8192)
		entries[i], bindings[i] = smallLaunch(b, s)
	}
	var done [each]ring.Completion
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += sessions * each {
		for k, q := range all {
			q.launches(b, each, &entries[k], bindings[k])
		}
		for _, q := range all {
			q.waits(b, each, done[:])
		}
	}
}
