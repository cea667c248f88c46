package control

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// asBefore616 makes c's socket that of a kernel without SO_PASSRIGHTS, on which a
// sender can attach descriptors that the receiver does not want.
func asBefore616(t *testing.T, c *Conn) {
	t.Helper()
	err := c.raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1) })
	if err != nil {
		t.Fatal(err)
	}
}

// closeProbe is a file that detects whether this process has closed a descriptor of
// it. POSIX locks are released when any descriptor of the file is closed
// (filp_close, the call that waits for a FUSE daemon). They stay when the kernel
// merely drops a reference in transit.
type closeProbe struct {
	t     *testing.T
	fd    int // to be sent
	other int // another opening, to ask through
}

func newCloseProbe(t *testing.T) *closeProbe {
	t.Helper()
	path := filepath.Join(t.TempDir(), "probe")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	p := &closeProbe{t: t}
	for _, fd := range []*int{&p.other, &p.fd} {
		var err error
		if *fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	}

	t.Cleanup(func() {
		unix.Close(p.fd)
		unix.Close(p.other)
	})

	if err := unix.FcntlFlock(uintptr(p.fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1}); err != nil {
		t.Fatal(err)
	}

	return p
}

func (p *closeProbe) closed() bool {
	p.t.Helper()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if err := unix.FcntlFlock(uintptr(p.other), unix.F_OFD_GETLK, &lock); err != nil {
		p.t.Fatal(err)
	}
	return lock.Type == unix.F_UNLCK
}

// pipe returns the ends of a pipe; the test closes the reading one.
func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p[0]) })
	return p[0], p[1]
}

// hungUp reports whether all writing ends are closed.
func hungUp(r int) bool {
	var b [1]byte
	n, err := unix.Read(r, b[:])
	return n == 0 && err == nil
}

var anAttach = AttachRequest{Session: 1, Tenant: "a"}.AppendTo(nil)

var strangers = []struct {
	name string
	m    Message // FDs: as many as are announced
	sent int
	want gpuerr.Code // of the answer; None: none comes
	ends bool
}{
	{"one of no type", Message{Type: 999, Seq: 5, FDs: []int{0}}, 1, gpuerr.Unimplemented, false},
	{"four of no type", Message{Type: 999, Seq: 5, FDs: []int{0, 0, 0, 0}}, 4, gpuerr.Unimplemented, false},
	{"hundred", Message{Type: 999, Seq: 5, FDs: []int{0, 0, 0, 0}}, 100, gpuerr.Unimplemented, false},
	{"where one belongs", Message{Type: TypeAttach, Seq: 5, Body: anAttach, FDs: []int{0}}, 1, gpuerr.Unimplemented, false},
	{"where none belongs", Message{Type: TypePing, Seq: 5, FDs: []int{0}}, 1, gpuerr.Protocol, true},
	{"unannounced", Message{Type: TypePing, Seq: 5}, 1, gpuerr.Protocol, true},
	{"unannounced, of no type", Message{Type: 999, Seq: 5}, 1, gpuerr.Protocol, true},
	{"announced, not sent", Message{Type: TypeAttach, Seq: 5, Body: anAttach, FDs: []int{0}}, 0, gpuerr.Protocol, true},
	{"a reply", Message{Type: TypeOpenDevice, Reply: true, Seq: 5, Body: appendU64(nil, 9), FDs: []int{0}}, 1, gpuerr.None, true},
}

// A descriptor in a message that has none by its type never enters this process,
// not even for a moment, because its close may never return (see rights.go).
func TestStrangersDescriptorsAreNeverInstalled(t *testing.T) {
	for _, s := range strangers {
		t.Run(s.name, func(t *testing.T) {
			leakcheck.Check(t)
			probe := newCloseProbe(t)
			r, w := pipe(t)
			c, fd := pair(t, ConnOptions{})
			asBefore616(t, c)
			peer := newConn(t, fd)
			fds := append([]int{w}, repeat(probe.fd, max(0, s.sent-1))...)[:s.sent]
			if s.sent == 1 {
				fds[0] = probe.fd
			}

			rawSend(t, fd, encode(t, &s.m), fds...)
			unix.Close(w)
			before := leakcheck.Descriptors()
			result := make(chan error, 1)
			inside := 0
			go func() {
				result <- Serve(testContext(t), c, func(ctx context.Context, m *Message) *Message {
					inside += len(m.FDs)
					return okHandler(ctx, m)
				})
			}()

			m, err := peer.Recv()
			if s.want != gpuerr.None {
				if err != nil || m.Code != s.want || m.Seq != 5 {
					t.Fatalf("Recv() = %+v, %v; want %v", m, err, s.want)
				}
				if !s.ends {
					if n := leakcheck.Descriptors(); n != before {
						t.Errorf("%d descriptors are open; %d were", n, before)
					}
					if m := ask(t, peer, &Message{Type: TypePing, Seq: 6}); m.Code != gpuerr.None {
						t.Errorf("the next request: %v", m.Err())
					}
					peer.Close()
				} else {
					_, err = peer.Recv()
				}
			}

			if s.ends && err != io.EOF {
				t.Errorf("Recv() = %v; want the end", err)
			}
			if err := await(t, result); errors.Is(err, gpuerr.Protocol) != s.ends {
				t.Errorf("Serve() = %v", err)
			}
			if inside != 0 {
				t.Error("a handler saw a descriptor")
			}
			if probe.closed() {
				t.Error("a descriptor was installed and closed")
			}
			if !hungUp(r) {
				t.Error("a descriptor that was sent is still held")
			}
		})
	}
}

