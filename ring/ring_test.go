package ring

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

func TestConfig(t *testing.T) {
	leakcheck.Check(t)
	for _, cfg := range []Config{{}, {1, 64}, {3, 64}, {8192, 64}, {8, 0}, {8, 63}, {8, 32}, {8, MaxArgBytes + 64}} {
		if _, err := NewServer(cfg); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("NewServer(%+v): %v", cfg, err)
		}
	}
	for _, cfg := range []Config{{MinEntries, 64}, {MaxEntries, 192}} {
		s, c := pair(t, cfg.Entries, cfg.ArgBytes)
		if s.Config() != cfg || c.Config() != cfg {
			t.Errorf("%+v became %+v and %+v", cfg, s.Config(), c.Config())
		}
	}
}

func TestOneEntry(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 256)
	var e Entry
	if ok, err := s.Take(&e); ok || err != nil {
		t.Fatalf("Take() of an empty ring = %v, %v", ok, err)
	}
	bindings := []Binding{{Buffer: 1, Off: 2, Len: 3}, {Buffer: 4, Off: ^uint64(0)}}
	push(t, c, LaunchEntry(9, 7, Dim3{1, 1, 1}, Dim3{8, 1, 1}, 0, 5), bindings, []byte("hello"))
	if ok, err := s.Take(&e); ok || err != nil {
		t.Fatalf("Take() before Flush = %v, %v", ok, err)
	}
	flush(t, c)
	e = take(t, s)
	if err := Check(&e, 256); err != nil || e.UserData != 9 || e.Object != 7 || e.Count != 2 || e.InlineBytes() != 5 {
		t.Fatalf("took %+v: %v", e, err)
	}
	b, inline, err := s.Args(&e, nil, nil)
	if err != nil || !slices.Equal(b, bindings) || string(inline) != "hello" {
		t.Fatalf("Args() = %v, %q, %v", b, inline, err)
	}
	if n := c.Free(); n != 3 {
		t.Errorf("Free() = %d before Consumed", n)
	}
	s.Consumed()
	if n := c.Free(); n != 4 {
		t.Errorf("Free() = %d after Consumed", n)
	}
	done := Completion{UserData: 9, Outcome: outcome.Success, DeviceNanos: 77}
	s.Complete(&done)
	out := make([]Completion, 4)
	if n, err := c.Poll(out); n != 0 || err != nil {
		t.Fatalf("Poll() before Flush = %d, %v", n, err)
	}
	s.Flush()
	if n, err := c.Poll(out); n != 1 || err != nil || out[0] != done {
		t.Fatalf("Poll() = %d, %v, %+v", n, err, out[0])
	}
}

func TestArgsElsewhere(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 256)
	e := SignalEntry(1, 2, 3)
	if err := c.Push(&e, []Binding{{Buffer: 1}}, nil); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Push of a signal with bindings: %v", err)
	}
	if _, _, err := s.Args(&e, nil, nil); !errors.Is(err, gpuerr.Unimplemented) {
		t.Errorf("Args of a signal: %v", err)
	}
	e = LaunchEntry(1, 2, Dim3{}, Dim3{}, 0, 0)
	for _, inline := range []int{257, 1 << 16} {
		if err := c.Push(&e, nil, make([]byte, inline)); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Push of %d inline bytes: %v", inline, err)
		}
	}
	if err := c.Push(&e, make([]Binding, 1<<16), nil); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Push of 65536 bindings: %v", err)
	}
	push(t, c, e, nil, make([]byte, 256)) // all of the arena
}

