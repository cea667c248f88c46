package shm

import (
	"context"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// newWake is a wake pipe that is closed with the test.
func newWake(t *testing.T) (*Sender, *Receiver) {
	t.Helper()
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); r.Close() })
	return s, r
}

// Waiting again for the same context, or for one derived from it that ends with
// it, allocates nothing.
func TestWaitWithAContextAllocates(t *testing.T) {
	s, r := newWake(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	derived := context.WithValue(ctx, t, nil)
	if n := testing.AllocsPerRun(100, func() {
		for _, ctx := range []context.Context{ctx, derived} {
			if s.Signal() != nil || r.Wait(ctx) != nil {
				t.Error("a wake failed")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A context interrupts its own waits only, whenever it ends.
func TestContextsOfEarlierWaits(t *testing.T) {
	leakcheck.Check(t)
	s, r := newWake(t)
	wait := func(ctx context.Context) {
		t.Helper()
		if err := s.Signal(); err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(ctx); err != nil {
			t.Fatalf("Wait() = %v", err)
		}
	}
	first, endFirst := context.WithCancel(context.Background())
	wait(first)
	endFirst() // between two waits
	if err := r.Wait(first); err != context.Canceled {
		t.Fatalf("Wait() with an ended context = %v", err)
	}
	wait(context.Background())

	second, endSecond := context.WithCancel(context.Background())
	wait(second)
	third, endThird := context.WithCancel(context.Background())
	wait(third)
	ended := make(chan error, 1)
	go func() { ended <- r.Wait(third) }()
	endSecond() // during a wait for another
	if err := s.Signal(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatalf("Wait() = %v", err)
	}
	r.Drain() // its wake-up, if it slept
	go func() { ended <- r.Wait(third) }()
	endThird()
	if err := <-ended; err != context.Canceled {
		t.Fatalf("Wait() = %v", err)
	}
	wait(context.Background())
}

// stopped is a context that counts the functions registered with it.
type stopped struct {
	context.Context
	done  chan struct{}
	armed int
}

func (s *stopped) Done() <-chan struct{} { return s.done }

// AfterFunc is called by package context, instead of starting a goroutine.
func (s *stopped) AfterFunc(func()) func() bool {
	s.armed++
	return func() bool { s.armed--; return true }
}

// A context that lives on holds nothing of a closed object.
func TestCloseDisarms(t *testing.T) {
	s, r := newWake(t)
	ctx := &stopped{Context: context.Background(), done: make(chan struct{})}
	if s.Signal() != nil || r.Wait(ctx) != nil {
		t.Fatal("a wake failed")
	}
	if ctx.armed != 1 {
		t.Fatalf("armed %d times", ctx.armed)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if ctx.armed != 0 {
		t.Errorf("armed %d times after Close", ctx.armed)
	}
	if err := r.Wait(ctx); gpuerr.CodeOf(err) != gpuerr.Closed {
		t.Errorf("Wait() = %v", err)
	}
	if ctx.armed != 0 {
		t.Errorf("armed %d times by a wait after Close", ctx.armed)
	}
}
