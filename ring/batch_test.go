package ring

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// takenAlone is what Take, Check and Args make of the next entry: the model of TakeMany.
func takenAlone(s *Server) (t Taken, ok bool, err error) {
	if ok, err = s.Take(&t.Entry); !ok || err != nil {
		return t, ok, err
	}
	t.Words = t.words()
	if err := Check(&t.Entry, s.ArgBytes); err != nil {
		t.Code = gpuerr.CodeOf(err)
		return t, true, nil
	}
	if t.Op == OpLaunch {
		bindings, inline, err := s.Args(&t.Entry, nil, nil)
		if err != nil {
			t.Code = gpuerr.CodeOf(err)
			return t, true, nil
		}
		t.Args = []uint64{}
		for _, b := range bindings {
			t.Args = append(t.Args, b.Buffer, b.Off, b.Len, 0)
		}
		inline = append(inline, make([]byte, -len(inline)&7)...)
		for ; len(inline) > 0; inline = inline[8:] {
			t.Args = append(t.Args, binary.LittleEndian.Uint64(inline))
		}
	}
	return t, true, nil
}

func same(a, b *Taken) bool {
	return a.Entry == b.Entry && a.Words == b.Words && a.Code == b.Code && slices.Equal(a.Args, b.Args) && (a.Args == nil) == (b.Args == nil)
}

// twins are two rings to which the same is done.
type twins struct {
	s [2]*Server
	c [2]*Client
}

func newTwins(t testing.TB, entries, argBytes uint32) (w twins) {
	for i := range w.s {
		w.s[i], w.c[i] = pair(t, entries, argBytes)
	}
	return w
}

// scribble does what a client could do, the same to both, by a source of numbers
// below n. Lies about positions are as rare as asked.
func (w *twins) scribble(intN func(n int) int, lies bool) {
	at, word, what := intN(1<<16), intN(1<<16), intN(12)
	value := uint64(intN(1 << 16))
	for i, c := range w.c {
		slot := &c.view.sq[at%len(c.view.sq)]
		switch what {
		case 0:
			slot[word%8] = value
		case 1:
			slot[word%8] ^= 1 << (value % 64)
		case 2:
			c.view.args[at%len(c.view.args)] = value % 3
		case 3:
			c.view.args[at%len(c.view.args)] = ^value
		case 4: // a launch of any size anywhere
			*slot = (&Entry{Op: OpLaunch, Object: 1, Count: uint16(word % 4), A: value & 1, C: uint64(word%4*8) << 13,
				D: (value &^ 7 % 512) | uint64(word%4*32+word%4*8/8)<<32}).words()
		case 5:
			e := LaunchEntry(value, 1, Dim3{}, Dim3{}, 0, 0)
			c.Push(&e, slices.Repeat([]Binding{{Buffer: 1, Off: value, Len: uint64(word)}}, at%4), make([]byte, word%20))
			c.Flush()
		case 6, 7:
			if lies {
				c.view.sqTail.Add(1)
				continue
			}
			e := NopEntry(value)
			c.Push(&e, nil, nil)
			c.Flush()
		case 8:
			if lies && value%16 == 0 {
				c.view.sqTail.Add(value)
			}
		case 9:
			if lies && value%16 == 0 {
				c.view.cqHead.Add(value)
			}
		case 10:
			if head := c.view.cqHead.Load(); head < w.s[i].published.Load() {
				c.view.cqHead.Store(head + 1)
			}
		case 11:
			*slot = (&Entry{Op: OpReplay, Object: value % 2, D: uint64(word%600) | uint64(at%600)<<32}).words()
		}
	}
}