// The probe of the test above detects an installed descriptor.
func TestCloseProbe(t *testing.T) {
	probe := newCloseProbe(t)
	if probe.closed() {
		t.Fatal("closed before it was sent")
	}
	c, fd := pair(t, anyFDs)
	defer unix.Close(fd)
	rawSend(t, fd, encode(t, &Message{Type: TypePing, Seq: 1}), probe.fd)
	if m, err := c.Recv(); !errors.Is(err, gpuerr.Protocol) {
		t.Fatalf("Recv() = %+v, %v", m, err)
	}
	if !probe.closed() {
		t.Error("the probe does not see a close")
	}
}

// On a kernel that can refuse it, the descriptor does not even leave the sender.
func TestKernelRefusesTheSender(t *testing.T) {
	leakcheck.Check(t)
	c, fd := pair(t, ConnOptions{})
	peer := newConn(t, fd)
	on := -1
	c.raw.Control(func(fd uintptr) { on, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSRIGHTS) })
	if on < 0 {
		t.Skip("this kernel has no SO_PASSRIGHTS")
	}
	if on != 0 {
		t.Fatal("SO_PASSRIGHTS is on")
	}

	m := &Message{Type: TypeAttach, Seq: 1, Body: anAttach, FDs: []int{memfd(t)}}
	if err := peer.Send(testContext(t), m); !errors.Is(err, gpuerr.Unimplemented) {
		t.Errorf("Send() = %v", err)
	}

	// Nothing was sent, and a message without a descriptor goes through.
	if err := peer.Send(testContext(t), &Message{Type: TypePing, Seq: 2}); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Recv(); err != nil || m.Seq != 2 {
		t.Errorf("Recv() = %+v, %v", m, err)
	}
}

// exhaust uses up the descriptors of this process until the test ends or undo is
// called.
func exhaust(t *testing.T) (undo func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}

	low := limit
	low.Cur = 100
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &low, nil); err != nil {
		t.Fatal(err)
	}

	var filled []int
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			break
		}
		filled = append(filled, fd)
	}

	done := false
	undo = func() {
		if done {
			return
		}
		done = true
		closeAll(filled)
		if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			t.Error(err)
		}
	}

	t.Cleanup(undo)
	return undo
}

// A side without room for a descriptor refuses that one message; the link stays.
func TestNoRoomForDescriptors(t *testing.T) {
	leakcheck.Check(t)
	socket := memfd(t)
	var handled atomic.Bool
	fd, result := serve(t, func(ctx context.Context, m *Message) *Message {
		handled.CompareAndSwap(false, m.Type == TypeAttach)
		return okHandler(ctx, m)
	})

	peer := newConn(t, fd)
	attach := &Message{Type: TypeAttach, Seq: 5, Body: anAttach, FDs: []int{socket}}
	undo := exhaust(t)
	m := ask(t, peer, attach)
	undo()
	if m.Code != gpuerr.IO || m.Seq != 5 || handled.Load() {
		t.Errorf("answered %+v (%v), handled: %v", m, m.Err(), handled.Load())
	}
	if m := ask(t, peer, attach); m.Code != gpuerr.None || !handled.Load() {
		t.Errorf("with room: %v", m.Err())
	}

	peer.Close()
	if err := await(t, result); err != nil {
		t.Errorf("Serve() = %v", err)
	}
}

func TestNoRoomForARepliesDescriptors(t *testing.T) {
	leakcheck.Check(t)
	c, fd := pair(t, anyFDs)
	peer := newConn(t, fd)
	k := NewCaller(c)
	defer k.Close()

	socket := memfd(t)
	call := func() (*Message, error) {
		type result struct {
			m   *Message
			err error
		}

		got := make(chan result, 1)
		go func() {
			m, err := k.Call(testContext(t), TypeOpenDevice, OpenDeviceRequest{}.AppendTo(nil), nil)
			got <- result{m, err}
		}()

		m, err := peer.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if err := peer.Send(testContext(t), NewReply(m, appendU64(nil, 1), socket)); err != nil {
			t.Fatal(err)
		}

		r := <-got
		return r.m, r.err
	}

	undo := exhaust(t)
	m, err := call()
	undo()
	if !errors.Is(err, gpuerr.IO) {
		t.Errorf("Call() = %+v, %v", m, err)
	}
	if m, err = call(); err != nil || len(m.FDs) != 1 {
		t.Fatalf("with room: %+v, %v", m, err)
	}

	m.CloseFDs()
}
