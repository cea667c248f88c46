package ring

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// impatient makes the next Wait sleep at once.
func impatient(c *Client) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	c.patience = patience{asleep: mostVain}
}

// TestNoLostWake: both sides sleep in most rounds; a lost wake ends in the
// deadline. CAPGPU_WAKES is how many rounds there are.
func TestNoLostWake(t *testing.T) {
	leakcheck.Check(t)
	rounds := uint64(100_000)
	if raceEnabled || testing.Short() {
		rounds = 5_000
	}
	if text := os.Getenv("CAPGPU_WAKES"); text != "" {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("CAPGPU_WAKES: %v", err)
		}
		rounds = uint64(n)
	}
	s, c := pair(t, 4, 64)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := drive(ctx, s); !errors.Is(err, gpuerr.Closed) {
			t.Errorf("drive() = %v", err)
		}
	})
	lost := time.AfterFunc(longEnough, cancel)
	defer lost.Stop()
	out := make([]Completion, 4)
	for i := range rounds {
		if i%1024 == 0 {
			lost.Reset(longEnough)
		}
		if i%8 != 0 {
			impatient(c)
		}
		push(t, c, SignalEntry(i, 1, 1), nil, nil)
		flush(t, c)
		if n, err := c.Wait(ctx, out); n != 1 || err != nil || out[0].UserData != i {
			t.Fatalf("round %d: Wait() = %d, %v, %+v", i, n, err, out[0])
		}
	}
	s.Close(gpuerr.Closed)
	wg.Wait()
	sent, slept := c.Wakes()
	t.Logf("%d rounds: the driver was woken %d times, the client slept %d times", rounds, sent, slept)
	if sent == 0 || slept == 0 || slept > rounds {
		t.Errorf("Wakes() = %d, %d in %d rounds", sent, slept, rounds)
	}
}

// spin calls done until it is true or longEnough is at an end.
func spin(done func() bool) bool {
	end := time.Now().Add(longEnough)
	for i := 1; !done(); i++ {
		if i%64 == 0 {
			runtime.Gosched()
		}
		if i%4096 == 0 && time.Now().After(end) {
			return false
		}
	}
	return true
}

// hesitate lets a varying moment pass, so that the one side meets the other
// everywhere between its last look and its sleep.
func hesitate(i uint64) {
	for n := i * 7919 % 301; n > 0; n-- {
		pauses.Add(1)
	}
}

var pauses atomic.Uint64

// TestNoLostWakeAgainstSpinner: one side goes to sleep in every round while the
// other, wide awake, publishes at about that moment.
func TestNoLostWakeAgainstSpinner(t *testing.T) {
	rounds := uint64(100_000)
	if raceEnabled || testing.Short() {
		rounds = 20_000
	}
	t.Run("driver sleeps", func(t *testing.T) {
		leakcheck.Check(t)
		s, c := pair(t, 4, 64)
		var wg sync.WaitGroup
		wg.Go(func() {
			var e Entry
			for i := uint64(0); s.WaitWork(context.Background()) == nil; i++ {
				if ok, err := s.Take(&e); !ok || err != nil {
					t.Errorf("Take() = %v, %v after WaitWork", ok, err)
					return
				}
				s.Consumed()
				s.Complete(&Completion{UserData: e.UserData, Outcome: outcome.Success})
				s.Flush()
				hesitate(i)
			}
		})
		defer wg.Wait()
		defer s.Close(gpuerr.Closed)
		out := make([]Completion, 4)
		for i := range rounds {
			push(t, c, SignalEntry(i, 1, 1), nil, nil)
			flush(t, c)
			if !spin(func() bool { n, err := c.Poll(out); return n > 0 || err != nil }) {
				t.Fatalf("round %d: the driver sleeps beside an entry", i)
			}
		}
	})
	t.Run("client sleeps", func(t *testing.T) {
		leakcheck.Check(t)
		s, c := pair(t, 4, 64)
		var wg sync.WaitGroup
		wg.Go(func() {
			var e Entry
			for range rounds {
				var err error
				if !spin(func() bool { var ok bool; ok, err = s.Take(&e); return ok || err != nil }) || err != nil {
					return // the client has given up, and says so
				}
				s.Consumed()
				s.Complete(&Completion{UserData: e.UserData, Outcome: outcome.Success})
				s.Flush()
			}
		})
		defer wg.Wait()
		defer s.Close(gpuerr.Closed)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		lost := time.AfterFunc(longEnough, cancel)
		defer lost.Stop()
		out := make([]Completion, 4)
		for i := range rounds {
			if i%1024 == 0 {
				lost.Reset(longEnough)
			}
			push(t, c, SignalEntry(i, 1, 1), nil, nil)
			flush(t, c)
			impatient(c)
			hesitate(i)
			if n, err := c.Wait(ctx, out); n != 1 || err != nil {
				t.Fatalf("round %d: Wait() = %d, %v", i, n, err)
			}
		}
	})
}

