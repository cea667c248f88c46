package ring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// benchLaunch is the launch that the benchmarks push: three bindings and 16 inline bytes.
func benchLaunch() (Entry, []Binding, []byte) {
	return LaunchEntry(1, 1, Dim3{1, 1, 1}, Dim3{64, 1, 1}, 0, 0), []Binding{{Buffer: 1}, {Buffer: 2}, {Buffer: 3}}, make([]byte, 16)
}

// step is a part of a round of n entries.
type step struct {
	name string
	do   func()
}

// benchSteps reports the time of each step for an entry, in the fastest of its rounds: other
// programs may have the CPU in the others.
func benchSteps(b *testing.B, n int, steps []step) {
	best := make([]time.Duration, len(steps))
	for i := range best {
		best[i] = time.Hour
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range steps {
			began := time.Now()
			steps[i].do()
			best[i] = min(best[i], time.Since(began))
		}
	}
	for i := range steps {
		b.ReportMetric(float64(best[i].Nanoseconds())/float64(n), steps[i].name+"-ns")
	}
}

// BenchmarkSteps is what the steps of a batch cost one CPU, with both ends in one goroutine;
// BenchmarkOne is the same of launches that come one by one, and of a look that finds
// nothing.
func BenchmarkSteps(b *testing.B) {
	const n = 64
	s, c := pair(b, 256, 64<<10)
	e, bindings, inline := benchLaunch()
	batch, out := NewBatch(0), make([]Completion, n)
	done := slices.Repeat([]Completion{{Outcome: outcome.Success}}, n)
	benchSteps(b, n, []step{
		{"push", func() {
			for range n {
				if err := c.Push(&e, bindings, inline); err != nil {
					b.Fatal(err)
				}
			}
		}},
		{"flush", func() { flush(b, c) }},
		{"take", func() {
			if got, err := s.TakeMany(batch, n); got != n || err != nil {
				b.Fatal(got, err)
			}
		}},
		{"publish", func() { s.Publish(done) }},
		{"poll", func() {
			if got, err := c.Poll(out); got != n || err != nil {
				b.Fatal(got, err)
			}
		}},
	})
}

func BenchmarkOne(b *testing.B) {
	const n = 64
	s, c := pair(b, 256, 64<<10)
	e, bindings, inline := benchLaunch()
	batch, out := NewBatch(0), make([]Completion, 1)
	done := []Completion{{Outcome: outcome.Success}}
	benchSteps(b, n, []step{
		{"push", func() {
			for range n {
				if err := c.Push(&e, bindings, inline); err != nil {
					b.Fatal(err)
				}
				flush(b, c)
			}
		}},
		{"serve", func() {
			for range n {
				if got, err := s.TakeMany(batch, 1); got != 1 || err != nil {
					b.Fatal(got, err)
				}
				s.Publish(done)
			}
		}},
		{"poll", func() {
			for range n {
				if got, err := c.Poll(out); got != 1 || err != nil {
					b.Fatal(got, err)
				}
			}
		}},
		{"ready", func() {
			for range n {
				if s.Ready() {
					b.Fatal("there is nothing")
				}
			}
		}},
	})
}

// answer is a driver that answers all at once, spins, and sleeps.
func answer(s *Server) error {
	batch, done := NewBatch(0), make([]Completion, BatchEntries)
	spins := spinsFor(50 * time.Microsecond)
	for {
		for looks := spins; looks > 0 && !s.Ready(); looks-- {
			pause()
		}
		n, err := s.TakeMany(batch, BatchEntries)
		switch {
		case err != nil:
			return err
		case n > 0:
			for i := range batch.Entries {
				done[i].Outcome = outcome.Success
			}
			s.CompleteMany(done[:n])
			s.Flush()
		default:
			if err := s.WaitWork(context.Background()); err != nil {
				return err
			}
		}
	}
}

// rounds is the benchmarks' client: n batches, after some idle time each. It says how long
// they took, without the idle time.
func rounds(c *Client, n, batch int, idle time.Duration) (took time.Duration, err error) {
	out := make([]Completion, 256)
	e, bindings, inline := benchLaunch()
	began := time.Now()
	for range n {
		if idle > 0 {
			for began = time.Now(); time.Since(began) < idle; {
			}
			began = time.Now()
		}
		for range batch {
			if err := c.Push(&e, bindings, inline); err != nil {
				return 0, err
			}
		}
		if err := c.Flush(); err != nil {
			return 0, err
		}
		for got := 0; got < batch; {
			n, err := c.Wait(context.Background(), out)
			if err != nil {
				return 0, err
			}
			got += n
		}
		if idle > 0 {
			took += time.Since(began)
		}
	}
	if idle == 0 {
		took = time.Since(began)
	}
	return took, nil
}

// benchmarkRing passes batches between two goroutines, or two processes.
func benchmarkRing(b *testing.B, batch int, idle time.Duration) {
	run := func(name string, start func(b *testing.B, s *Server) func(n int) (time.Duration, error)) {
		b.Run(name, func(b *testing.B) {
			s := newServer(b, Config{Entries: 256, ArgBytes: 64 << 10})
			ended := make(chan error, 1)
			go func() { ended <- answer(s) }()
			rounds := start(b, s)
			if _, err := rounds(100); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			took, err := rounds(b.N)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*batch), "ns/entry")
			s.Close(gpuerr.Closed)
			<-ended
		})
	}
	run("goroutines", func(b *testing.B, s *Server) func(n int) (time.Duration, error) {
		c := attach(b, s)
		return func(n int) (time.Duration, error) { return rounds(c, n, batch, idle) }
	})
	run("processes", func(b *testing.B, s *Server) func(n int) (time.Duration, error) {
		cmd := clientProcess(b, s, benchEnv+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				b.Error(err)
			}
		})
		return func(n int) (took time.Duration, err error) {
			if _, err = fmt.Fprintln(in, n, batch, int64(idle)); err == nil {
				_, err = fmt.Fscanln(out, (*int64)(&took))
			}
			return took, err
		}
	})
}

// benchEnv makes the test binary the client of a benchmark: it reads what to do from its
// input and answers how long that took.
const benchEnv = "CAPGPU_RING_BENCH_CLIENT"

func runBenchProcess() error {
	c, err := Attach(3, 4, 5)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		var n, batch int
		var idle, took time.Duration
		if _, err := fmt.Scanln(&n, &batch, (*int64)(&idle)); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if took, err = rounds(c, n, batch, idle); err != nil {
			return err
		}
		fmt.Println(int64(took))
	}
}

func BenchmarkRoundTrip(b *testing.B)     { benchmarkRing(b, 1, 0) }
func BenchmarkBatch256(b *testing.B)      { benchmarkRing(b, 256, 0) }
func BenchmarkWakeAfterIdle(b *testing.B) { benchmarkRing(b, 1, time.Millisecond) }
