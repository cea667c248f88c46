package ring

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/outcome"
)

// TestArm: a ring with something to take is not armed, any other asks for one wake, and
// what woke it is taken by Drain.
func TestArm(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 2, 64)
	b := NewBatch(0)
	expect := func(want bool, flag uint32) {
		t.Helper()
		ready, err := s.Arm()
		if ready != want || err != nil || s.view.sqWait.Load() != flag {
			t.Fatalf("Arm() = %v, %v with sqWait %d; want %v, %d", ready, err, s.view.sqWait.Load(), want, flag)
		}
	}
	send := func(n int) {
		t.Helper()
		for range n {
			push(t, c, NopEntry(1), nil, nil)
		}
		flush(t, c)
	}
	takeAll := func(want int) {
		t.Helper()
		if n, err := s.TakeMany(b, BatchEntries); n != want || err != nil {
			t.Fatalf("TakeMany() = %d, %v; want %d", n, err, want)
		}
	}

	expect(false, waitEntries)
	expect(false, waitEntries) // once more is as good
	send(1)
	if n := wakesPending(t, s.Doorbell()); n != 1 || s.view.sqWait.Load() != awake {
		t.Fatalf("%d wakes, sqWait %d", n, s.view.sqWait.Load())
	}
	expect(true, awake)
	takeAll(1)
	if err := s.Drain(); err != nil || wakesPending(t, s.Doorbell()) != 0 {
		t.Fatal("Drain() leaves a wake:", err)
	}
	if err := s.Drain(); err != nil {
		t.Fatal("Drain() of an empty doorbell:", err)
	}

	// A driver that is awake is not woken.
	expect(false, waitEntries)
	if err := s.Disarm(); err != nil {
		t.Fatal(err)
	}
	send(1)
	takeAll(1)
	if n := wakesPending(t, s.Doorbell()); n != 0 {
		t.Fatalf("%d wakes of a driver that is awake", n)
	}

	// Without room for completions it waits for that.
	s.Publish(make([]Completion, 0))
	send(2)
	takeAll(2)
	s.CompleteMany([]Completion{{Outcome: outcome.Success}, {Outcome: outcome.Success}})
	s.Flush()
	send(1)
	if s.Ready() {
		t.Fatal("Ready() without a free completion")
	}
	takeAll(0)
	expect(false, waitCompletions)
	send(1)
	if n := wakesPending(t, s.Doorbell()); n != 0 {
		t.Fatalf("%d wakes for entries that cannot be taken", n)
	}
	if n, err := c.Poll(make([]Completion, 2)); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n := wakesPending(t, s.Doorbell()); n != 1 || !s.Ready() {
		t.Fatalf("%d wakes when there is room, Ready() = %v", n, s.Ready())
	}
	expect(true, awake)
	takeAll(1) // that it had seen
	takeAll(1)
}