// takeBoth takes at most so many from one ring at once, and from the other one by one,
// and answers all of them.
func (w *twins) takeBoth(t testing.TB, b *Batch, most int) (n int, ended bool) {
	n, err := w.s[0].TakeMany(b, most)
	if n != len(b.Entries) || n > most || n > 0 && err != nil {
		t.Fatalf("TakeMany(%d) = %d, %v with %d entries", most, n, err, len(b.Entries))
	}
	answers := make([]Completion, n)
	for i := range b.Entries {
		got := &b.Entries[i]
		want, ok, err := takenAlone(w.s[1])
		if got.Op == OpReplay && got.Code == gpuerr.None { // Args knows none
			off, bytes := got.ArgRange()
			want.Args = slices.Clone(w.c[1].view.args[off/8 : (off+bytes+7)/8])
			if bytes%8 != 0 {
				want.Args[len(want.Args)-1] &= 1<<(8*(bytes%8)) - 1
			}
		}
		if !ok || err != nil || !same(got, &want) {
			t.Fatalf("entry %d of %d:\ngot  %+v\nwant %+v, %v, %v", i, n, *got, want, ok, err)
		}
		answers[i] = Completion{UserData: got.UserData, Outcome: outcome.Success}
		w.s[1].Complete(&answers[i])
	}
	w.s[1].Consumed()
	w.s[0].CompleteMany(answers)
	w.s[0].Flush()
	w.s[1].Flush()
	if n == 0 && most > 0 {
		_, ok, err1 := takenAlone(w.s[1])
		if ok || !errors.Is(err1, err) {
			t.Fatalf("TakeMany took nothing, %v; Take: %v, %v", err, ok, err1)
		}
		return 0, err != nil
	}
	for _, f := range []func(i int) uint64{
		func(i int) uint64 { return w.c[i].view.sqHead.Load() },
		func(i int) uint64 { return w.c[i].view.cqTail.Load() },
	} {
		if f(0) != f(1) {
			t.Fatalf("positions differ: %d, %d", f(0), f(1))
		}
	}
	if !slices.Equal(w.c[0].view.cq, w.c[1].view.cq) {
		t.Fatal("completions differ")
	}
	return n, false
}

// TestTakeManyAgainstTake: on any ring, also one that lies, TakeMany does what Take,
// Check and Args do.
func TestTakeManyAgainstTake(t *testing.T) {
	leakcheck.Check(t)
	r := rand.New(rand.NewPCG(7, 8))
	taken, launched, ended := 0, 0, 0
	for round := range 400 {
		w := newTwins(t, 8, 512)
		b := NewBatch(0)
		for range 200 {
			w.scribble(r.IntN, round%2 == 0)
			if r.IntN(3) > 0 {
				continue
			}
			n, over := w.takeBoth(t, b, 1+r.IntN(10))
			taken += n
			for i := range b.Entries {
				if b.Entries[i].Op == OpLaunch && len(b.Entries[i].Args) > 0 {
					launched++
				}
			}
			if over {
				ended++
				break
			}
		}
		for i := range w.s {
			w.s[i].Close(0)
			w.c[i].Close()
		}
	}
	if taken < 5000 || launched < 500 || ended < 50 {
		t.Errorf("%d taken, %d launches with arguments, %d rings ended: the test misses its point", taken, launched, ended)
	}
}

// FuzzTakeMany is the same, led by the fuzzer.
func FuzzTakeMany(f *testing.F) {
	f.Add([]byte{5, 0, 0, 0, 1, 2, 0, 8, 0, 0, 0, 0, 6, 0, 0, 0, 0, 9})
	r := rand.New(rand.NewPCG(9, 9))
	for range 4 {
		seed := make([]byte, 512)
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		w := newTwins(t, 4, 256)
		b := NewBatch(0)
		next := func(n int) int {
			if len(script) < 2 {
				script = nil
				return 0
			}
			v := int(binary.LittleEndian.Uint16(script))
			script = script[2:]
			return v % n
		}
		for len(script) > 0 {
			w.scribble(next, true)
			if next(2) == 0 {
				if _, ended := w.takeBoth(t, b, 1+next(6)); ended {
					return
				}
			}
		}
	})
}

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
	if s.Ready() {
		t.Error("Ready() after Close")
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
			e := Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32 << 32}
			c.view.sq[c.view.sqTail.Load()%64] = e.words()
			c.view.sqTail.Add(1)
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
		c.view.cqHead.Store(c.view.cqTail.Load())
	}
	stop.Store(true)
	wg.Wait()
	if bad == 0 || good+bad != 32_000 {
		t.Errorf("%d good, %d bad", good, bad)
	}
}

