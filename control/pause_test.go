package control

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"github.com/stretchr/testify/require"
)

// While a serving is paused, nothing is read and no waiting request is answered.
// Another serving continues with the same socket, and with the waiting requests.
func TestPause(t *testing.T) {
	leakcheck.Check(t)
	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	clientConn, err := NewConn(ours, ConnOptions{})
	require.NoError(t, err)
	conn, err := NewConn(theirs, ConnOptions{})
	require.NoError(t, err)
	reached := make(chan struct{})
	slow := make(chan struct{})
	handler := func(who uint64) Handler {
		return func(ctx context.Context, m *Message) *Message {
			switch m.Type {
			case TypeFenceWait:
				select {
				case <-reached:
				case <-ctx.Done():
				}
				return NewReply(m, FenceState{Reached: who}.AppendTo(nil))
			case TypeCreateFence:
				<-slow
				return NewReply(m, HandleBody{Handle: who}.AppendTo(nil))
			}
			return NewReply(m, nil)
		}
	}

	mayWait := func(t MsgType) bool { return t == TypeFenceWait }
	dies, die := context.WithCancel(t.Context())
	first := NewServing(dies, conn, handler(1))
	ended := make(chan error, 1)
	go func() { ended <- first.Run() }()
	client := NewCaller(clientConn)
	defer client.Close()

	answers := make(chan uint64, 1)
	go func() {
		m, err := client.Call(context.Background(), TypeFenceWait, FenceWaitRequest{Handle: 1, Value: 1, TimeoutNanos: 1 << 40}.AppendTo(nil), nil)
		if err != nil {
			answers <- 0
			return
		}
		st, _ := ParseFenceState(m.Body)
		answers <- st.Reached
	}()

	made := make(chan error, 1)
	go func() {
		_, err := client.Call(context.Background(), TypeCreateFence, CreateFenceRequest{}.AppendTo(nil), nil)
		made <- err
	}()

	require.Eventually(t, func() bool {
		first.e.mu.Lock()
		defer first.e.mu.Unlock()
		return first.e.count == 2
	}, patience, time.Millisecond)

	// A request that does not wait by nature delays the pause, and is not lost.
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	_, err = first.Pause(ctx, mayWait)
	require.ErrorIs(t, err, gpuerr.Busy)
	close(slow)
	require.NoError(t, <-made)
	asked, err := first.Pause(t.Context(), mayWait)
	require.NoError(t, err)
	require.Len(t, asked, 1)
	require.Equal(t, TypeFenceWait, asked[0].Type)
	_, err = first.Pause(t.Context(), mayWait)
	require.ErrorIs(t, err, gpuerr.Busy)
	pinged := make(chan error, 1)
	go func() {
		_, err := client.Call(context.Background(), TypeDestroyFence, HandleBody{Handle: 1}.AppendTo(nil), nil)
		pinged <- err
	}()

	close(reached) // the first serving answers nothing more
	select {
	case <-answers:
		require.Fail(t, "answered while paused")
	case <-pinged:
		require.Fail(t, "read while paused")
	case <-time.After(20 * time.Millisecond):
	}

	first.Resume()
	require.NoError(t, <-pinged)
	require.EqualValues(t, 1, <-answers)

	// Another continues. The first one's descriptor is closed without a message, as
	// when a process dies.
	asked, err = first.Pause(t.Context(), mayWait)
	require.NoError(t, err)
	require.Empty(t, asked)
	fd, err := first.FD()
	require.NoError(t, err)
	die()
	<-ended
	next, err := NewConn(fd, ConnOptions{})
	require.NoError(t, err)
	second := NewServing(t.Context(), next, handler(2))
	go func() { ended <- second.Run() }()
	m, err := client.Call(t.Context(), TypeFenceWait, FenceWaitRequest{Handle: 1, Value: 1, TimeoutNanos: 1}.AppendTo(nil), nil)
	require.NoError(t, err)
	st, err := ParseFenceState(m.Body)
	require.NoError(t, err)
	require.EqualValues(t, 2, st.Reached)
	client.Close()
	require.NoError(t, <-ended)
}

// A pause does not wait for a peer that does not read its replies, or that is gone:
// its serving ends.
func TestPauseOfOneThatDoesNotRead(t *testing.T) {
	leakcheck.Check(t)
	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	defer unix.Close(ours)

	require.NoError(t, unix.SetsockoptInt(theirs, unix.SOL_SOCKET, unix.SO_SNDBUF, 1))
	conn, err := NewConn(theirs, ConnOptions{WriteTimeout: time.Hour})
	require.NoError(t, err)
	serving := NewServing(t.Context(), conn, func(_ context.Context, m *Message) *Message { return NewReply(m, nil) })
	ended := make(chan error, 1)
	go func() { ended <- serving.Run() }()
	for seq := range uint64(MaxInFlight) {
		b, err := appendMessage(nil, &Message{Type: TypeDestroyFence, Seq: seq + 1, Body: HandleBody{Handle: 1}.AppendTo(nil)})
		require.NoError(t, err)
		_, err = unix.Write(ours, b)
		require.NoError(t, err)
	}

	require.Eventually(t, func() bool { // the socket took some of them
		serving.e.mu.Lock()
		defer serving.e.mu.Unlock()
		return serving.e.count-len(serving.e.seqs) > MaxInFlight/2
	}, 10*time.Second, time.Millisecond)

	_, err = serving.Pause(t.Context(), func(MsgType) bool { return false })
	require.ErrorIs(t, err, ErrEnding)
	require.ErrorContains(t, <-ended, "does not read")
}
