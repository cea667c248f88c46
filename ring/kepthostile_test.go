package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// TestLyingPlaces: a client that writes a place that cannot be one ends its ring, after what
// was in order before it.
func TestLyingPlaces(t *testing.T) {
	for name, place := range map[string]uint64{
		"another position":           3,
		"the position a lap ago":     1<<16 - 3,
		"a slot that there is not":   1 | 5<<placeSlotShift | 1<<placeVersionShift,
		"the last slot of 255":       1 | 255<<placeSlotShift,
		"a reserved bit":             1 | 1<<placeZeroShift,
		"the last reserved bit":      1 | 1<<31,
		"a reserved bit with a slot": 1 | 1<<placeSlotShift | 1<<27,
		"a version without a slot":   1 | 1<<placeVersionShift,
		"all ones":                   ^uint64(0),
	} {
		for _, last := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " last ", last), func(t *testing.T) {
				leakcheck.Check(t)
				s, c := pair(t, 4, 64)
				push(t, c, NopEntry(0), nil, nil)
				push(t, c, NopEntry(1), nil, nil)
				push(t, c, NopEntry(2), nil, nil)
				if !last {
					flush(t, c)
				} else { // the lie is in sqLast
					c.Rollback(2)
					flush(t, c)
					*c.view.sqLast = place
					if uint16(place) != 1 { // then it does not count
						*c.view.place(1) = place
					}
				}
				*c.view.place(1) = place
				b := NewBatch(0)
				if n, err := s.TakeMany(b, 4); n != 1 || err != nil || b.Entries[0].Code != gpuerr.None {
					t.Fatalf("TakeMany() = %d, %v", n, err)
				}
				*c.view.place(1), *c.view.sqLast = 1, 1 // too late
				expectProtocol(t, s, c)
			})
		}
	}
}

// TestLyingLast: sqLast that is of another position does not count, and one that is of the
// right one does, whatever the word of the position is.
func TestLyingLast(t *testing.T) {
	s, c := pair(t, 4, 64)
	b := NewBatch(0)
	takeOne := func() *Taken {
		t.Helper()
		if n, err := s.TakeMany(b, 4); n != 1 || err != nil {
			t.Fatalf("TakeMany() = %d, %v", n, err)
		}
		s.Publish(make([]Completion, 1))
		c.view.cqHead.Store(s.told())
		return &b.Entries[0]
	}
	push(t, c, FillEntry(1, 2, 0, 4, 0, 0), nil, nil)
	flush(t, c)
	*c.view.sqLast ^= 1
	if x := takeOne(); x.Op != OpFill || x.Slot != 0 || x.Version != 1 {
		t.Errorf("taken %+v", x)
	}
	push(t, c, FillEntry(1, 2, 0, 4, 0, 0), nil, nil)
	flush(t, c)
	*c.view.place(1) = 0xbad << 32
	if x := takeOne(); x.Op != OpFill || x.Slot != 0 || x.Version != 1 {
		t.Errorf("taken %+v", x)
	}
	// With more than one, it is the last one's only.
	*c.view.entry(3) = (&Entry{Op: OpNop}).words()
	push(t, c, FillEntry(1, 2, 0, 4, 0, 0), nil, nil)
	push(t, c, FillEntry(1, 2, 4, 4, 0, 0), nil, nil)
	flush(t, c)
	*c.view.sqLast = 3 // in the queue
	if n, err := s.TakeMany(b, 4); n != 2 || err != nil || b.Entries[0].Op != OpFill || b.Entries[1].Op != OpNop || b.Entries[1].Slot != -1 {
		t.Errorf("TakeMany() = %d, %v: %+v", n, err, b.Entries)
	}
}