// TestTakeManyMemoryGone: a fault in any part ends the ring.
func TestTakeManyMemoryGone(t *testing.T) {
	for name, touch := range map[string]func(s *Server, b *Batch) error{
		"TakeMany":     func(s *Server, b *Batch) error { _, err := s.TakeMany(b, 64); return err },
		"SpinTake":     func(s *Server, b *Batch) error { _, err := s.SpinTake(b, 64, 1000); return err },
		"Ready":        func(s *Server, b *Batch) error { s.Ready(); return errGone },
		"CompleteMany": func(s *Server, b *Batch) error { s.CompleteMany(make([]Completion, 1)); return errGone },
	} {
		for from, part := range map[string]func(s *Server) []byte{
			"all":       func(s *Server) []byte { return s.mapping },
			"the arena": func(s *Server) []byte { return s.mapping[s.arena:] },
		} {
			if from != "all" && (name == "Ready" || name == "CompleteMany") {
				continue
			}
			t.Run(name+" without "+from, func(t *testing.T) {
				leakcheck.Check(t)
				s, c := pair(t, 64, 8192) // the arena begins a page
				if s.arena%4096 != 0 {
					// Nothing of the parts before may go with it.
					t.Skipf("the arena lies at %#x", s.arena)
				}
				push(t, c, NopEntry(0), nil, nil)
				flush(t, c)
				b := NewBatch(0)
				if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				push(t, c, NopEntry(1), nil, nil)
				push(t, c, LaunchEntry(2, 1, Dim3{}, Dim3{}, 0, 0), []Binding{{Buffer: 1}}, nil)
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

// TestSpinTakeEnds: Close does not wait for what spins.
func TestSpinTakeEnds(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	spun := make(chan error)
	spin := func() {
		_, err := s.SpinTake(NewBatch(0), 64, 1<<60)
		spun <- err
	}
	go spin()
	push(t, c, NopEntry(0), nil, nil)
	flush(t, c)
	if err := <-spun; err != nil {
		t.Fatal(err)
	}
	go spin()
	s.Close(gpuerr.Revoked)
	if err := <-spun; err != nil && !errors.Is(err, gpuerr.Revoked) {
		t.Fatal(err)
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

// TestShortWays: what is ordinary is written and read as everything is.
func TestShortWays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	short := 0
	for range 100_000 {
		w := [4]uint64{r.Uint64(), uint64(r.IntN(4)), r.Uint64N(3), r.Uint64N(2)}
		if r.IntN(4) == 0 {
			w[1] |= 1 << r.IntN(64)
		}
		var a, b Completion
		if errA, errB := a.setWords(&w), b.setAnyWords(&w); a != b || errA != errB {
			t.Fatalf("%x is read as %+v, %v and %+v, %v", w, a, errA, b, errB)
		} else if errA != nil {
			continue
		}
		short++
		var stored [4]uint64
		if a.store(&stored); stored != a.words() || stored != w {
			t.Fatalf("%+v is written as %x and %x; it was %x", a, stored, a.words(), w)
		}
	}
	if short < 10_000 {
		t.Errorf("only %d completions", short)
	}
}

// TestSubmitter: what is pushed through it is what Push would have pushed.
func TestSubmitter(t *testing.T) {
	leakcheck.Check(t)
	w := newTwins(t, 8, 512)
	sub, staged := w.c[0].Submitter(), 0
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
		words, err := sub.Push(&e, len(bindings), inline)
		if twinErr := w.c[1].Push(&twin, bindings, inline); !errors.Is(err, twinErr) || len(words) != 4*len(bindings) && err == nil {
			t.Fatalf("Push() = %d words, %v; %v", len(words), err, twinErr)
		}
		if err == nil {
			if staged++; sub.Staged() != staged {
				t.Fatalf("Staged() = %d, want %d", sub.Staged(), staged)
			}
			for j, b := range bindings {
				copy(words[4*j:], []uint64{b.Buffer, b.Off, b.Len, 0})
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
	if _, err := sub.Push(&e, 1, nil); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Push() of a nop with a binding: %v", err)
	}
	w.c[0].Close()
	if _, err := sub.Push(&e, 0, nil); !errors.Is(err, gpuerr.Closed) || !errors.Is(sub.Flush(), gpuerr.Closed) {
		t.Errorf("Push() after Close: %v", err)
	}
}