// TestWakeForSlots: a driver that waits for completion slots is woken when the
// client takes completions, not when it submits more.
func TestWakeForSlots(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 2, 64)
	for i := range uint64(4) {
		push(t, c, NopEntry(i), nil, nil)
		flush(t, c)
		take(t, s)
		s.Consumed()
		s.Complete(&Completion{UserData: i, Outcome: outcome.Success})
	}
	s.Flush()
	push(t, c, NopEntry(4), nil, nil)
	flush(t, c)
	woken := make(chan error, 1)
	go func() { woken <- s.WaitWork(testContext(t)) }()
	for end := time.Now().Add(longEnough); s.view.sqWait.Load() != waitCompletions; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the driver does not ask to be woken")
		}
	}
	push(t, c, NopEntry(5), nil, nil)
	flush(t, c)
	if n := wakesPending(t, fdOf(s.work)); n != 0 || s.view.sqWait.Load() != waitCompletions {
		t.Errorf("%d wakes for entries that cannot be taken", n)
	}
	if sent, slept := c.Wakes(); sent != 0 || slept != 0 {
		t.Errorf("Wakes() = %d, %d: nobody was to be woken, and nobody waits", sent, slept)
	}
	if n, err := c.Poll(make([]Completion, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if sent, slept := c.Wakes(); sent != 1 || slept != 0 {
		t.Errorf("Wakes() = %d, %d after the driver was woken once", sent, slept)
	}
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	take(t, s)
}

func TestWaitEndsWithContext(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.WaitWork(ctx); err != context.Canceled {
				t.Errorf("WaitWork() = %v", err)
			}
		})
		wg.Go(func() {
			if n, err := c.Wait(ctx, make([]Completion, 1)); n != 0 || err != context.Canceled {
				t.Errorf("Wait() = %d, %v", n, err)
			}
		})
		cancel()
		wg.Wait()
	}
	// Nothing was broken by it.
	push(t, c, NopEntry(1), nil, nil)
	flush(t, c)
	if err := s.WaitWork(testContext(t)); err != nil {
		t.Fatal(err)
	}
	take(t, s)
	s.Complete(&Completion{UserData: 1, Outcome: outcome.Success})
	s.Flush()
	if n, err := c.Wait(testContext(t), make([]Completion, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := c.Wait(testContext(t), nil); !errors.Is(err, gpuerr.Invalid) {
		t.Errorf("Wait() without room: %v", err)
	}
}

// TestCloseTellsWaiter: the waiting client gets what was completed, then the code.
func TestCloseTellsWaiter(t *testing.T) {
	leakcheck.Check(t)
	for _, code := range []gpuerr.Code{gpuerr.Revoked, gpuerr.DeviceLost, gpuerr.None} {
		s, c := pair(t, 4, 64)
		for i := range uint64(3) {
			push(t, c, NopEntry(i), nil, nil)
		}
		flush(t, c)
		var wg sync.WaitGroup
		wg.Go(func() {
			out, got := make([]Completion, 1), 0
			for {
				n, err := c.Wait(testContext(t), out)
				if err != nil {
					want := code
					if want == gpuerr.None {
						want = gpuerr.Closed
					}
					if !errors.Is(err, want) || got != 2 {
						t.Errorf("%v: %d completions, then %v", code, got, err)
					}
					return
				}
				got += n
			}
		})
		wg.Go(func() {
			for err := error(nil); err == nil; err = s.WaitWork(testContext(t)) {
				var e Entry
				s.Take(&e)
			}
		})
		for i := range uint64(2) {
			s.Complete(&Completion{UserData: i, Outcome: outcome.Success})
		}
		s.Close(code) // publishes what was completed
		s.Close(gpuerr.Internal)
		wg.Wait()
		// A closed server is harmless.
		var e Entry
		if ok, err := s.Take(&e); ok || err == nil {
			t.Errorf("Take() after Close = %v, %v", ok, err)
		}
		s.Consumed()
		s.Complete(&Completion{})
		s.Flush()
		if _, _, _, err := s.HandOut(); err == nil {
			t.Error("HandOut() after Close")
		}
	}
}

func TestClientClose(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	var wg sync.WaitGroup
	wg.Go(func() {
		if n, err := c.Wait(testContext(t), make([]Completion, 1)); n != 0 || !errors.Is(err, gpuerr.Closed) {
			t.Errorf("Wait() = %d, %v", n, err)
		}
	})
	for end := time.Now().Add(longEnough); s.view.cqWait.Load() == awake; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the client does not ask to be woken")
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	e := NopEntry(0)
	if err := c.Push(&e, nil, nil); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Push() = %v", err)
	}
	if err := c.Flush(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Flush() = %v", err)
	}
	if _, err := c.Poll(make([]Completion, 1)); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Poll() = %v", err)
	}
	if n := c.Free(); n != 0 {
		t.Errorf("Free() = %d", n)
	}
}

