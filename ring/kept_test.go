package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// pushPlain is Push of a client that knows no kept slots: the slow obvious way.
//
// +checklocksignore: nobody else has it
func pushPlain(c *Client, e Entry, bindings []Binding, inline []byte) error {
	args := AppendArgs(nil, bindings, inline)
	if c.pushed-c.view.sqHead.Load() >= uint64(c.Entries) {
		return errQueueFull
	}
	off := uint32(0)
	if e.Op == OpLaunch {
		var err error
		if off, err = c.allocLocked(uint64(len(args))); err != nil {
			return err
		}
		e.SetArgs(off, len(bindings), len(inline))
	}
	for i := 0; i < len(args); i += 8 {
		var w [8]byte
		copy(w[:], args[i:])
		c.view.args[(int(off)+i)/8] = binary.LittleEndian.Uint64(w[:])
	}
	*c.view.entry(c.pushed) = e.words()
	c.pushedLocked(0, e.UserData)
	return nil
}

// canonical is what an entry says wherever it lay.
func canonical(t *Taken) string {
	t.Expand()
	w := t.Words
	w[1] = 0
	if t.Op == OpLaunch {
		w[6] = w[6] >> 32 << 32
	}
	return fmt.Sprint(w, t.Args, t.Code)
}

// TestKeptAgainstQueue does the same to two rings, of which one has kept slots and an owner
// that keeps what is in them, and forgets some of it, and the other has its entries in the
// queue, all of them: what is taken is the same.
//
// +checklocksignore: nobody else has them
func TestKeptAgainstQueue(t *testing.T) {
	leakcheck.Check(t)
	r := rand.New(rand.NewPCG(11, 12))
	hits, misses, queued, rolled, full := 0, 0, 0, 0, 0
	for round := range 60 {
		entries := uint32(2) << (round % 6)
		s, c := pair(t, entries, 64<<10)
		plainS, plainC := pair(t, entries, 64<<10)
		var kept keptTable
		b, plain := NewBatch(0), NewBatch(0)
		kinds := 1 + r.IntN(int(entries)) // more or fewer than there are slots
		user := uint64(0)
		var inRing []uint64
		push := func() bool {
			kind := r.IntN(kinds)
			if r.IntN(20) == 0 {
				kind = r.IntN(1000)
			}
			user++
			var e Entry
			var bindings []Binding
			var inline []byte
			switch {
			case kind%11 == 10:
				e = SignalEntry(user, 1, uint64(kind)+1)
			case kind%11 == 9:
				e = FillEntry(user, uint64(kind)+1, 0, 4, 7, 0)
			case kind%11 == 8:
				e = CopyEntry(user, 1, 0, 2, uint64(kind), 4, 0)
			default:
				e = LaunchEntry(user, uint64(kind%3), Dim3{1, 1, 1}, Dim3{64, 1, 1}, 0, uint32(kind%2)) // program 0 is refused
				for i := range kind % 5 {
					bindings = append(bindings, Binding{Buffer: uint64(i + kind), Off: uint64(kind), Len: 4}) // so is buffer 0
				}
				inline = make([]byte, kind%7*9)
				for i := range inline {
					inline[i] = byte(kind + i)
				}
				if kind%13 == 12 {
					inline = make([]byte, 449)
				}
			}
			e2 := e
			err, plainErr := c.Push(&e, bindings, inline), pushPlain(plainC, e2, bindings, inline)
			if err != plainErr && !(errors.Is(err, gpuerr.QueueFull) && errors.Is(plainErr, gpuerr.QueueFull)) {
				t.Fatalf("Push() = %v, plainly %v", err, plainErr)
			}
			if err != nil {
				full++
			}
			return err == nil
		}
		for range 300 {
			mark, users := c.Mark(), len(inRing)
			for n := r.IntN(int(entries) + 2); n > 0; n-- {
				if push() {
					inRing = append(inRing, user)
				}
			}
			if r.IntN(5) == 0 {
				back := r.IntN(len(inRing) - users + 1)
				inRing = inRing[:users+back]
				c.Rollback(mark + uint64(back))
				plainC.Rollback(mark + uint64(back))
				rolled++
			}
			if r.IntN(3) == 0 {
				continue
			}
			flush(t, c)
			flush(t, plainC)
			for range r.IntN(4) {
				most := 1 + r.IntN(40)
				n, err := s.TakeMany(b, most)
				m, plainErr := plainS.TakeMany(plain, most)
				if n != m || err != nil || plainErr != nil {
					t.Fatalf("TakeMany() = %d, %v; plainly %d, %v", n, err, m, plainErr)
				}
				for i := range b.Entries {
					switch x := &b.Entries[i]; {
					case x.Known != nil:
						hits++
					case x.Slot >= 0:
						misses++
					default:
						queued++
					}
				}
				kept.keep(b)
				done := make([]Completion, n)
				for i := range done {
					if got, want := canonical(&b.Entries[i]), canonical(&plain.Entries[i]); got != want {
						t.Fatalf("taken %s, plainly %s", got, want)
					}
					done[i].Outcome = outcome.Success
				}
				if len(kept) > 0 && r.IntN(8) == 0 {
					kept[r.IntN(len(kept))] = nil
				}
				if r.IntN(50) == 0 { // as a successor begins
					kept = nil
					b.Forget()
				}
				s.Publish(done)
				plainS.Publish(done)
				out, plainOut := make([]Completion, 2*entries), make([]Completion, 2*entries)
				n, err = c.Poll(out)
				if m, _ := plainC.Poll(plainOut); n != m || err != nil || !slices.Equal(out, plainOut) {
					t.Fatal(n, m, err)
				}
				for i := range n {
					if out[i].UserData != inRing[i] {
						t.Fatalf("completion of %d, want %d", out[i].UserData, inRing[i])
					}
				}
				inRing = inRing[n:]
			}
		}
	}
	if hits < 5000 || misses < 2000 || queued < 2000 || rolled < 500 || full < 500 {
		t.Errorf("%d hits, %d misses, %d queued, %d rolled back, %d times full: that tests little", hits, misses, queued, rolled, full)
	}
}