// TestLyingSlots: what a kept slot cannot say is refused, and the ring goes on.
func TestLyingSlots(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 4096)
	b := NewBatch(0)
	launch := Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32 << 32}
	for name, lie := range map[string]struct {
		e    Entry
		args []uint64
		code gpuerr.Code
	}{
		"a launch":            {launch, []uint64{7, 0, 4, 0}, gpuerr.None},
		"as much as there is": {Entry{Op: OpLaunch, Object: 1, C: 448 << 16, D: 448 << 32}, nil, gpuerr.None},
		"too much":            {Entry{Op: OpLaunch, Object: 1, C: 449 << 16, D: 449 << 32}, nil, gpuerr.Invalid},
		"far too much":        {Entry{Op: OpLaunch, Object: 1, Count: 0xffff, D: 0xffff * 32 << 32}, nil, gpuerr.Invalid},
		"elsewhere":           {Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32<<32 | 8}, []uint64{7, 7, 0, 4, 0}, gpuerr.Invalid},
		"beyond":              {Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32<<32 | 440}, nil, gpuerr.Invalid},
		"user data":           {Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32 << 32, UserData: 1}, []uint64{7, 0, 4, 0}, gpuerr.Invalid},
		"no handle":           {launch, []uint64{0, 0, 4, 0}, gpuerr.Invalid},
		"a zero that is not":  {launch, []uint64{7, 0, 4, 1}, gpuerr.Invalid},
		"a range too long":    {launch, []uint64{7, ^uint64(0), 4, 0}, gpuerr.Invalid},
		"a nop":               {Entry{}, nil, gpuerr.Invalid},
		"a signal":            {SignalEntry(0, 1, 1), nil, gpuerr.Invalid},
		"a wait":              {WaitEntry(0, 1, 1), nil, gpuerr.Invalid},
		"a replay":            {ReplayEntry(0, 1, 0), nil, gpuerr.Invalid},
		"no operation":        {Entry{Op: 200}, nil, gpuerr.Invalid},
		"a copy":              {CopyEntry(0, 1, 8, 2, 8, 4, 0), nil, gpuerr.None},
		"a fill of nothing":   {FillEntry(0, 1, 0, 0, 0, 0), nil, gpuerr.Invalid},
	} {
		words := lie.e.words()
		copy(c.view.kept[3][:], words[:])
		copy(c.view.kept[3][entryWords:], lie.args)
		forgePlace(c, placeOf(3, 9))
		if n, err := s.TakeMany(b, 4); n != 1 || err != nil {
			t.Fatalf("%s: TakeMany() = %d, %v", name, n, err)
		}
		x := &b.Entries[0]
		if x.Code != lie.code || x.Known != nil || x.Slot != 3 || x.Version != 9 || (x.Args == nil) != (lie.code != gpuerr.None || lie.e.Op != OpLaunch) {
			t.Errorf("%s: taken %+v, want %v", name, x, lie.code)
		}
		s.Publish(make([]Completion, 1))
		c.view.cqHead.Store(s.told())
	}
}

// TestKeptChanges: a client that writes a slot without another version, or while an entry
// names it that is not taken, has what it wrote before taken, or what it wrote after. What
// an entry was found to be does not change when its slot becomes another before it is begun.
func TestKeptChanges(t *testing.T) {
	s, c := pair(t, 8, 64)
	b := NewBatch(0)
	var kept keptTable
	fill := func(off uint64) {
		e := FillEntry(0, 1, off, 4, 0, 0)
		e.store((*[entryWords]uint64)(c.view.kept[0][:]))
	}
	name := func(version uint32) { forgePlace(c, placeOf(0, version)) }
	takeAll := func(want int) {
		t.Helper()
		if n, err := s.TakeMany(b, 8); n != want || err != nil {
			t.Fatalf("TakeMany() = %d, %v", n, err)
		}
		s.Publish(make([]Completion, want))
		c.view.cqHead.Store(s.told())
	}
	fill(4)
	name(1)
	takeAll(1)
	kept.keep(b)
	fill(8) // under the version that it had
	name(1)
	takeAll(1)
	if x := b.Entries[0]; x.Known != kept[0] {
		t.Errorf("taken %+v", x)
	} else if x.Expand(); x.A != 4 || x.Code != gpuerr.None {
		t.Errorf("version 1 is %+v", x)
	}
	name(2)
	fill(12) // before it is taken
	takeAll(1)
	if x := b.Entries[0]; x.Known != nil || x.A != 12 {
		t.Errorf("taken %+v", x)
	}
	name(1) // known, and behind it one that is not
	name(2)
	takeAll(2)
	first := b.Entries[0]
	kept.keep(b)
	if first.Known == nil {
		t.Fatal("version 1 is not known")
	}
	if first.Expand(); first.Code != gpuerr.Invalid || first.Args != nil || first.Op != OpFill || first.Object != 0 {
		t.Errorf("what its owner has made another is %+v", first)
	}
	again := first
	if again.Expand(); !same(&again, &first) {
		t.Errorf("it changes once more: %+v", again)
	}
}

