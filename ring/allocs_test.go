package ring

import (
	"errors"
	"testing"

	"capgpu/gpuerr"
	"capgpu/outcome"
)

// TestAllocationsAndWakes: in the steady state nothing is allocated, and a side that is awake
// is not woken.
func TestAllocationsAndWakes(t *testing.T) {
	s, c := pair(t, 256, 16<<10)
	bindings := []Binding{{Buffer: 1}, {Buffer: 2, Off: 4, Len: 8}}
	inline, out := make([]byte, 16), make([]Completion, 64)
	var e Entry
	var b []Binding
	var in []byte
	round := func() {
		for i := range uint64(64) {
			e = LaunchEntry(i, 1, Dim3{1, 1, 1}, Dim3{1, 1, 1}, 0, 0)
			if err := c.Push(&e, bindings, inline); err != nil {
				t.Fatal(err)
			}
		}
		flush(t, c)
		for range 64 {
			e = take(t, s)
			var err error
			if b, in, err = s.Args(&e, b, in); err != nil {
				t.Fatal(err)
			}
			s.Complete(&Completion{UserData: e.UserData, Outcome: outcome.Success})
		}
		s.Consumed()
		s.Flush()
		if n, err := c.Poll(out); n != 64 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations for 64 entries", n)
	}
	full := func() {
		if err := c.Push(&e, nil, make([]byte, 0)); err != nil && !errors.Is(err, gpuerr.QueueFull) {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(1000, full); n != 0 {
		t.Errorf("%v allocations for a full queue", n)
	}
	// Nobody slept, so nobody was woken: no system call was made.
	if n := wakesPending(t, fdOf(s.work)) + wakesPending(t, fdOf(c.done)); n != 0 {
		t.Errorf("%d wakes that nobody asked for", n)
	}
}