// TestBackPressure: a client that drains nothing stops only itself.
func TestBackPressure(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	var e Entry
	for i := range uint64(8) { // as many as there are completion slots
		push(t, c, NopEntry(i), nil, nil)
		flush(t, c)
		take(t, s)
		s.Consumed()
	}
	for i := range uint64(4) {
		push(t, c, NopEntry(8+i), nil, nil)
	}
	e = NopEntry(12)
	if err := c.Push(&e, nil, nil); !errors.Is(err, gpuerr.QueueFull) {
		t.Fatalf("Push to a full ring: %v", err)
	}
	flush(t, c)
	for i := range uint64(8) {
		if ok, err := s.Take(&e); ok || err != nil {
			t.Fatalf("Take() without a completion slot, %d completed = %v, %v", i, ok, err)
		}
		s.Complete(&Completion{UserData: i, Outcome: outcome.Success})
		s.Flush()
	}
	out := make([]Completion, 3)
	if n, err := c.Poll(out); n != 3 || err != nil {
		t.Fatalf("Poll() = %d, %v", n, err)
	}
	for i := range uint64(3) {
		if e = take(t, s); e.UserData != 8+i {
			t.Errorf("took %d, want %d", e.UserData, 8+i)
		}
	}
	if ok, err := s.Take(&e); ok || err != nil {
		t.Fatalf("Take() of a fourth = %v, %v", ok, err)
	}
}

// TestArena: allocations never overlap what the driver has not given back.
func TestArena(t *testing.T) {
	leakcheck.Check(t)
	const argBytes = 1024
	s, c := pair(t, 16, argBytes)
	r := rand.New(rand.NewPCG(3, 4))
	type sent struct {
		bindings []Binding
		inline   []byte
	}
	var inRing []sent
	full, next := 0, uint64(0)
	for range 200_000 {
		if r.IntN(2) == 0 {
			x := sent{inline: make([]byte, r.IntN(60))}
			for i := range x.inline {
				x.inline[i] = byte(r.Uint32())
			}
			for range r.IntN(5) {
				x.bindings = append(x.bindings, Binding{Buffer: 1 + r.Uint64N(100), Off: r.Uint64N(1000), Len: next})
			}
			if r.IntN(50) == 0 {
				x = sent{inline: make([]byte, argBytes)}
			}
			e := LaunchEntry(next, 1, Dim3{}, Dim3{}, 0, 0)
			switch err := c.Push(&e, x.bindings, x.inline); {
			case err == nil:
				inRing = append(inRing, x)
				next++
			case errors.Is(err, gpuerr.QueueFull):
				full++
				if len(inRing) == 0 {
					t.Fatal("an empty ring is full")
				}
			default:
				t.Fatal(err)
			}
			flush(t, c)
			continue
		}
		for n := r.IntN(6); n > 0 && len(inRing) > 0; n-- {
			e := take(t, s)
			if err := Check(&e, argBytes); err != nil {
				t.Fatal(err)
			}
			b, inline, err := s.Args(&e, nil, nil)
			if err != nil || !slices.Equal(b, inRing[0].bindings) || !bytes.Equal(inline, inRing[0].inline) {
				t.Fatalf("entry %d: %v, %q, %v; want %+v", e.UserData, b, inline, err, inRing[0])
			}
			inRing = inRing[1:]
			s.Complete(&Completion{UserData: e.UserData, Outcome: outcome.Success})
		}
		s.Consumed()
		s.Flush()
		out := make([]Completion, 32)
		if _, err := c.Poll(out); err != nil {
			t.Fatal(err)
		}
	}
	if full < 1000 || next < 10_000 {
		t.Errorf("%d pushed, %d times full: the test misses its point", next, full)
	}
}

// drive answers every entry until the ring ends: each with its user data, and
// the sum of its arguments as the time. It looks for a varying while before it sleeps.
func drive(ctx context.Context, s *Server) error {
	b, done := NewBatch(0), make([]Completion, BatchEntries)
	for round := 0; ; round++ {
		for looks := round % 7 * 10; looks > 0 && !s.Ready(); looks-- {
			pause()
		}
		n, err := s.TakeMany(b, 1+round%BatchEntries)
		if err != nil {
			return err
		}
		if n == 0 {
			if err := s.WaitWork(ctx); err != nil {
				return err
			}
			continue
		}
		for i := range b.Entries {
			t := &b.Entries[i]
			done[i] = Completion{UserData: t.UserData, Outcome: outcome.Success}
			if t.Code != gpuerr.None {
				done[i].Outcome, done[i].Code = outcome.Outcome{Kind: outcome.Failed}, t.Code
			} else if t.Op == OpLaunch {
				for j := range int(t.Count) {
					x := t.Binding(j)
					done[i].DeviceNanos += x.Buffer + x.Off + x.Len
				}
				for _, w := range t.Args[4*t.Count:] {
					for ; w != 0; w >>= 8 {
						done[i].DeviceNanos += w & 0xff
					}
				}
			}
		}
		s.CompleteMany(done[:n])
		s.Flush()
	}
}

