package ring

import "testing"

// A sleeper is woken once: the side that wakes it takes the flag back.
func TestWakeTakesTheFlagBack(t *testing.T) {
	s, c := pair(t, 4, 64)
	if ready, err := s.Arm(); ready || err != nil {
		t.Fatalf("Arm() = %v, %v", ready, err)
	}
	if got := s.view.sqWait.Load(); got != waitEntries {
		t.Fatalf("sqWait is %d", got)
	}
	for range 2 {
		e := NopEntry(1)
		if err := c.Push(&e, nil, nil); err != nil {
			t.Fatal(err)
		}
		flush(t, c)
		if got := s.view.sqWait.Load(); got != awake {
			t.Fatalf("sqWait is %d after a wake", got)
		}
	}
}

// A wait says whether it is for the order alone, and is refused with any other flag.
func TestOrderOnly(t *testing.T) {
	wait, order := WaitEntry(1, 2, 3), WaitOrderEntry(1, 2, 3)
	if wait.OrderOnly() || !order.OrderOnly() {
		t.Error("OrderOnly() is the other way round")
	}
	if Check(&wait, 64) != nil || Check(&order, 64) != nil {
		t.Error("a wait is refused")
	}
	for flags := 2; flags < 256; flags++ {
		order.Flags = uint8(flags)
		if Check(&order, 64) != errFlags {
			t.Fatalf("flags %#x are taken", flags)
		}
	}
	for op := range numOps {
		if e := (Entry{Op: op, Flags: WaitOrderOnly, Object: 1}); op != OpWait && Check(&e, 64) != errFlags {
			t.Errorf("%v is taken with the flag of a wait", op)
		}
	}
}