// FuzzKept takes an entry whose place, and whose slot, a client wrote that lies: it is an
// entry in order, or refused, or the ring is over; and once its owner keeps it, it is the
// same again.
func FuzzKept(f *testing.F) {
	seed := func(place uint64, e Entry, args ...uint64) {
		var b []byte
		words := e.words()
		for _, w := range append(words[:], args...) {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		f.Add(place, b)
	}
	launch := Entry{Op: OpLaunch, Object: 1, Count: 1, C: 8 << 16, D: 40 << 32}
	seed(placeOf(0, 1), launch, 1, 0, 4, 0, 5)
	seed(placeOf(3, ^uint32(0)), launch, 0, 0, 4, 0, 5)
	seed(placeOf(4, 1), launch, 1, 0, 4, 0, 5)
	seed(placeOf(1, 1)|1<<30, launch, 1, 0, 4, 0, 5)
	seed(placeOf(1, 1)|1, launch, 1, 0, 4, 0, 5)
	seed(0, FillEntry(0, 1, 0, 4, 5, 0))
	seed(1<<32, FillEntry(0, 1, 0, 4, 5, 0))
	seed(placeOf(2, 0), CopyEntry(0, 1, 0, 2, 0, 8, 0))
	seed(placeOf(2, 0), Entry{Op: OpLaunch, Object: 1, C: 449 << 16, D: 449 << 32})
	seed(placeOf(2, 0), Entry{Op: OpLaunch, Object: 1, Count: 1, D: 32<<32 | 424})
	f.Fuzz(func(t *testing.T, place uint64, said []byte) {
		l, err := NewLocal(Config{Entries: 4, ArgBytes: 64}, LocalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c, s := l.Client, l.Server
		var words [keptWords]uint64
		for i := range words {
			var w [8]byte
			if 8*i < len(said) {
				copy(w[:], said[8*i:])
			}
			words[i] = binary.LittleEndian.Uint64(w[:])
		}
		for i := range c.view.kept {
			c.view.kept[i] = words
		}
		*c.view.entry(0) = [entryWords]uint64(words[:])
		*c.view.place(0), *c.view.sqLast = place, place
		c.view.sqTail.Store(1)
		b := NewBatch(0)
		n, err := s.TakeMany(b, 1)
		slot := int(place>>16&0xff) - 1
		sound := place&0xffff == 0 && place>>24&0xff == 0 && slot < 4 && (slot >= 0 || place>>32 == 0)
		if sound != (n == 1 && err == nil) || !sound && !errors.Is(err, gpuerr.Protocol) {
			t.Fatalf("place %#x: TakeMany() = %d, %v", place, n, err)
		}
		if !sound {
			return
		}
		x := &b.Entries[0]
		if x.Slot != slot || x.Version != uint32(place>>32) || x.Words != [entryWords]uint64(words[:]) {
			t.Fatalf("place %#x: taken %+v", place, x)
		}
		if x.Code != gpuerr.None || slot < 0 {
			return
		}
		_, argBytes := x.ArgRange()
		if !keeps(x.Op) || x.UserData != 0 || x.Op == OpLaunch && (uint32(x.D) != 0 || argBytes > KeptArgBytes || len(x.Args) != int(argBytes+7)/8) {
			t.Fatalf("a kept slot has %+v", x)
		}
		before := *x
		before.Args = slices.Clone(x.Args)
		k := new(Known)
		k.Keep(x)
		b.Kept = make([]*Known, slot+1)
		b.Kept[slot] = k
		*c.view.place(1) = place | 1
		c.view.sqTail.Store(2)
		if n, err := s.TakeMany(b, 1); n != 1 || err != nil || b.Entries[0].Known != k || b.Entries[0].Op != before.Op {
			t.Fatalf("TakeMany() again = %d, %v: %+v", n, err, b.Entries)
		}
		if x.Expand(); x.Entry != before.Entry || x.Words != before.Words || !slices.Equal(x.Args, before.Args) || x.Code != gpuerr.None {
			t.Fatalf("taken %+v, and then %+v", before, x)
		}
	})
}