// load pushes n entries in batches of uneven size and checks every completion.
func load(ctx context.Context, c *Client, n uint64) error {
	out := make([]Completion, 64)
	bindings, inline := make([]Binding, 3), make([]byte, 8)
	want := func(i uint64) uint64 {
		if i%3 != 0 {
			return 0
		}
		return i%7*(i+2*i+1) + i%5*7
	}
	for sent, got := uint64(0), uint64(0); got < n; {
		for batch := 1 + sent%61; batch > 0 && sent < n; batch-- {
			e := SignalEntry(sent, 1, sent)
			var b []Binding
			var in []byte
			if sent%3 == 0 {
				e = LaunchEntry(sent, 1, Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0)
				// want() of it: sent%7 times the sum of one, and sent%5 sevens.
				b, in = bindings[:0], inline[:0]
				for range sent % 7 {
					b = append(b, Binding{Buffer: sent + 1, Off: sent, Len: sent})
				}
				for range sent % 5 {
					in = append(in, 7)
				}
			}
			err := c.Push(&e, b, in)
			if errors.Is(err, gpuerr.QueueFull) {
				break
			}
			if err != nil {
				return err
			}
			sent++
		}
		if err := c.Flush(); err != nil {
			return err
		}
		k, err := c.Wait(ctx, out)
		if err != nil {
			return err
		}
		for _, done := range out[:k] {
			if done.UserData != got || done.Outcome != outcome.Success || done.DeviceNanos != want(got) {
				return gpuerr.New(gpuerr.Internal, "completion %d is %+v, want time %d", got, done, want(got))
			}
			got++
		}
	}
	return nil
}

const manyEntries = 1_000_000

func entriesToPass() uint64 {
	if raceEnabled || testing.Short() {
		return manyEntries / 20
	}
	return manyEntries
}

func TestTwoGoroutines(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 256, 16<<10)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := drive(context.Background(), s); !errors.Is(err, gpuerr.Revoked) {
			t.Errorf("drive() = %v", err)
		}
	})
	if err := load(testContext(t), c, entriesToPass()); err != nil {
		t.Error(err)
	}
	s.Close(gpuerr.Revoked)
	wg.Wait()
}

func TestTakeAndCompleteApart(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 64, 64)
	const n = 50_000
	done := make(chan Completion, 256)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		var e Entry
		for taken := 0; taken < n; {
			ok, err := s.Take(&e)
			if err == nil && !ok {
				s.Consumed()
				err = s.WaitWork(testContext(t))
			}
			if err != nil {
				t.Error(err)
				return
			}
			if ok {
				taken++
				done <- Completion{UserData: e.UserData, Outcome: outcome.Success}
			}
		}
	})
	wg.Go(func() {
		for d := range done {
			s.Complete(&d)
			if len(done) == 0 || d.UserData%32 == 0 {
				s.Flush()
			}
		}
		s.Flush()
	})
	wg.Go(func() { // the client's two sides apart as well
		for i := uint64(0); i < n; {
			e := NopEntry(i)
			if err := c.Push(&e, nil, nil); err == nil {
				i++
			} else if !errors.Is(err, gpuerr.QueueFull) {
				t.Error(err)
				return
			}
			if err := c.Flush(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	out := make([]Completion, 16)
	for got := uint64(0); got < n; {
		k, err := c.Wait(testContext(t), out)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range out[:k] {
			if d.UserData != got {
				t.Fatalf("completion %d has user data %d", got, d.UserData)
			}
			got++
		}
	}
	wg.Wait()
}
