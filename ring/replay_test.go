package ring

import (
	"errors"
	"testing"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// The driver takes the patches that PushReplay writes.
func TestPushReplay(t *testing.T) {
	s, c := pair(t, 4, 128)
	patches := []Patch{InlinePatch(3, 8, []byte{1, 2, 3, 4}), BindingPatch(7, 2, 4096, 64), BindingPatch(1, 0, 8, 0)}
	b := NewBatch(128)
	for round := range 10 { // the arena goes round
		e := ReplayEntry(uint64(round), 9, 5)
		if err := c.PushReplay(&e, patches); err != nil {
			t.Fatal(err)
		}
		flush(t, c)
		n, err := s.TakeMany(b, 4)
		if n != 1 || err != nil {
			t.Fatalf("TakeMany() = %d, %v", n, err)
		}
		got := &b.Entries[0]
		if got.Code != gpuerr.None || got.Op != OpReplay || got.UserData != uint64(round) || int(got.Count) != len(patches) {
			t.Fatalf("took %+v", got)
		}
		for i := range patches {
			var p Patch
			if err := p.SetWords(got.Args[4*i : 4*i+4]); err != nil || p != patches[i] {
				t.Errorf("patch %d: %+v, %v", i, p, err)
			}
		}
		s.Complete(&Completion{UserData: e.UserData, Outcome: outcome.Success})
		s.Flush()
		if n, err := c.Poll(make([]Completion, 4)); n != 1 || err != nil {
			t.Fatalf("Poll() = %d, %v", n, err)
		}
	}
	e := ReplayEntry(1, 9, 5)
	if err := c.PushReplay(&e, make([]Patch, 5)); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("more patches than the arena has room for: %v", err)
	}
	if err := c.PushReplay(&e, patches); err != nil {
		t.Error(err)
	}
	if err := c.PushReplay(&e, patches); !errors.Is(err, gpuerr.QueueFull) {
		t.Errorf("a full arena: %v", err)
	}
	launch := LaunchEntry(1, 9, Dim3{}, Dim3{}, 0, 0)
	if err := c.PushReplay(&launch, nil); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("a launch: %v", err)
	}
}