// TestKeptSlotsAreNotWrittenEarly: whatever is pushed, a slot that an entry names which is
// not taken says what it said when that was pushed.
//
// +checklocksignore: nobody else has it
func TestKeptSlotsAreNotWrittenEarly(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, entries := range []uint32{2, 8, 64} {
		s, c := pair(t, entries, 64<<10)
		b := NewBatch(0)
		said := map[uint64][keptWords]uint64{} // by position
		for i := range 20_000 {
			mark := c.pushed
			e := FillEntry(0, 1, uint64(4*r.IntN(100)), 4, 0, 0)
			if err := c.Push(&e, nil, nil); err == nil {
				if slot, _, _ := placeAt(mark, *c.view.place(mark), len(c.view.kept)); slot >= 0 {
					said[mark] = c.view.kept[slot]
				}
			}
			if r.IntN(10) == 0 {
				back := min(r.Uint64N(4), c.pushed-c.submitted.Load())
				c.Rollback(c.pushed - back)
			}
			for pos, want := range said {
				if pos < c.view.sqHead.Load() || pos >= c.pushed {
					delete(said, pos)
				} else if slot, version, ok := placeAt(pos, *c.view.place(pos), len(c.view.kept)); !ok || c.view.kept[slot] != want {
					t.Fatalf("%d: slot %d, version %d of position %d was written", i, slot, version, pos)
				}
			}
			if r.IntN(3) == 0 {
				flush(t, c)
				if n, err := s.TakeMany(b, r.IntN(5)); err != nil {
					t.Fatal(err)
				} else {
					s.Publish(make([]Completion, n))
					c.view.cqHead.Store(s.told())
				}
			}
		}
	}
}

// TestKeeper: what comes again is found, in any order, up to as many as there are slots; and
// some of it also when there is more.
//
// +checklocksignore: nobody else has it
func TestKeeper(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for kinds, least := range map[int]int{1: 1000, 4: 1000, 60: 950, 80: 200} {
		s, c := pair(t, 256, 64)
		b := NewBatch(0)
		found := 0
		for round := range 1000 + 2*kinds {
			kind := round % kinds
			if kinds <= 4 && round >= 2*kinds { // each was there
				kind = r.IntN(kinds)
			}
			e := FillEntry(0, 1, uint64(4*kind), 4, 0, 0)
			before := versions(c)
			push(t, c, e, nil, nil)
			if versions(c) == before && round >= 2*kinds {
				found++
			}
			flush(t, c)
			if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			s.Publish(make([]Completion, 1))
			c.view.cqHead.Store(s.told())
		}
		if found < least {
			t.Errorf("of 1000 fills of %d that come again %d were found", kinds, found)
		}
	}
}

// versions is how often a client has written its slots.
//
// +checklocksignore: nobody else has it
func versions(c *Client) (n uint64) {
	for i := range c.keeper.slots {
		n += c.keeper.slots[i].place >> placeVersionShift
	}
	return n
}

