package client_test

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
)

// lyingDriver answers a session as answer says, and everything else with E_BUSY.
func lyingDriver(t *testing.T, answer control.Handler) *client.Session {
	t.Helper()
	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	conn, err := control.NewConn(ours, control.ConnOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		control.Serve(ctx, conn, func(ctx context.Context, m *control.Message) *control.Message {
			if m.Type == control.TypeAwaitEnd {
				<-ctx.Done()
				return control.ErrorReply(m, gpuerr.New(gpuerr.Disconnected, "over"))
			}
			if reply := answer(ctx, m); reply != nil {
				return reply
			}
			return control.ErrorReply(m, gpuerr.New(gpuerr.Busy, "no"))
		})
	})
	s, err := client.NewSession(theirs, 1)
	require.NoError(t, err)
	t.Cleanup(func() {
		s.Close(context.Background())
		cancel()
		serving.Wait()
	})
	return s
}

func memfd(t *testing.T, bytes int64, seals int) int {
	fd, err := unix.MemfdCreate("lie", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, bytes))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

func TestADriverThatLiesAboutBuffers(t *testing.T) {
	leakcheck.Check(t)
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	for name, lie := range map[string]struct {
		reply control.CreateBufferReply
		bytes int64
		seals int
	}{
		"unsealed":              {control.CreateBufferReply{Handle: 1, MemLen: 4096}, 4096, 0},
		"file too small":        {control.CreateBufferReply{Handle: 1, MemLen: 8192}, 4096, sealed},
		"smaller than asked":    {control.CreateBufferReply{Handle: 1, MemLen: 4095}, 4096, sealed},
		"misaligned":            {control.CreateBufferReply{Handle: 1, MemOff: 1, MemLen: 4096}, 1 << 20, sealed},
		"beyond the end":        {control.CreateBufferReply{Handle: 1, MemOff: 1 << 20, MemLen: 4096}, 1 << 20, sealed},
		"range that overflows":  {control.CreateBufferReply{Handle: 1, MemOff: math.MaxUint64 &^ 4095, MemLen: 8192}, 1 << 20, sealed},
		"length that overflows": {control.CreateBufferReply{Handle: 1, MemOff: 4096, MemLen: math.MaxUint64}, 1 << 20, sealed},
	} {
		t.Run(name, func(t *testing.T) {
			s := lyingDriver(t, func(_ context.Context, m *control.Message) *control.Message {
				if m.Type != control.TypeCreateBuffer {
					return nil
				}
				return control.NewReply(m, lie.reply.AppendTo(nil), memfd(t, lie.bytes, lie.seals))
			})
			_, err := s.CreateBuffer(testContext(t), 4096, client.Storage)
			require.ErrorIs(t, err, gpuerr.Protocol)
		})
	}
}

func TestADriverThatLiesAboutQueues(t *testing.T) {
	leakcheck.Check(t)
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	s := lyingDriver(t, func(_ context.Context, m *control.Message) *control.Message {
		if m.Type != control.TypeCreateQueue {
			return nil
		}
		// A ring of nothing but zeros, and wakes that are none.
		return control.NewReply(m, control.CreateQueueReply{Handle: 1, Entries: 4, ArgBytes: 64}.AppendTo(nil),
			memfd(t, 1<<16, sealed), memfd(t, 4096, 0), memfd(t, 4096, 0))
	})
	_, err := s.CreateQueue(testContext(t), client.QueueOptions{})
	require.ErrorIs(t, err, gpuerr.Protocol)
}

func TestADriverThatBreaksTheProtocol(t *testing.T) {
	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	s, err := client.NewSession(theirs, 1)
	require.NoError(t, err)
	defer s.Close(context.Background())
	require.NoError(t, unix.Sendmsg(ours, []byte("nonsense"), nil, nil, 0))
	<-s.Done()
	require.ErrorIs(t, s.Err(), gpuerr.Protocol)
	_, err = s.Describe(testContext(t))
	require.ErrorIs(t, err, gpuerr.Protocol)
	require.NoError(t, unix.Close(ours))
}

func TestADriverThatSaysNothing(t *testing.T) {
	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	defer unix.Close(ours)
	s, err := client.NewSession(theirs, 1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.Describe(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Close(ctx), context.Canceled)
	require.ErrorIs(t, s.Err(), gpuerr.Closed, "closed all the same")
}
