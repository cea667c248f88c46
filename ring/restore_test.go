package ring

import (
	"errors"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// A server goes on where another has stopped, and its client does not notice. A state that
// no server has is refused, and what came with it is closed.
func TestRestore(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	push := func(n uint64) {
		t.Helper()
		e := NopEntry(n)
		if err := c.Push(&e, nil, nil); err != nil {
			t.Fatal(err)
		}
		flush(t, c)
	}
	answer := func(s *Server, want uint64) {
		t.Helper()
		b := NewBatch(0)
		if n, err := s.TakeMany(b, 1); n != 1 || err != nil || b.Entries[0].UserData != want {
			t.Fatalf("TakeMany() = %d, %v, not entry %d", n, err, want)
		}
		s.Publish([]Completion{{UserData: want, Outcome: outcome.Success}})
	}
	read := func(want uint64) {
		t.Helper()
		var got [4]Completion
		if n, err := c.Poll(got[:]); n != 1 || err != nil || got[0].UserData != want {
			t.Fatalf("Poll() = %d, %v: %+v, not %d", n, err, got[0], want)
		}
	}
	push(1)
	push(2)
	answer(s, 1)
	for name, lie := range map[string]func(*State){
		"more completed than taken":  func(st *State) { st.Completed = st.Taken + 1 },
		"far more taken":             func(st *State) { st.Taken += 1 << 40 },
		"more read than completed":   func(st *State) { st.SeenHead = st.Completed + 1 },
		"more entries than there is": func(st *State) { st.Entries = 4096 },
		"no entries":                 func(st *State) { st.Entries = 0 },
	} {
		st, ring, work, done, err := s.Export()
		if err != nil {
			t.Fatal(err)
		}
		lie(&st)
		if got, err := Restore(st, ring, work, done); err == nil {
			got.Close(0)
			t.Errorf("%s: restored", name)
		}
	}
	st, ring, work, done, err := s.Export()
	if err != nil {
		t.Fatal(err)
	}
	next, err := Restore(st, ring, work, done)
	if err != nil {
		t.Fatal(err)
	}
	read(1)
	answer(next, 2)
	read(2)
	push(3)
	answer(next, 3)
	read(3)
	next.Close(0)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	s.Close(0)
	if _, _, _, _, err := s.Export(); !errors.Is(err, gpuerr.Busy) {
		t.Errorf("Export() of a ring that has ended: %v", err)
	}
}
