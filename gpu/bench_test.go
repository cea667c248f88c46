package gpu

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpu/backend/mock"
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

// BenchmarkBurst is a launch that a queue runs itself, through a real ring, with the
// client in another goroutine: alone, and in batches.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []int{1, 64, 256} {
		b.Run(map[int]string{1: "1", 64: "64", 256: "256"}[n], func(b *testing.B) {
			device, err := mock.New(mock.Options{})
			require.NoError(b, err)
			r := newRig(b, withBackend(device))
			s := r.open("alice")
			q := r.queue(s, 512, 64<<10)
			e, bindings := smallLaunch(b, s)
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
		all[i] = r.queue(s, 16, 8192)
		entries[i], bindings[i] = smallLaunch(b, s)
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

// held returns when the queue sleeps on its ring, and has it served by the caller alone.
//
// +checklocksignore: TryLock is not understood
func held(q *queue) {
	for ; ; runtime.Gosched() {
		if !q.serving.TryLock() {
			continue
		}
		if q.crowd != nil { // its goroutine was there
			return
		}
		q.serving.Unlock()
	}
}

// BenchmarkServe is what a launch takes of the processor, with both ends of the ring on one
// goroutine: nothing is waited for, and no line is another processor's.
func BenchmarkServe(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchServe(b, n) })
	}
}

// benchServe has n launches served at a time.
//
// +checklocksignore: TryLock is not understood
func benchServe(b *testing.B, n int) {
	device, err := mock.New(mock.Options{})
	require.NoError(b, err)
	r := newRig(b, withBackend(device))
	s := r.open("alice")
	c := r.queue(s, 512, 64<<10)
	q, err := lookup[queue](s.handles, c.h)
	require.NoError(b, err)
	held(q)
	q.ring.Watch()
	q.sweep.watched = true
	e, bindings := smallLaunch(b, s)
	var done [256]ring.Completion
	b.ReportAllocs()
	var push, serve, poll time.Duration
	b.ResetTimer()
	for i := 0; i < b.N; i += n {
		t0 := time.Now()
		for range n {
			if err := c.ring.Push(&e, bindings, nil); err != nil {
				b.Fatal(err)
			}
		}
		if err := c.ring.Flush(); err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		for until := q.taken + uint64(n); q.taken < until || q.left(); q.flush() {
			if took, err := q.take(); err != nil || !took {
				b.Fatal(took, err)
			}
		}
		t2 := time.Now()
		if k, err := c.ring.Poll(done[:n]); err != nil || k != n {
			b.Fatal(k, err)
		}
		t3 := time.Now()
		push, serve, poll = push+t1.Sub(t0), serve+t2.Sub(t1), poll+t3.Sub(t2)
	}
	b.StopTimer()
	b.ReportMetric(float64(push)/float64(b.N), "push-ns")
	b.ReportMetric(float64(serve)/float64(b.N), "serve-ns")
	b.ReportMetric(float64(poll)/float64(b.N), "poll-ns")
	q.serving.Unlock()
}

// BenchmarkSweep is BenchmarkServe of many sessions, 64 launches of each in its turn, which a
// sweeper serves: what there is more is waited for from memory.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{16, 64, 256, 1024} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchSweep(b, n) })
	}
}

// benchSweep has so many sessions.
//
// +checklocksignore: TryLock is not understood
func benchSweep(b *testing.B, sessions int) {
	const each = 64
	device, err := mock.New(mock.Options{})
	require.NoError(b, err)
	r := newRig(b, withBackend(device))
	all, entries, bindings := make([]*client, sessions), make([]ring.Entry, sessions), make([][]ring.Binding, sessions)
	for i := range all {
		s := r.open("alice")
		all[i] = r.queue(s, each, 16<<10)
		entries[i], bindings[i] = smallLaunch(b, s)
	}
	var done [each]ring.Completion
	w := &sweeper{}
	for i, c := range all {
		for got := 0; got < each; got++ { // what is in a kept slot is remembered from now on
			require.NoError(b, c.ring.Push(&entries[i], bindings[i], nil))
			require.NoError(b, c.ring.Flush())
			_, err := c.ring.Wait(b.Context(), done[:1])
			require.NoError(b, err)
		}
		q, err := lookup[queue](c.s.handles, c.h)
		require.NoError(b, err)
		held(q)
		q.ring.Watch()
		q.sweep.watched, q.sweep.alone = true, 0
		q.crowd.swept.Store(true)
		q.serving.Unlock()
		w.queues = append(w.queues, q)
	}
	var push, serve, poll time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += sessions * each {
		t0 := time.Now()
		for k, c := range all {
			for range each {
				if err := c.ring.Push(&entries[k], bindings[k], nil); err != nil {
					b.Fatal(err)
				}
			}
			if err := c.ring.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		t1 := time.Now()
		for k := range w.queues {
			w.ahead(k)
			for range 2 { // a burst that is interrupted for long leaves the rest
				w.visit(w.queues[k])
			}
		}
		t2 := time.Now()
		for _, c := range all {
			for got := 0; got < each; { // one that a burst of the host made long is left to itself
				n, err := c.ring.Wait(b.Context(), done[got:])
				if err != nil {
					b.Fatal(err)
				}
				got += n
			}
		}
		t3 := time.Now()
		push, serve, poll = push+t1.Sub(t0), serve+t2.Sub(t1), poll+t3.Sub(t2)
	}
	b.StopTimer()
	b.ReportMetric(float64(push)/float64(b.N), "push-ns")
	b.ReportMetric(float64(serve)/float64(b.N), "serve-ns")
	b.ReportMetric(float64(poll)/float64(b.N), "poll-ns")
	for _, q := range w.queues {
		q.serving.Lock()
		q.ring.Resign()
		q.sweep.watched = false
		q.crowd.swept.Store(false)
		q.serving.Unlock()
	}
}
