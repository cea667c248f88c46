package shm

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestWake(t *testing.T) {
	leakcheck.Check(t)
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 10_000 { // far more than the pipe holds
		if err := s.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	for { // many wakes are few
		pending, err := unix.IoctlGetInt(r.FD(), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		if pending == 0 {
			break
		}
		if err := r.Wait(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	if err := r.Wait(ctx); err != context.DeadlineExceeded {
		t.Errorf("Wait() without a wake: %v", err)
	}
	cancel()
	woken := make(chan error)
	for range 500 {
		go func() { woken <- r.Wait(testContext(t)) }()
		if err := s.Signal(); err != nil {
			t.Fatal(err)
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
	}
	r.Drain()
	go func() { woken <- r.Wait(testContext(t)) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	err = <-woken
	if err == nil { // it slept, and was woken by the end
		err = r.Wait(testContext(t))
	}
	if !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Wait() without a sender: %v", err)
	}
	if err := s.Signal(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Signal() after Close: %v", err)
	}
	if err := s.Close(); err != nil || s.FD() != -1 {
		t.Errorf("second Close: %v, FD() = %d", err, s.FD())
	}
}

// TestWakeDrain: a wait that slept leaves in the pipe what woke it, and Drain takes that.
func TestWakeDrain(t *testing.T) {
	leakcheck.Check(t)
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer r.Close()
	asleep := make(chan struct{}, 1)
	try := r.try
	r.try = func(fd uintptr) bool {
		done := try(fd)
		if !done {
			asleep <- struct{}{}
		}
		return done
	}
	signal := func() {
		t.Helper()
		if err := s.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	left := func(want int, when string) {
		t.Helper()
		if n, err := unix.IoctlGetInt(r.FD(), unix.TIOCINQ); n != want || err != nil {
			t.Fatalf("%s: %d bytes, %v; want %d", when, n, err, want)
		}
	}
	wait := func() {
		t.Helper()
		if err := r.Wait(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	woken := make(chan error)
	sleep := func(meanwhile func()) {
		t.Helper()
		go func() { woken <- r.Wait(testContext(t)) }()
		<-asleep
		meanwhile()
		signal()
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
	}

	signal()
	r.Drain()
	left(1, "a wake that nobody has slept for, after Drain")
	wait()
	left(0, "after a wait that did not sleep")

	sleep(func() {})
	left(1, "after a wait that slept")
	wait()
	left(0, "after the next wait")

	sleep(r.Drain) // which neither blocks nor takes the wake
	left(1, "after a wait that slept")
	r.Drain()
	left(0, "after Drain")
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := r.Wait(ctx); err != context.DeadlineExceeded {
		t.Errorf("Wait() without a wake: %v", err)
	}
	<-asleep
	signal()
	r.Drain() // after the wait that was given up as well
	left(0, "after Drain")

	r.Close()
	r.Drain()
}

// TestWakePeer: a peer's acts on its end do not harm this one.
func TestWakePeer(t *testing.T) {
	leakcheck.Check(t)
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fd, err := r.DupFD()
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ReceiverFromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := unix.SetNonblock(peer.FD(), false); err != nil {
		t.Fatal(err)
	}
	for range 10_000 {
		if err := s.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(); !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Signal() without a receiver: %v", err)
	}
}

func TestWakeAllocates(t *testing.T) {
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer r.Close()
	if n := testing.AllocsPerRun(100, func() {
		if s.Signal() != nil || r.Wait(context.Background()) != nil {
			t.Error("a wake failed")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A descriptor from outside must be of the kind it is taken for.
func TestKinds(t *testing.T) {
	leakcheck.Check(t)
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer r.Close()
	e, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a, b, err := Socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(a)
	defer unix.Close(b)
	sender := func(fd int) error { _, err := SenderFromFD(fd); return err }
	receiver := func(fd int) error { _, err := ReceiverFromFD(fd); return err }
	for name, c := range map[string]struct {
		take func(int) error
		fd   int
	}{
		"sender: eventfd": {sender, e.FD()}, "sender: other end": {sender, r.FD()}, "sender: socket": {sender, a},
		"receiver: eventfd": {receiver, e.FD()}, "receiver: other end": {receiver, s.FD()}, "receiver: socket": {receiver, a},
	} {
		fd, err := dupFD(c.fd)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.take(fd); !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, take := range []func(int) error{sender, receiver} {
		if err := take(-1); err == nil {
			t.Error("descriptor -1 was taken")
		}
	}
}

func TestSocketpair(t *testing.T) {
	leakcheck.Check(t)
	a, b, err := Socketpair()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(b)
	for _, word := range []string{"one", "two"} { // datagrams keep their borders
		if err := unix.Sendmsg(a, []byte(word), nil, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Close(a); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	for _, want := range []string{"one", "two", ""} {
		if n, err := unix.Read(b, buf); err != nil || string(buf[:n]) != want {
			t.Errorf("read %q, %v; want %q", buf[:max(n, 0)], err, want)
		}
	}
}

// TestReceiverErr: the end of the other side is seen at once, also before pending wakes
// are taken, and takes none.
func TestReceiverErr(t *testing.T) {
	leakcheck.Check(t)
	s, r, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Signal(); err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Errorf("Err() with a sender: %v", err)
	}
	fd, err := s.DupFD()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := r.Err(); err != nil {
		t.Errorf("Err() with a duplicate of the sender: %v", err)
	}
	closeFD(fd)
	if err := r.Err(); !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Err() without a sender: %v", err)
	}
	if err := r.Wait(context.Background()); err != nil {
		t.Errorf("Wait() with a wake pending: %v", err)
	}
	r.Close()
	if err := r.Err(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Err() after Close: %v", err)
	}
}
