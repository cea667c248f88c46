package ring

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// TestBatchBounds: a batch stops at its entries, its argument bytes and at most; the
// rest comes with the next one. An entry alone may have as much as NewBatch was told.
func TestBatchBounds(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 256, 128<<10)
	b := NewBatch(40_000)
	expect := func(most, want int, wantErr error) {
		t.Helper()
		if n, err := s.TakeMany(b, most); n != want || len(b.Entries) != want || !errors.Is(err, wantErr) {
			t.Fatalf("TakeMany(%d) = %d with %d entries, %v; want %d, %v", most, n, len(b.Entries), err, want, wantErr)
		}
	}
	if s.Ready() {
		t.Error("Ready() of an empty ring")
	}
	for i := range uint64(100) {
		push(t, c, NopEntry(i), nil, nil)
	}
	flush(t, c)
	if !s.Ready() {
		t.Error("not Ready()")
	}
	expect(0, 0, nil)
	expect(-1, 0, nil)
	expect(5, 5, nil)
	expect(1000, BatchEntries, nil)
	if b.Entries[0].UserData != 5 || c.Free() != 256-31 {
		t.Errorf("the batch begins with %d; %d free", b.Entries[0].UserData, c.Free())
	}
	expect(1000, 31, nil)
	expect(1000, 0, nil)

	launch := func(inline int) {
		push(t, c, LaunchEntry(uint64(inline), 1, Dim3{}, Dim3{}, 0, 0), nil, make([]byte, inline))
	}
	for _, n := range []int{BatchArgBytes - 8, 8, 1, 40_000, 0, 40_001, 3} {
		launch(n)
	}
	flush(t, c)
	expect(64, 2, nil) // exactly full
	expect(64, 1, nil) // the next one alone is more
	expect(64, 3, nil)
	if b.Entries[0].Code != gpuerr.None || len(b.Entries[0].Args) != 5000 || b.Entries[1].Args == nil || len(b.Entries[1].Args) != 0 {
		t.Errorf("took %d, %v and %v", len(b.Entries[0].Args), b.Entries[0].Code, b.Entries[1].Args)
	}
	if b.Entries[2].Code != gpuerr.LaunchLimit || b.Entries[2].Args != nil {
		t.Errorf("took %v", b.Entries[2])
	}
	expect(64, 1, nil)
	if got := 8 * uint64(len(b.words)); got+BatchEntries*64 > HostBytes(40_000) {
		t.Errorf("the batch has %d bytes of arguments, HostBytes says %d for all", got, HostBytes(40_000))
	}

	s.CompleteMany(make([]Completion, 107))
	s.Flush()
	s.Close(gpuerr.Revoked)
	expect(64, 0, gpuerr.Revoked)
	s.CompleteMany(make([]Completion, 3))
	if !s.Ready() {
		t.Error("not Ready() to say that it is closed")
	}
}

// TestTakeManyChangesAfter: the batch stays what it was, and bindings that change all
// the time pass only as they were checked.
func TestTakeManyChangesAfter(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 64, 8192)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(0); !stop.Load(); i++ {
			atomic.StoreUint64(&c.view.args[0], i%2*7)
			atomic.StoreUint64(&c.view.args[3], i%2)
		}
	})
	b := NewBatch(0)
	good, bad := 0, 0
	for range 2000 {
		for range 16 {
			forge(c, Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32 << 32})
		}
		n, err := s.TakeMany(b, 64)
		if n != 16 || err != nil {
			t.Fatal(n, err)
		}
		for i := range b.Entries {
			switch x := &b.Entries[i]; {
			case x.Code == gpuerr.None && x.Binding(0) == (Binding{Buffer: 7}) && x.Args[3] == 0:
				good++
			case x.Code == gpuerr.Invalid && x.Args == nil:
				bad++
			default:
				t.Fatalf("%+v passed", x)
			}
		}
		s.CompleteMany(make([]Completion, n))
		s.Flush()
		c.view.cqHead.Store(s.told())
	}
	stop.Store(true)
	wg.Wait()
	if bad == 0 || good+bad != 32_000 {
		t.Errorf("%d good, %d bad", good, bad)
	}
}

// readyMeansGone: a ring without its memory has something to say.
func readyMeansGone(s *Server) error {
	if !s.Ready() {
		return errors.New("not Ready()")
	}
	return errGone
}

