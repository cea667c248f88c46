package ring

import (
	"context"
	"sync"
	"testing"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/outcome"
)

// asleep waits until a WaitWork of s has armed its flag.
func asleep(t *testing.T, s *Server) {
	t.Helper()
	if !spin(func() bool { return s.view.sqWait.Load() != awake }) {
		t.Fatal("the driver does not go to sleep")
	}
}

// A ring that is watched asks for no wake, and one that no longer is does again.
func TestWatch(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	woken := make(chan error, 1)
	go func() { woken <- s.WaitWork(context.Background()) }()
	asleep(t, s)
	see := func(got, want Sight) {
		t.Helper()
		if got != want {
			t.Fatalf("saw %d, want %d", got, want)
		}
	}
	fd := s.work.(*shm.Receiver).FD()
	for i := range uint64(10) {
		see(s.Watch(), Nothing)
		push(t, c, SignalEntry(i, 1, 1), nil, nil)
		flush(t, c)
		if n := wakesPending(t, fd); n != 0 {
			t.Fatalf("%d wakes of a ring that is watched", n)
		}
		see(s.Watch(), Entries)
		take(t, s)
		s.Consumed()
		s.Complete(&Completion{UserData: i, Outcome: outcome.Success})
		s.Flush()
		var out [1]Completion
		if n, err := c.Poll(out[:]); n != 1 || err != nil {
			t.Fatalf("Poll() = %d, %v", n, err)
		}
	}
	if len(woken) > 0 {
		t.Fatal("the driver was woken")
	}
	push(t, c, SignalEntry(10, 1, 1), nil, nil)
	flush(t, c)
	see(s.Resign(), Entries) // which nobody else is told of
	see(s.Resign(), Nothing)
	see(s.Watch(), Entries)
	take(t, s)
	see(s.Resign(), Nothing)
	push(t, c, SignalEntry(11, 1, 1), nil, nil)
	flush(t, c)
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	s.Unwatch()
	take(t, s)
}

// A WaitWork that is woken for nothing while the ring is watched does not ask for a wake.
func TestWatchOutlivesAStrayWake(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.WaitWork(context.Background()); gpuerr.CodeOf(err) != gpuerr.Closed {
			t.Errorf("WaitWork() = %v", err)
		}
	})
	asleep(t, s)
	if see := s.Watch(); see != Nothing {
		t.Fatalf("saw %d", see)
	}
	for range 100 {
		if err := c.signal(); err != nil {
			t.Fatal(err)
		}
		if !spin(func() bool { return wakesPending(t, s.work.(*shm.Receiver).FD()) == 0 }) {
			t.Fatal("nobody reads the pipe")
		}
		if want := s.view.sqWait.Load(); want != awake {
			t.Fatalf("sqWait = %d", want)
		}
	}
	s.Close(gpuerr.Closed)
	wg.Wait()
}

// Rings that nobody is to watch: one whose client must take completions, one of a client
// that broke the rules, one that was closed.
func TestWatchNot(t *testing.T) {
	s, c := pair(t, 2, 64)
	for i := range uint64(5) {
		push(t, c, SignalEntry(i, 1, 1), nil, nil)
		flush(t, c)
		if i < 4 {
			take(t, s)
			s.Consumed()
			s.Complete(&Completion{UserData: i, Outcome: outcome.Success})
			s.Flush()
		}
	}
	if see := s.Watch(); see != Full {
		t.Errorf("a full ring: saw %d", see)
	}
	s.takeMu.Lock()
	if s.watched {
		t.Error("a full ring is watched")
	}
	s.takeMu.Unlock()
	s, _ = pair(t, 2, 64)
	if see := s.Watch(); see != Nothing {
		t.Errorf("an empty ring: saw %d", see)
	}
	s.view.sqTail.Store(9)
	if see := s.Watch(); see != Ended {
		t.Errorf("a client that lies: saw %d", see)
	}
	if see := s.Resign(); see != Ended {
		t.Errorf("of a client that lies: Resign() = %d", see)
	}
	s, _ = pair(t, 2, 64)
	s.Close(gpuerr.Closed)
	if see := s.Watch(); see != Ended {
		t.Errorf("a closed ring: saw %d", see)
	}
	if see := s.Resign(); see != Nothing {
		t.Errorf("of a closed ring that nobody watches: Resign() = %d", see)
	}
	s.Unwatch()
}

// TestNoLostWakeWhileWatched: the driver sleeps in WaitWork, and somebody else watches,
// serves and resigns, all the time.
func TestNoLostWakeWhileWatched(t *testing.T) {
	leakcheck.Check(t)
	rounds := uint64(50_000)
	if raceEnabled || testing.Short() {
		rounds = 5_000
	}
	s, c := pair(t, 4, 64)
	var serving sync.Mutex // see package gpu
	var e Entry
	serve := func() error {
		for {
			ok, err := s.Take(&e)
			if !ok || err != nil {
				return err
			}
			s.Consumed()
			s.Complete(&Completion{UserData: e.UserData, Outcome: outcome.Success})
			s.Flush()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			err := s.WaitWork(context.Background())
			serving.Lock()
			s.Unwatch()
			if err == nil {
				err = serve()
			}
			serving.Unlock()
			if err != nil {
				return
			}
		}
	})
	wg.Go(func() {
		for i := uint64(0); ; i++ {
			serving.Lock()
			see := s.Watch()
			if see == Entries {
				if serve() != nil {
					see = Ended
				}
			}
			if i%3 == 0 && see != Ended {
				for see = s.Resign(); see == Entries; see = s.Resign() {
					if serve() != nil {
						see = Ended
						break
					}
					s.Watch()
				}
			}
			serving.Unlock()
			if see == Ended {
				return
			}
			hesitate(i)
		}
	})
	out := make([]Completion, 4)
	for i := range rounds {
		push(t, c, SignalEntry(i, 1, 1), nil, nil)
		flush(t, c)
		if !spin(func() bool { n, err := c.Poll(out); return n > 0 || err != nil }) {
			t.Fatalf("round %d: nobody sees the entry", i)
		}
	}
	s.Close(gpuerr.Closed)
	wg.Wait()
}
