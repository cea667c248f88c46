package shm

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func newEvents(t testing.TB) (a, b *Event) {
	t.Helper()
	a, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := a.DupFD()
	if err != nil {
		t.Fatal(err)
	}
	b, err = newEvent(fd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	return a, b
}

func TestEvent(t *testing.T) {
	leakcheck.Check(t)
	a, b := newEvents(t)
	for range 3 {
		if err := a.Signal(); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := b.Wait(testContext(t)); n != 3 || err != nil {
		t.Errorf("Wait() = %d, %v", n, err)
	}
	woken := make(chan uint64)
	go func() {
		n, err := b.Wait(testContext(t))
		if err != nil {
			t.Error(err)
		}
		woken <- n
	}()
	if err := a.Signal(); err != nil {
		t.Fatal(err)
	}
	if n := <-woken; n != 1 {
		t.Errorf("Wait() = %d", n)
	}
}

// TestEventPeerClearsNonblock: the flags of an eventfd belong to all its
// holders; Wait neither blocks a thread on it nor holds up Close.
func TestEventPeerClearsNonblock(t *testing.T) {
	leakcheck.Check(t)
	a, b := newEvents(t)
	if err := unix.SetNonblock(b.FD(), false); err != nil {
		t.Fatal(err)
	}
	// The wait begins before its time is up, and a blocked thread outlasts it.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := a.Wait(ctx)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != context.DeadlineExceeded {
			t.Errorf("Wait() = %v", err)
		}
	case <-time.After(patience / 4):
		b.Signal() // lets the test end
		t.Fatal("a peer blocks Wait by clearing O_NONBLOCK")
	}
	go func() {
		_, err := a.Wait(context.Background())
		ended <- err
	}()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Wait() = %v", err)
	}
}

func TestEventCancelLosesNothing(t *testing.T) {
	leakcheck.Check(t)
	a, b := newEvents(t)
	const rounds = 3000
	var got uint64
	for range rounds {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(cancel)
		wg.Go(func() {
			if err := a.Signal(); err != nil {
				t.Error(err)
			}
		})
		n, err := b.Wait(ctx)
		if err != nil && err != context.Canceled {
			t.Fatal(err)
		}
		got += n
		wg.Wait()
	}
	if got < rounds {
		n, err := b.Wait(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if got != rounds {
		t.Errorf("%d signals, %d arrived", rounds, got)
	}
}

func TestEventOverflow(t *testing.T) {
	leakcheck.Check(t)
	a, b := newEvents(t)
	full := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(b.FD(), full); err != nil {
		t.Fatal(err)
	}
	if err := a.Signal(); err != nil {
		t.Errorf("Signal() of a full counter: %v", err)
	}
	if n, err := b.Wait(testContext(t)); n != math.MaxUint64-1 || err != nil {
		t.Errorf("Wait() = %d, %v", n, err)
	}
}
