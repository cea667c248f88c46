package control

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestServeLast(t *testing.T) {
	leakcheck.Check(t)
	waiting := make(chan struct{})
	fd, result := serve(t, func(ctx context.Context, m *Message) *Message {
		if m.Type == TypeClose {
			r := NewReply(m, nil)
			r.Last = true
			return r
		}
		waiting <- struct{}{}
		<-ctx.Done()
		return ErrorReply(m, gpuerr.New(gpuerr.Revoked, "closed"))
	})

	peer := newConn(t, fd)
	rawSend(t, fd, encode(t, &Message{Type: TypePing, Seq: 1}))
	<-waiting
	rawSend(t, fd, encode(t, &Message{Type: TypeClose, Seq: 2}))
	for i, want := range []MsgType{TypePing, TypeClose} {
		m, err := peer.Recv()
		if err != nil || m.Type != want {
			t.Fatalf("reply %d: %+v, %v; want %v", i, m, err, want)
		}
	}

	if _, err := peer.Recv(); err != io.EOF {
		t.Errorf("after the last reply: %v", err)
	}
	if err := await(t, result); err != nil {
		t.Errorf("Serve() = %v", err)
	}
}

func TestServeContextEnds(t *testing.T) {
	leakcheck.Check(t)
	for _, busy := range []int{0, 1, MaxInFlight + 1} {
		c, fd := pair(t, anyFDs)
		ctx, cancel := context.WithCancel(context.Background())
		entered := make(chan struct{}, 2*MaxInFlight)
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, c, func(ctx context.Context, m *Message) *Message {
				entered <- struct{}{}
				<-ctx.Done()
				return NewReply(m, nil)
			})
		}()

		for i := range busy {
			rawSend(t, fd, encode(t, &Message{Type: TypePing, Seq: uint64(i + 1)}))
		}

		for range min(busy, MaxInFlight) {
			<-entered
		}

		cancel()
		if err := await(t, done); err != context.Canceled {
			t.Errorf("%d requests: Serve() = %v", busy, err)
		}

		unix.Close(fd)
	}
}

func TestServePeerNeverReads(t *testing.T) {
	leakcheck.Check(t)
	c, fd := pair(t, ConnOptions{WriteTimeout: 50 * time.Millisecond})
	defer unix.Close(fd)

	done := make(chan error, 1)
	go func() {
		done <- Serve(testContext(t), c, func(ctx context.Context, m *Message) *Message {
			return NewReply(m, make([]byte, 60_000))
		})
	}()

	request := encode(t, &Message{Type: TypeStatus, Seq: 1, Body: appendU32(nil, 0)})
	for seq := byte(1); ; seq++ {
		request[8] = max(seq, 1)
		if err := unix.Sendmsg(fd, request, nil, nil, unix.MSG_NOSIGNAL); err != nil {
			break // dropped, as it should be
		}
		if seq == 200 {
			break // the reader has long stopped
		}
	}

	if err := await(t, done); !errors.Is(err, gpuerr.Disconnected) && !errors.Is(err, gpuerr.Protocol) {
		t.Errorf("Serve() = %v", err)
	}
}