// TestArmHungUp: a client that closes its end ends nothing: what it published is taken, and
// then there is nobody left to ask.
func TestArmHungUp(t *testing.T) {
	leakcheck.Check(t)
	s, c := pair(t, 4, 64)
	if ready, err := s.Arm(); ready || err != nil {
		t.Fatal(ready, err)
	}
	push(t, c, NopEntry(1), nil, nil)
	flush(t, c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	fds := []unix.PollFd{{Fd: int32(s.Doorbell()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n != 1 || err != nil || fds[0].Revents != unix.POLLIN|unix.POLLHUP {
		t.Fatalf("poll(2) sees %#x, %v", fds[0].Revents, err)
	}
	if err := s.Drain(); err != nil { // of the wake
		t.Fatal(err)
	}
	if err := s.Drain(); !errors.Is(err, gpuerr.Disconnected) {
		t.Fatalf("Drain() = %v", err)
	}
	if ready, err := s.Arm(); !ready || err != nil {
		t.Fatalf("Arm() beside an entry = %v, %v", ready, err)
	}
	if n, err := s.TakeMany(NewBatch(0), 4); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if ready, err := s.Arm(); ready || !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Arm() = %v, %v", ready, err)
	}
	if err := s.Disarm(); !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Disarm() = %v", err)
	}
	s.Publish([]Completion{{Outcome: outcome.Success}})

	s.Close(gpuerr.Revoked)
	if fd := s.Doorbell(); fd != -1 {
		t.Errorf("Doorbell() of a closed ring = %d", fd)
	}
	if err := s.Drain(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Drain() of a closed ring = %v", err)
	}
	for range 2 {
		if _, err := s.Arm(); !errors.Is(err, gpuerr.Revoked) {
			t.Errorf("Arm() of a closed ring = %v", err)
		}
		if err := s.Disarm(); !errors.Is(err, gpuerr.Revoked) {
			t.Errorf("Disarm() of a closed ring = %v", err)
		}
	}
}

// serveRings is one goroutine for many rings, which sleeps on all doorbells at once. It
// returns when all have ended.
func serveRings(t *testing.T, servers []*Server) {
	b, done := NewBatch(0), make([]Completion, BatchEntries)
	live := append([]*Server(nil), servers...)
	for len(live) > 0 {
		worked := false
		for i := len(live) - 1; i >= 0; i-- {
			s := live[i]
			if !s.Ready() {
				continue
			}
			n, err := s.TakeMany(b, BatchEntries)
			if err != nil {
				if !errors.Is(err, gpuerr.Closed) {
					t.Errorf("TakeMany() = %v", err)
				}
				live = append(live[:i], live[i+1:]...)
				continue
			}
			for j := range b.Entries {
				done[j] = Completion{UserData: b.Entries[j].UserData, Outcome: outcome.Success}
			}
			s.Publish(done[:n])
			worked = worked || n > 0
		}
		if worked {
			continue
		}

		var fds []unix.PollFd
		ready := false
		for _, s := range live {
			armed, err := s.Arm()
			if ready = armed || err != nil; ready {
				break
			}
			fds = append(fds, unix.PollFd{Fd: int32(s.Doorbell()), Events: unix.POLLIN})
		}
		if !ready {
			// Close from elsewhere is no wake of this goroutine: here it only looks again.
			if _, err := unix.Poll(fds, 20); err != nil && err != unix.EINTR {
				t.Error(err)
				return
			}
		}
		for i := range fds {
			if fds[i].Revents != 0 {
				if err := live[i].Drain(); err != nil && !errors.Is(err, gpuerr.Closed) {
					t.Error(err)
				}
			}
			if err := live[i].Disarm(); err != nil && !errors.Is(err, gpuerr.Closed) {
				t.Error(err)
			}
		}
	}
}

// TestManyRingsOneGoroutine: one goroutine serves many rings, no client waits for a wake that
// was lost, and none waits because of another that collects nothing.
func TestManyRingsOneGoroutine(t *testing.T) {
	leakcheck.Check(t)
	const rings = 8
	rounds := uint64(20_000)
	if raceEnabled || testing.Short() {
		rounds = 2_000
	}
	servers, clients := make([]*Server, rings), make([]*Client, rings)
	for i := range servers {
		servers[i], clients[i] = pair(t, 8, 64)
	}
	var driver, users sync.WaitGroup
	driver.Go(func() { serveRings(t, servers) })

	lazy := clients[rings-1] // it fills its ring, and collects nothing
	users.Go(func() {
		for sent := 0; sent < 8+16; {
			e := NopEntry(0)
			if lazy.Push(&e, nil, nil) == nil {
				sent++
			}
			if err := lazy.Flush(); err != nil {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
	})
	for i, c := range clients[:rings-1] {
		users.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			out := make([]Completion, 8)
			for sent, got := uint64(0), uint64(0); got < rounds; {
				for n := r.IntN(8); n >= 0 && sent < rounds; n-- {
					e := NopEntry(sent)
					if c.Push(&e, nil, nil) != nil {
						break
					}
					sent++
				}
				if err := c.Flush(); err != nil {
					t.Error(err)
					return
				}
				if r.IntN(4) == 0 {
					impatient(c)
				}
				n, err := c.Wait(testContext(t), out)
				if err != nil {
					t.Errorf("ring %d, %d of %d: %v", i, got, rounds, err)
					return
				}
				for _, d := range out[:n] {
					if d.UserData != got {
						t.Errorf("ring %d: completion %d is of %d", i, got, d.UserData)
					}
					got++
				}
			}
		})
	}
	users.Wait()
	if n := servers[rings-1].Published(); n != 8 {
		t.Errorf("%d entries of the ring that collects nothing are left", n)
	}
	for _, s := range servers {
		s.Close(gpuerr.Closed)
	}
	ended := make(chan struct{})
	go func() { driver.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(longEnough):
		t.Fatal("the driver does not see that its rings have ended")
	}
}

// Ready says true whenever Arm does, or a driver that asks both goes round and round: also
// for a client that takes its tail back to where entries were taken up to.
func TestReadyAgreesWithArm(t *testing.T) {
	s, c := pair(t, 16, 64)
	for i := range uint64(3) {
		push(t, c, NopEntry(i), nil, nil)
	}
	flush(t, c)
	b := NewBatch(0)
	if n, err := s.TakeMany(b, 1); n != 1 || err != nil {
		t.Fatalf("TakeMany = %d, %v", n, err)
	}
	c.view.sqTail.Store(1)
	if ready, err := s.Arm(); !ready || err != nil || !s.Ready() {
		t.Fatalf("Arm = %v, %v; Ready = %v", ready, err, s.Ready())
	}
	if n, err := s.TakeMany(b, 64); n != 2 || err != nil {
		t.Fatalf("TakeMany = %d, %v", n, err)
	}
	if ready, err := s.Arm(); ready || !errors.Is(err, gpuerr.Protocol) || !s.Ready() {
		t.Fatalf("Arm = %v, %v; Ready = %v", ready, err, s.Ready())
	}
}
