package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

// serve runs Serve on one end and returns the other and Serve's result.
func serve(t testing.TB, h Handler) (fd int, result <-chan error) {
	t.Helper()
	c, fd := pair(t, anyFDs)
	done := make(chan error, 1)
	go func() { done <- Serve(testContext(t), c, h) }()
	return fd, done
}

func await(t testing.TB, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		t.Fatal("Serve does not return")
		return nil
	}
}

func okHandler(ctx context.Context, m *Message) *Message {
	defer m.CloseFDs()
	return NewReply(m, nil)
}

// ask sends one request as raw bytes and reads one reply.
func ask(t *testing.T, peer *Conn, m *Message) *Message {
	t.Helper()
	if err := peer.Send(testContext(t), m); err != nil {
		t.Fatal(err)
	}
	reply, err := peer.Recv()
	if err != nil {
		t.Fatalf("%v: %v", m.Type, err)
	}
	return reply
}

func TestServeAnswersThenCloses(t *testing.T) {
	fd := memfd(t)
	fence := FenceWaitRequest{Handle: 0, Value: 1}.AppendTo(nil)
	for _, c := range []struct {
		name   string
		b      []byte
		fds    []int
		answer bool
	}{
		{"malformed body", encode(t, &Message{Type: TypeFenceWait, Seq: 5, Body: fence}), nil, true},
		{"body where none belongs", encode(t, &Message{Type: TypePing, Seq: 5, Body: []byte{1}}), nil, true},
		{"oversized", append(encode(t, &Message{Type: TypePing, Seq: 5}), make([]byte, 2*MaxMessageBytes)...), nil, true},
		{"descriptor where none belongs", encode(t, &Message{Type: TypePing, Seq: 5, FDs: []int{0}}), []int{fd}, true},
		{"descriptor missing", encode(t, &Message{Type: TypeAttach, Seq: 5, Body: anAttach}), nil, true},
		{"surplus descriptors", encode(t, &Message{Type: TypeAttach, Seq: 5, Body: anAttach, FDs: []int{0}}), []int{fd, fd, fd}, true},
		{"unasked reply", encode(t, &Message{Type: TypePing, Reply: true, Seq: 5}), nil, false},
		{"unasked reply with descriptor", encode(t, &Message{Type: TypeOpenDevice, Reply: true, Seq: 5, FDs: []int{0}}), []int{fd}, false},
		{"no header", []byte("hello"), nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakcheck.Check(t)
			peerFD, result := serve(t, okHandler)
			peer := newConn(t, peerFD)
			rawSend(t, peerFD, c.b, c.fds...)
			m, err := peer.Recv()
			if c.answer {
				if err != nil || m.Code != gpuerr.Protocol || m.Seq != 5 || !m.Reply {
					t.Fatalf("Recv() = %+v, %v; want an answer E_PROTOCOL", m, err)
				}
				_, err = peer.Recv()
			}

			if err != io.EOF {
				t.Errorf("Recv() = %v; want the end", err)
			}
			if err := await(t, result); !errors.Is(err, gpuerr.Protocol) {
				t.Errorf("Serve() = %v", err)
			}
		})
	}
}

func TestServeSurvives(t *testing.T) {
	leakcheck.Check(t)
	old := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	defer slog.SetDefault(old)

	fd, result := serve(t, func(ctx context.Context, m *Message) *Message {
		defer m.CloseFDs()
		switch m.Type {
		case TypeDescribe:
			panic("a bug")
		case TypeBudget:
			return nil
		case TypeHello: // a body that its type does not have
			return NewReply(m, []byte{1, 2, 3})
		case TypeOpenDevice: // no descriptor
			return NewReply(m, appendU64(nil, 1))
		case TypeClose: // an answer to something else
			return &Message{Type: TypePing, Seq: 77}
		}
		return NewReply(m, nil)
	})

	peer := newConn(t, fd)
	for i, c := range []struct {
		typ  MsgType
		body []byte
		code gpuerr.Code
	}{
		{TypeDescribe, nil, gpuerr.Internal},
		{TypeBudget, nil, gpuerr.Internal},
		{TypeHello, appendU32(nil, 1), gpuerr.Internal},
		{TypeOpenDevice, appendU32(nil, 1), gpuerr.Internal},
		{999, []byte("what"), gpuerr.Unimplemented},
		{TypeClose, nil, gpuerr.None},
		{TypePing, nil, gpuerr.None},
	} {
		m := ask(t, peer, &Message{Type: c.typ, Seq: uint64(i + 1), Body: c.body})
		if m.Type != c.typ || m.Seq != uint64(i+1) || m.Code != c.code {
			t.Errorf("%v: %+v (%v), want %v", c.typ, m, m.Err(), c.code)
		}
	}

	peer.Close()
	if err := await(t, result); err != nil {
		t.Errorf("Serve() = %v", err)
	}
}

