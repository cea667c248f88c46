package ring

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// takenAlone is what Take, Check and Args make of the next entry: the model of TakeMany.
func takenAlone(s *Server) (t Taken, ok bool, err error) {
	if ok, err = s.Take(&t.Entry); !ok || err != nil {
		return t, ok, err
	}
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
	return a.Entry == b.Entry && a.Code == b.Code && slices.Equal(a.Args, b.Args) && (a.Args == nil) == (b.Args == nil)
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
				D: (value &^ 7 % 512) | uint64(word%4*32+word%4*8/8)<<32}).Words()
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
			if head := c.view.cqHead.Load(); head < w.s[i].told() {
				c.view.cqHead.Store(head + 1)
			}
		case 11:
			*slot = (&Entry{Op: OpReplay, Object: value % 2, D: uint64(word%600) | uint64(at%600)<<32}).Words()
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
		answers[i] = Completion{UserData: got.UserData, Outcome: outcome.Success, DeviceNanos: got.UserData << (got.UserData % 64)}
		if got.Code != gpuerr.None {
			answers[i] = Completion{UserData: got.UserData, Outcome: outcome.Outcome{Kind: outcome.Failed}, Code: got.Code}
		}
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
		func(i int) uint64 { return w.s[i].told() },
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