// TestDriverDies: a driver that goes without a word wakes the waiting client.
func TestDriverDies(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	push(t, c, NopEntry(0), nil, nil)
	flush(t, c)
	died := make(chan struct{})
	go func() { // what the kernel does to a killed process
		defer close(died)
		s.mu.Lock()
		s.err, s.closed = errTail, true
		s.releaseAll()
		s.mu.Unlock()
	}()
	if n, err := c.Wait(testContext(t), make([]Completion, 1)); n != 0 || !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Wait() = %d, %v", n, err)
	}
	<-died
	push(t, c, NopEntry(0), nil, nil)
	if err := c.Flush(); err != nil {
		t.Errorf("Flush() = %v", err)
	}
}

// TestCloseAtAnyTime closes both ends while everything is in use: the driver's also while the
// client pushes, the client's while it waits.
func TestCloseAtAnyTime(t *testing.T) {
	leakcheck.Check(t)
	for i := range 200 {
		s, c := pair(t, 8, 1024)
		var wg sync.WaitGroup
		wg.Go(func() { drive(testContext(t), s) })
		loaded := make(chan error, 1)
		go func() { loaded <- load(testContext(t), c, 1<<40) }()
		for range i * 10 {
			if c.Err() != nil {
				t.Fatal("the ring has ended by itself")
			}
			s.Marks()
			s.Published()
		}
		s.Close(gpuerr.Revoked)
		if err := <-loaded; !errors.Is(err, gpuerr.Revoked) {
			t.Errorf("the client is told %v", err)
		}
		wg.Wait()

		s, c = pair(t, 8, 1024)
		wg.Go(func() {
			if _, err := c.Wait(testContext(t), make([]Completion, 1)); !errors.Is(err, gpuerr.Closed) {
				t.Errorf("Wait() = %v", err)
			}
		})
		for range i * 10 {
			c.Err()
		}
		c.Close()
		wg.Wait()
	}
}
