package shm

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

const patience = 20 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func create(t testing.TB, n uint64) *Memory {
	t.Helper()
	m, err := Create("shm-test", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func mapAll(t testing.TB, m *Memory) []byte {
	t.Helper()
	b, err := m.Map(0, m.Size(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Unmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

func TestMemory(t *testing.T) {
	leakcheck.Check(t)
	m := create(t, 3*PageBytes-5)
	if m.Size() != 3*PageBytes {
		t.Errorf("Size() = %d", m.Size())
	}
	b := mapAll(t, m)
	if !bytes.Equal(b, make([]byte, len(b))) {
		t.Error("fresh memory is not zero")
	}
	fd, err := m.DupFD()
	if err != nil {
		t.Fatal(err)
	}
	other, err := FromFD(fd, m.Size())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	second, err := other.Map(PageBytes, PageBytes, false)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(second)
	for i := range b {
		b[i] = 0xaa
	}
	if second[0] != 0xaa {
		t.Error("the mapping is not shared")
	}
	if err := m.Punch(PageBytes, PageBytes); err != nil {
		t.Fatal(err)
	}
	if second[0] != 0 || second[PageBytes-1] != 0 || b[PageBytes-1] != 0xaa || b[2*PageBytes] != 0xaa {
		t.Error("Punch did not zero its page, or zeroed another")
	}
	// Nobody can make it smaller or larger, or seal it against writing.
	for _, n := range []int64{0, int64(4 * PageBytes)} {
		if err := unix.Ftruncate(other.FD(), n); err != unix.EPERM {
			t.Errorf("ftruncate to %d: %v", n, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(other.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); err != unix.EPERM {
		t.Errorf("a further seal: %v", err)
	}
	for _, fd := range []int{m.FD(), other.FD()} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor flags %#x, %v", flags, err)
		}
	}
}

func TestMemoryRefuses(t *testing.T) {
	leakcheck.Check(t)
	for _, n := range []uint64{0, math.MaxUint64, math.MaxInt64} {
		if _, err := Create("shm-test", n); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Create(%d): %v", n, err)
		}
	}
	m := create(t, 2*PageBytes)
	for _, r := range [][2]uint64{{1, 1}, {0, 0}, {0, 2*PageBytes + 1}, {2 * PageBytes, 1}, {PageBytes, math.MaxUint64}, {math.MaxUint64 &^ (PageBytes - 1), PageBytes}} {
		if _, err := m.Map(r[0], r[1], false); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Map(%d, %d): %v", r[0], r[1], err)
		}
	}
	for _, r := range [][2]uint64{{1, PageBytes}, {0, 1}, {0, 3 * PageBytes}, {PageBytes, math.MaxUint64 &^ (PageBytes - 1)}} {
		if err := m.Punch(r[0], r[1]); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("Punch(%d, %d): %v", r[0], r[1], err)
		}
	}
	if err := m.Punch(2*PageBytes, 0); err != nil {
		t.Errorf("an empty Punch: %v", err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Map(0, 1, false); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Map after Close: %v", err)
	}
	if err := m.Punch(0, PageBytes); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Punch after Close: %v", err)
	}
	if _, err := m.DupFD(); !errors.Is(err, gpuerr.Closed) || m.FD() != -1 {
		t.Errorf("DupFD after Close: %v, FD() = %d", err, m.FD())
	}
	if err := Unmap(nil); err != nil {
		t.Errorf("Unmap(nil): %v", err)
	}
}

// A descriptor from outside must be sealed memory of the size it claims.
func TestFromFDRefuses(t *testing.T) {
	memfd := func(flags, seals int) int {
		fd, err := unix.MemfdCreate("foreign", unix.MFD_CLOEXEC|flags)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Ftruncate(fd, int64(PageBytes)); err != nil {
			t.Fatal(err)
		}
		if seals != 0 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
				t.Fatal(err)
			}
		}
		return fd
	}
	leakcheck.Check(t)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		fd    int
		bytes uint64
	}{
		"not sealed":    {memfd(unix.MFD_ALLOW_SEALING, 0), 1},
		"not sealable":  {memfd(0, 0), 1},
		"sealed GROW":   {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_GROW), 1},
		"too small":     {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), PageBytes + 1},
		"far too small": {memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), math.MaxUint64},
		"no memory":     {null, 1},
		"no descriptor": {-1, 1},
	} {
		if _, err := FromFD(c.fd, c.bytes); !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m, err := FromFD(memfd(unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK), 1)
	if err != nil || m.Size() != PageBytes {
		t.Fatalf("FromFD of good memory: %v", err)
	}
	m.Close()
}

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
	b, err = EventFromFD(fd)
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
	for drained := false; !drained; { // many wakes are few
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		drained = r.Wait(ctx) != nil
		cancel()
	}
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
	go func() { woken <- r.Wait(testContext(t)) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Wait() without a sender: %v", err)
	}
	if err := s.Signal(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Signal() after Close: %v", err)
	}
	if err := s.Close(); err != nil || s.FD() != -1 {
		t.Errorf("second Close: %v, FD() = %d", err, s.FD())
	}
}

// TestWakePeer: what a peer does with its end does not harm this one.
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
	event := func(fd int) error { _, err := EventFromFD(fd); return err }
	sender := func(fd int) error { _, err := SenderFromFD(fd); return err }
	receiver := func(fd int) error { _, err := ReceiverFromFD(fd); return err }
	for name, c := range map[string]struct {
		take func(int) error
		fd   int
	}{
		"event: pipe": {event, r.FD()}, "event: socket": {event, a},
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
	for _, take := range []func(int) error{event, sender, receiver} {
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