// TestTakeManyMemoryGone: a fault in any part ends the ring.
func TestTakeManyMemoryGone(t *testing.T) {
	page := os.Getpagesize()
	for name, touch := range map[string]func(s *Server, b *Batch) error{
		"TakeMany":     func(s *Server, b *Batch) error { _, err := s.TakeMany(b, 64); return err },
		"Ready":        func(s *Server, b *Batch) error { return readyMeansGone(s) },
		"CompleteMany": func(s *Server, b *Batch) error { s.CompleteMany(make([]Completion, 1)); return errGone },
	} {
		for from, part := range map[string]func(s *Server) []byte{
			"all":       func(s *Server) []byte { return s.mapping },
			"the arena": func(s *Server) []byte { return s.mapping[(int(s.arena)+page-1)/page*page:] }, // but for its first piece
		} {
			if from != "all" && (name == "Ready" || name == "CompleteMany") {
				continue
			}
			t.Run(name+" without "+from, func(t *testing.T) {
				leakcheck.Check(t)
				s, c := pair(t, 64, uint32(3*page))
				push(t, c, NopEntry(0), nil, nil)
				flush(t, c)
				b := NewBatch(0)
				if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				push(t, c, NopEntry(1), nil, nil)
				push(t, c, LaunchEntry(2, 1, Dim3{}, Dim3{}, 0, 0), []Binding{{Buffer: 1}}, make([]byte, min(page, 1<<16-8)))
				flush(t, c)
				if err := unix.Mprotect(part(s), unix.PROT_NONE); err != nil {
					t.Fatal(err)
				}
				if err := touch(s, b); !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("%v", err)
				}
				if n, err := s.TakeMany(b, 64); n != 0 || len(b.Entries) != 0 || !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("TakeMany() afterwards = %d, %v", n, err)
				}
				if err := s.WaitWork(context.Background()); !errors.Is(err, gpuerr.Protocol) {
					t.Errorf("WaitWork() afterwards: %v", err)
				}
			})
		}
	}
}

func TestTakeManyAllocatesNothing(t *testing.T) {
	s, c := pair(t, 64, 8192)
	b := NewBatch(0)
	bindings, inline := make([]Binding, 3), make([]byte, 20)
	for i := range bindings {
		bindings[i].Buffer = 1
	}
	e := LaunchEntry(1, 1, Dim3{1, 1, 1}, Dim3{}, 0, 0)
	done, out := make([]Completion, 64), make([]Completion, 64)
	for i := range done {
		done[i].Outcome = outcome.Success
	}
	round := func() {
		for range 32 {
			push(t, c, e, bindings, inline)
		}
		flush(t, c)
		if n, err := s.TakeMany(b, 64); n != 32 || err != nil {
			t.Fatal(n, err)
		}
		s.CompleteMany(done[:32])
		s.Flush()
		if n, err := c.Poll(out); n != 32 || err != nil {
			t.Fatal(n, err)
		}
	}
	round()
	if n := testing.AllocsPerRun(1000, round); n > 0 && !raceEnabled {
		t.Errorf("%v allocations in a round of 32", n)
	}
}

// TestOrdinaryCompletion: an ordinary one is read as any other is, and each comes as it was
// told.
func TestOrdinaryCompletion(t *testing.T) {
	leakcheck.Check(t)
	r := rand.New(rand.NewPCG(1, 2))
	s, c := pair(t, 8, 64)
	good, bad := 0, 0
	for range 100_000 {
		w := [4]uint64{r.Uint64(), uint64(r.IntN(4)), r.Uint64N(3), r.Uint64N(2)}
		if r.IntN(4) == 0 {
			w[1] |= 1 << r.IntN(64)
		}
		if r.IntN(4) == 0 {
			w[2] = r.Uint64() >> r.IntN(64)
		}
		var a, b Completion
		if errA, errB := a.setWords(&w), b.setAnyWords(&w); a != b || errA != errB {
			t.Fatalf("%x is read as %+v, %v and %+v, %v", w, a, errA, b, errB)
		} else if errA != nil {
			bad++
			continue
		}
		good++
		if back := a.words(lapIn(w[1])); back != w {
			t.Fatalf("%+v is written as %x; it was %x", a, back, w)
		}

		push(t, c, NopEntry(w[0]), nil, nil)
		flush(t, c)
		take(t, s)
		s.Consumed()
		s.Publish([]Completion{a})
		var got [1]Completion
		if n, err := c.Poll(got[:]); n != 1 || err != nil || got[0] != a {
			t.Fatalf("%+v comes as %+v, %d, %v", a, got, n, err)
		}
	}
	if good < 5_000 || bad < 5_000 {
		t.Errorf("only %d good ones and %d bad ones", good, bad)
	}
}

