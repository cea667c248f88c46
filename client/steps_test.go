package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/ring"
)

// bareQueue is a queue of a session that has no service, with the driver's end of its ring.
func bareQueue(t testing.TB, s *Session, entries uint32) (*Queue, *ring.Server) {
	t.Helper()
	server, err := ring.NewServer(ring.Config{Entries: entries, ArgBytes: 64 << 10})
	require.NoError(t, err)
	memory, sq, cq, err := server.HandOut()
	require.NoError(t, err)
	shared, err := ring.Attach(memory, sq, cq)
	require.NoError(t, err)
	q := newQueue(s, shared, 1)
	t.Cleanup(func() {
		q.release()
		server.Close(gpuerr.Closed)
	})
	return q, server
}

// bareLaunches is so many launches of three buffers that all differ.
func bareLaunches(s *Session, n int) []*Launch {
	program := &Program{s: s, handle: 1}
	program.info.Bindings = make([]BindingInfo, 3)
	all := make([]*Launch, n)
	for i := range all {
		all[i] = &Launch{Program: program, Grid: Dim3{1, 1, 1}, Block: Dim3{64, 1, 1}, Bindings: make([]Binding, 3)}
		for k := range all[i].Bindings {
			all[i].Bindings[k] = Binding{Buffer: &Buffer{s: s, handle: uint64(2 + k), size: 4096}, Off: uint64(16 * i), Len: 16}
		}
	}
	return all
}

// BenchmarkSteps is what the client's own steps cost, per launch, with the driver's end on
// the same goroutine: to stage and flush, and to collect. With many queues, which are
// visited in turn, it waits for memory as well.
func BenchmarkSteps(b *testing.B) {
	for _, c := range []struct{ queues, each, kinds int }{{1, 1, 1}, {1, 256, 1}, {1, 256, 256}, {1024, 64, 8}} {
		b.Run(fmt.Sprintf("%d/%d/%d", c.queues, c.each, c.kinds), func(b *testing.B) { benchSteps(b, c.queues, c.each, c.kinds) })
	}
}

// benchSteps has so many queues, of which each has a batch in its turn, of so many kinds.
func benchSteps(b *testing.B, queues, each, kinds int) {
	ctx := context.Background()
	all, servers := make([]*Queue, queues), make([]*ring.Server, queues)
	launches := make([][]*Launch, queues)
	for i := range all {
		s := &Session{}
		all[i], servers[i] = bareQueue(b, s, uint32(max(each, 2)))
		launches[i] = bareLaunches(s, kinds)
	}
	list, done, answers := make([]*Launch, each), make([]Completion, each), make([]ring.Completion, each)
	for i := range answers {
		answers[i] = ring.Completion{Outcome: outcome.Success, DeviceNanos: 100}
	}
	batch := ring.NewBatch(0)
	serve := func(i int) {
		for left := each; left > 0; {
			n, err := servers[i].TakeMany(batch, left)
			if err != nil || n == 0 {
				b.Fatal(n, err)
			}
			servers[i].Publish(answers[:n])
			left -= n
		}
	}
	var push, collect time.Duration
	rounds := 0
	b.ReportAllocs()
	for b.Loop() {
		t0 := time.Now()
		for i, q := range all {
			kind := 0
			for k := range list {
				list[k] = launches[i][kind]
				if kind++; kind == kinds {
					kind = 0
				}
			}
			if _, n, err := q.PushLaunches(list...); n != each || err != nil {
				b.Fatal(n, err)
			}
			if err := q.Flush(); err != nil {
				b.Fatal(err)
			}
		}
		push += time.Since(t0)
		for i := range all {
			serve(i)
		}
		t0 = time.Now()
		for _, q := range all {
			for left := each; left > 0; {
				n, err := q.Completions(ctx, done[:left])
				if err != nil {
					b.Fatal(err)
				}
				left -= n
			}
		}
		collect += time.Since(t0)
		rounds++
	}
	launched := float64(rounds * queues * each)
	b.ReportMetric(float64(push)/launched, "push-ns")
	b.ReportMetric(float64(collect)/launched, "collect-ns")
}