// TestVersionsAreUsedUp: a slot that had its last version is not written again. Its owner may
// still keep what it said under the first one, if all that came since was never kept.
//
// +checklocksignore: nobody else has it
func TestVersionsAreUsedUp(t *testing.T) {
	s, c := pair(t, 16, 64)
	b := NewBatch(0)
	var kept keptTable
	takeOne := func(kind uint64) *Taken {
		t.Helper()
		push(t, c, FillEntry(0, 1, 4*kind, 4, 0, 0), nil, nil)
		flush(t, c)
		if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		s.Publish(make([]Completion, 1))
		c.view.cqHead.Store(s.told())
		return &b.Entries[0]
	}
	for kind := range uint64(4) {
		if x := takeOne(kind); x.Slot != int(kind) || x.Version != 1 {
			t.Fatalf("taken %+v", x)
		}
		kept.keep(b)
	}
	for i := range c.keeper.slots { // it had all versions but for the last two
		c.keeper.slots[i].place = placeOf(i, ^uint32(0)-2)
	}
	queued := 0
	for kind := uint64(10); kind < 60; kind++ {
		x := takeOne(kind)
		if x.Slot < 0 {
			queued++
		}
		if x.Expand(); x.A != 4*kind || x.Code != gpuerr.None {
			t.Fatalf("fill %d is taken as %+v", kind, x)
		}
	}
	if queued < 50-2*4 {
		t.Errorf("%d of 50 are in the queue", queued)
	}
}

// TestAgain: what is expected is what came next the last time, and is pushed as it was.
func TestAgain(t *testing.T) {
	s, c := pair(t, 16, 256)
	sub := c.Submitter()
	b := NewBatch(0)
	var kept keptTable
	var seen []Kept
	for i := range 30 {
		e := FillEntry(uint64(i), 1, uint64(i%3*4), 4, 0, 0)
		var now Kept
		if i < 4 {
			var err error
			if now, err = sub.Push(&e, 0, nil); err != nil || now == 0 || now.Slot() != i%3 {
				t.Fatal(now, err)
			}
			seen = append(seen, now)
		} else {
			if now = sub.Expected(); now != seen[i%3] {
				t.Fatalf("%d is expected, not %d", now, seen[i%3])
			}
			if n, err := sub.Again(uint64(i), 1); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := sub.Flush(); err != nil {
			t.Fatal(err)
		}
		if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		kept.keep(b)
		x := &b.Entries[0]
		if x.Expand(); x.A != uint64(i%3*4) || x.Op != OpFill || x.Code != gpuerr.None {
			t.Fatalf("taken %+v", x)
		}
		s.Publish([]Completion{{Outcome: outcome.Success}})
		var out [2]Completion
		if n, err := c.Poll(out[:]); n != 1 || err != nil || out[0].UserData != uint64(i) {
			t.Fatal(n, err, out[0])
		}
	}
	if n, err := sub.Again(0, 0); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := sub.Again(0, 17); n != 16 || !errors.Is(err, gpuerr.QueueFull) {
		t.Error(n, err)
	}
	if n, err := sub.Again(0, 1); n != 0 || !errors.Is(err, gpuerr.QueueFull) {
		t.Error(n, err)
	}
	c.Close()
	if n, err := sub.Again(0, 1); n != 0 || !errors.Is(err, gpuerr.Closed) {
		t.Error(n, err)
	}
}

// TestForget: a batch that was let go of leads to nothing of its owner's, whatever was taken
// into it before.
func TestForget(t *testing.T) {
	s, c := pair(t, 8, 1024)
	b := NewBatch(0)
	b.Forget() // before anything is taken
	var kept keptTable
	for _, n := range []int{1, 4, 2} {
		for range n {
			push(t, c, LaunchEntry(1, 1, Dim3{1, 1, 1}, Dim3{64, 1, 1}, 0, 0), []Binding{{Buffer: 1, Len: 16}}, nil)
		}
		flush(t, c)
		if got, err := s.TakeMany(b, n); got != n || err != nil {
			t.Fatal(got, err)
		}
		if kept != nil && b.Entries[n-1].Known != kept[0] {
			t.Fatal("it is not known")
		}
		kept.keep(b)
	}
	b.Forget()
	if b.Kept != nil || len(b.Entries) != 2 {
		t.Errorf("kept is %v, %d entries are left", b.Kept, len(b.Entries))
	}
	for i, x := range b.Entries[:cap(b.Entries)] {
		if x.Known != nil {
			t.Errorf("entry %d is known", i)
		}
	}
}