// TestPushWords: bindings that are words already are pushed as Push does.
func TestPushWords(t *testing.T) {
	leakcheck.Check(t)
	w := newTwins(t, 8, 512)
	sub, staged := w.c[0], 0
	batch := NewBatch(0)
	r := rand.New(rand.NewPCG(3, 3))
	for i := range uint64(10_000) {
		e := LaunchEntry(i, 1, Dim3{1, 1, 1}, Dim3{}, 0, 0)
		bindings, inline := make([]Binding, r.IntN(5)), make([]byte, r.IntN(50))
		for j := range bindings {
			bindings[j] = Binding{Buffer: 1, Off: i, Len: r.Uint64N(100)}
		}
		if r.IntN(4) == 0 {
			e, bindings, inline = NopEntry(i), nil, nil
		}
		twin := e
		words := sub.Bindings(len(bindings))
		for j, b := range bindings {
			copy(words[4*j:], []uint64{b.Buffer, b.Off, b.Len, 0})
		}
		err := sub.PushWords(&e, words, inline)
		if twinErr := w.c[1].Push(&twin, bindings, inline); !errors.Is(err, twinErr) {
			t.Fatalf("Push() = %v; %v", err, twinErr)
		}
		if err == nil {
			if staged++; sub.Staged() != staged {
				t.Fatalf("Staged() = %d, want %d", sub.Staged(), staged)
			}
		}
		if err != nil || r.IntN(3) == 0 {
			staged = 0
			if err := errors.Join(sub.Flush(), w.c[1].Flush()); err != nil {
				t.Fatal(err)
			}
			for n := 1; n > 0; {
				n, _ = w.takeBoth(t, batch, 8)
			}
			out := make([]Completion, 16)
			w.c[0].Poll(out)
			w.c[1].Poll(out)
		}
	}
	e := NopEntry(0)
	if err := sub.PushWords(&e, sub.Bindings(1), nil); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Push() of a nop with a binding: %v", err)
	}
	w.c[0].Close()
	if err := sub.Push(&e, nil, nil); !errors.Is(err, gpuerr.Closed) || !errors.Is(sub.Flush(), gpuerr.Closed) {
		t.Errorf("Push() after Close: %v", err)
	}
}

// TestFlushCannotWake: a driver that cannot be woken is told of again and again, not
// once by a Flush that nobody listens to.
func TestFlushCannotWake(t *testing.T) {
	s, c := pair(t, 4, 64)
	if ready, err := s.Arm(); ready || err != nil {
		t.Fatal(ready, err)
	}
	if err := c.wake.Close(); err != nil {
		t.Fatal(err)
	}
	e := NopEntry(1)
	if err := c.Push(&e, nil, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Flush(); err == nil {
			t.Error("Flush() without a pipe")
		}
		if err := c.Push(&e, nil, nil); err == nil {
			t.Error("Push() after a wake that failed")
		}
	}
}

// TestPublish: completions are seen at once, after those that were written before, and
// a client that waits for one is woken.
func TestPublish(t *testing.T) {
	s, c := pair(t, 8, 64)
	for i := range uint64(4) {
		push(t, c, NopEntry(i+1), nil, nil)
	}
	flush(t, c)
	b, out := NewBatch(0), make([]Completion, 8)
	if n, err := s.TakeMany(b, 4); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	s.CompleteMany([]Completion{{UserData: 1, Outcome: outcome.Success}})
	if n, err := c.Poll(out); n != 0 || err != nil {
		t.Fatal("seen before it was published:", n, err)
	}
	woken := make(chan error)
	go func() {
		n, err := c.Wait(testContext(t), out)
		if err == nil && n != 3 {
			err = fmt.Errorf("%d completions", n)
		}
		woken <- err
	}()
	for c.view.cqWait.Load() == awake {
		runtime.Gosched()
	}
	s.Publish([]Completion{{UserData: 2, Outcome: outcome.Success}, {UserData: 3, Outcome: outcome.Success}})
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	for i := range out[:3] {
		if out[i].UserData != uint64(i)+1 {
			t.Errorf("completion %d is that of %d", i, out[i].UserData)
		}
	}
	s.Publish(nil) // nothing to say
	s.Close(gpuerr.Closed)
	s.Publish([]Completion{{UserData: 4, Outcome: outcome.Success}})
	if n, err := c.Poll(out); n != 0 || err == nil {
		t.Error("a closed ring goes on:", n, err)
	}
}
