package control

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestConnSendRecv(t *testing.T) {
	leakcheck.Check(t)
	c, fd := pair(t, anyFDs)
	peer := newConn(t, fd)
	sent := memfd(t)
	for i := range samples {
		s := &samples[i]
		m := &Message{Type: s.typ, Reply: s.reply, Seq: uint64(i + 1), Body: s.body.AppendTo(nil)}
		if i%2 == 0 {
			m.FDs = []int{sent, sent}
		}
		if err := c.Send(testContext(t), m); err != nil {
			t.Fatal(err)
		}

		got, err := peer.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got.Type != m.Type || got.Reply != m.Reply || got.Seq != m.Seq || string(got.Body) != string(m.Body) || len(got.FDs) != len(m.FDs) {
			t.Fatalf("sent %+v, received %+v", m, got)
		}

		for _, fd := range got.FDs {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor %d: flags %#x, %v; want close-on-exec", fd, flags, err)
			}
		}

		got.CloseFDs()
		got.CloseFDs()
	}

	cred, err := c.PeerCred()
	if err != nil || int(cred.Pid) != unix.Getpid() {
		t.Errorf("PeerCred() = %+v, %v", cred, err)
	}
}

func TestConnRefusesToSend(t *testing.T) {
	leakcheck.Check(t)
	c, fd := pair(t, anyFDs)
	defer unix.Close(fd)

	for name, m := range map[string]*Message{
		"seq 0":            {Type: TypePing},
		"type 0":           {Seq: 1},
		"reply bit":        {Type: TypePing | replyBit, Seq: 1},
		"too long":         {Type: TypePing, Seq: 1, Body: make([]byte, MaxMessageBytes)},
		"long status":      {Type: TypeStatus, Seq: 1, Body: make([]byte, MaxMessageBytes)},
		"five descriptors": {Type: TypePing, Seq: 1, FDs: []int{0, 0, 0, 0, 0}},
		"code":             {Type: TypePing, Seq: 1, Code: gpuerr.Stale},
	} {
		if err := c.Send(testContext(t), m); !errors.Is(err, gpuerr.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConnRecvRefuses(t *testing.T) {
	ping := encode(t, &Message{Type: TypePing, Seq: 5})
	withFDs := func(n int) []byte {
		return encode(t, &Message{Type: TypePing, Seq: 5, FDs: make([]int, n)})
	}

	fd := memfd(t)
	for _, c := range []struct {
		name string
		b    []byte
		fds  []int
	}{
		{"oversized", append(ping[:len(ping):len(ping)], make([]byte, 3*MaxMessageBytes)...), nil},
		{"oversized with descriptors", append(ping[:len(ping):len(ping)], make([]byte, 3*MaxMessageBytes)...), []int{fd}},
		{"fewer descriptors than announced", withFDs(2), []int{fd}},
		{"unannounced descriptors", ping, []int{fd, fd}},
		{"five descriptors", withFDs(4), []int{fd, fd, fd, fd, fd}},
		{"hundred descriptors", withFDs(4), repeat(fd, 100)},
		{"short with descriptors", []byte{1}, []int{fd}},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakcheck.Check(t)
			conn, peer := pair(t, anyFDs)
			defer unix.Close(peer)
			rawSend(t, peer, c.b, c.fds...)
			if m, err := conn.Recv(); !errors.Is(err, gpuerr.Protocol) {
				t.Errorf("Recv() = %+v, %v", m, err)
			}
			// An error in one datagram does not affect the next.
			rawSend(t, peer, ping)
			if m, err := conn.Recv(); err != nil || m.Type != TypePing {
				t.Errorf("Recv() = %+v, %v", m, err)
			}
		})
	}
}

func repeat(fd, n int) []int {
	fds := make([]int, n)
	for i := range fds {
		fds[i] = fd
	}
	return fds
}

func TestConnEnds(t *testing.T) {
	leakcheck.Check(t)
	c, peer := pair(t, anyFDs)
	if err := unix.Close(peer); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(); err != io.EOF {
		t.Errorf("Recv() of a gone peer: %v", err)
	}
	if err := c.Send(testContext(t), &Message{Type: TypePing, Seq: 1}); !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Send() to a gone peer: %v", err)
	}

	// An empty datagram counts as the end.
	c, peer = pair(t, anyFDs)
	defer unix.Close(peer)
	rawSend(t, peer, nil)
	if _, err := c.Recv(); err != io.EOF {
		t.Errorf("Recv() of an empty datagram: %v", err)
	}

	c, peer = pair(t, anyFDs)
	defer unix.Close(peer)
	received := make(chan error)
	go func() {
		_, err := c.Recv()
		received <- err
	}()

	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-received; !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Recv() of a closed Conn: %v", err)
	}
	if err := c.Send(testContext(t), &Message{Type: TypePing, Seq: 1}); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("Send() of a closed Conn: %v", err)
	}
	if _, err := c.PeerCred(); !errors.Is(err, gpuerr.Closed) {
		t.Errorf("PeerCred() of a closed Conn: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestNewConnTakesSeqpacketOnly(t *testing.T) {
	leakcheck.Check(t)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	for _, fd := range []int{fds[0], -1} {
		if _, err := NewConn(fd, anyFDs); !errors.Is(err, gpuerr.Protocol) {
			t.Errorf("NewConn(%d): %v", fd, err)
		}
	}
}

// fill sends until the socket takes no more, and returns the error that stopped it.
func fill(ctx context.Context, c *Conn) error {
	for seq := uint64(1); ; seq++ {
		if err := c.Send(ctx, &Message{Type: TypeStatus, Reply: true, Seq: seq, Body: make([]byte, 60_000)}); err != nil {
			return err
		}
	}
}

func TestConnDropsPeerThatNeverReads(t *testing.T) {
	leakcheck.Check(t)
	c, peer := pair(t, ConnOptions{WriteTimeout: 50 * time.Millisecond})
	defer unix.Close(peer)
	var wg sync.WaitGroup
	for range 4 { // one of them fails itself, the others learn of it
		wg.Go(func() {
			if err := fill(testContext(t), c); !errors.Is(err, gpuerr.Disconnected) {
				t.Errorf("Send() = %v, want E_DISCONNECTED", err)
			}
		})
	}
	wg.Wait()
	if _, err := c.Recv(); !errors.Is(err, gpuerr.Disconnected) {
		t.Errorf("Recv() of a dropped peer: %v", err)
	}
}

func TestConnSendCancelled(t *testing.T) {
	leakcheck.Check(t)
	c, peer := pair(t, anyFDs)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- fill(ctx, c) }()
	awaitFull(t, c)
	cancel()
	if err := <-stopped; err != context.Canceled {
		t.Errorf("Send() = %v, want context.Canceled", err)
	}

	// The Conn is intact: the peer reads, and the next message goes through.
	p := newConn(t, peer)
	p.expectLong()
	sent := make(chan error)
	go func() { sent <- c.Send(testContext(t), &Message{Type: TypePing, Seq: 1}) }()
	for {
		m, err := p.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == TypePing {
			break
		}
	}

	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// awaitFull waits until the socket takes no more.
func awaitFull(t *testing.T, c *Conn) {
	t.Helper()
	full := false
	for deadline := time.Now().Add(patience); !full && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		c.raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(p, 0)
			full = err == nil && n == 0
		})
	}
	if !full {
		t.Fatal("the socket never filled")
	}
}

func TestConnConcurrentSend(t *testing.T) {
	leakcheck.Check(t)
	c, fd := pair(t, anyFDs)
	peer := newConn(t, fd)
	const senders, each = 8, 200
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				seq := uint64(s*each + i + 1)
				if err := c.Send(testContext(t), &Message{Type: TypeStatus, Reply: true, Seq: seq, Body: appendU64(nil, seq)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	seen := map[uint64]bool{}
	for range senders * each {
		m, err := peer.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Body) != string(appendU64(nil, m.Seq)) || seen[m.Seq] {
			t.Fatalf("message %d was torn or doubled: %x", m.Seq, m.Body)
		}
		seen[m.Seq] = true
	}

	wg.Wait()
}