// TestServeBound: 64 requests are served at once, the 65th when one has ended.
func TestServeBound(t *testing.T) {
	leakcheck.Check(t)
	entered, release := make(chan uint64, 2*MaxInFlight), make(chan struct{})
	fd, result := serve(t, func(ctx context.Context, m *Message) *Message {
		entered <- m.Seq
		select {
		case <-release:
		case <-ctx.Done():
		}
		return NewReply(m, nil)
	})

	peer := newConn(t, fd)
	send := func(seq uint64) {
		if err := peer.Send(testContext(t), &Message{Type: TypePing, Seq: seq}); err != nil {
			t.Fatal(err)
		}
	}

	for seq := range uint64(MaxInFlight + 6) {
		send(seq + 1)
	}

	for range MaxInFlight {
		<-entered
	}

	// The reader has stopped, so later messages stay in the socket.
	awaitFullReader(t, fd)
	select {
	case seq := <-entered:
		t.Fatalf("request %d is served beside %d others", seq, MaxInFlight)
	default:
	}

	for range 6 {
		release <- struct{}{}
		<-entered
		if _, err := peer.Recv(); err != nil {
			t.Fatal(err)
		}
	}

	// The peer vanishes while the reader does not read: the handlers still learn of
	// it.
	peer.Close()
	if err := await(t, result); err != nil {
		t.Errorf("Serve() = %v", err)
	}
}

// awaitFullReader waits until nobody reads from the other end of fd: the socket's
// outgoing bytes stay.
func awaitFullReader(t *testing.T, fd int) {
	t.Helper()
	for same, last, end := 0, -1, time.Now().Add(patience); same < 20; time.Sleep(time.Millisecond) {
		n, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ)
		if err != nil || time.Now().After(end) {
			t.Fatalf("the queue of the socket: %d bytes, %v", n, err)
		}
		if n == last && n > 0 {
			same++
		} else {
			same, last = 0, n
		}
	}
}

func TestServeDuplicateSeq(t *testing.T) {
	leakcheck.Check(t)
	fd, result := serve(t, func(ctx context.Context, m *Message) *Message {
		if m.Type == TypeClose {
			<-ctx.Done()
		}
		return NewReply(m, nil)
	})

	peer := newConn(t, fd)
	for range 3 { // a number may be reused once it was answered
		if m := ask(t, peer, &Message{Type: TypePing, Seq: 9}); m.Code != gpuerr.None {
			t.Fatal(m.Err())
		}
	}

	rawSend(t, fd, encode(t, &Message{Type: TypeClose, Seq: 9}))
	rawSend(t, fd, encode(t, &Message{Type: TypePing, Seq: 9}))
	for {
		m, err := peer.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.Seq != 9 {
			t.Errorf("a reply to %d", m.Seq)
		}
		if m.Type == TypePing && m.Code != gpuerr.Protocol {
			t.Errorf("the second request 9 was answered %v", m.Code)
		}
	}

	if err := await(t, result); !errors.Is(err, gpuerr.Protocol) {
		t.Errorf("Serve() = %v", err)
	}
}

func TestServePeerVanishesMidCall(t *testing.T) {
	leakcheck.Check(t)
	entered := make(chan struct{})
	reply := memfdOnce(t)
	fd, result := serve(t, func(ctx context.Context, m *Message) *Message {
		m.CloseFDs()
		entered <- struct{}{}
		<-ctx.Done()
		return NewReply(m, CreateBufferReply{Handle: 1}.AppendTo(nil), reply)
	})
	rawSend(t, fd, encode(t, &Message{Type: TypeCreateBuffer, Seq: 1, Body: CreateBufferRequest{Bytes: 1}.AppendTo(nil)}))
	<-entered
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	if err := await(t, result); err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(reply), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor of a reply that was not sent is open: %v", err)
	}
}

// memfdOnce makes a descriptor that another owner closes.
func memfdOnce(t testing.TB) int {
	t.Helper()
	fd, err := unix.MemfdCreate("control-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// FuzzServe sends datagrams with descriptors to Serve. No descriptor may be lost.
func FuzzServe(f *testing.F) {
	for i := range samples {
		m := &Message{Type: samples[i].typ, Reply: samples[i].reply, Seq: 1, Body: samples[i].body.AppendTo(nil)}
		f.Add(encode(f, m), uint8(i%6), uint8(1))
		if l := layouts[m.Type]; !m.Reply && l.requestFDs > 0 {
			m.FDs = make([]int, l.requestFDs)
			f.Add(encode(f, m), uint8(l.requestFDs), uint8(3))
		}
	}

	fd, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
	if err != nil {
		f.Fatal(err)
	}

	f.Cleanup(func() { unix.Close(fd) })
	f.Fuzz(func(t *testing.T, b []byte, fds, times uint8) {
		before := leakcheck.Take()
		peer, result := serve(t, okHandler)
		var oob []byte
		if n := fds % 8; n > 0 {
			oob = unix.UnixRights(repeat(fd, int(n))...)
		}

		for range times%4 + 1 {
			if err := unix.Sendmsg(peer, b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT); err != nil {
				break // too long for the socket, or already dropped
			}
		}

		unix.Close(peer)
		if err := await(t, result); err != nil && !errors.Is(err, gpuerr.Protocol) && !errors.Is(err, gpuerr.Disconnected) {
			t.Fatalf("Serve() = %v", err)
		}
		if left := before.Left(); len(left) > 0 {
			t.Fatalf("left behind: %q", left)
		}
	})
}
