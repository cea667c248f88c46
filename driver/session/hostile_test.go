package session_test

import (
	"bytes"
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestMalformedMessagesEndTheSessionOnly(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	header := func(change func(b []byte)) func(p *raw) []byte {
		return func(p *raw) []byte {
			b := p.datagram(control.TypeDescribe, nil, 0)
			change(b)
			return b
		}
	}

	for name, build := range map[string]func(p *raw) []byte{
		"one byte":          func(*raw) []byte { return []byte{1} },
		"garbage":           func(*raw) []byte { return bytes.Repeat([]byte{0xa5}, 300) },
		"too long":          func(p *raw) []byte { return p.datagram(control.TypeDescribe, make([]byte, 5000), 0) },
		"bad magic":         header(func(b []byte) { b[0] = 0 }),
		"bad length":        header(func(b []byte) { b[4]++ }),
		"zero seq":          header(func(b []byte) { clear(b[8:16]) }),
		"code in a request": header(func(b []byte) { b[16] = 1 }),
		"fds that lie":      header(func(b []byte) { b[20] = 2 }),
		"zero field":        header(func(b []byte) { b[22] = 1 }),
		"a reply":           header(func(b []byte) { b[3] |= 0x80 }),
		"truncated body":    func(p *raw) []byte { return p.datagram(control.TypeCreateBuffer, []byte{1, 2, 3}, 0) },
		"surplus body":      func(p *raw) []byte { return p.datagram(control.TypeDescribe, []byte{1}, 0) },
		"list beyond body": func(p *raw) []byte {
			return p.datagram(control.TypeRestrict, append(make([]byte, 16), 0xff, 0xff, 0xff, 0xff), 0)
		},
		"handle zero": func(p *raw) []byte { return p.datagram(control.TypeDestroyBuffer, make([]byte, 8), 0) },
		"missing fd":  func(p *raw) []byte { return p.datagram(control.TypeAttach, make([]byte, 8), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			p := rawPeer(t, svc)
			code, _ := p.ask(control.TypeCreateFence, control.CreateFenceRequest{}.AppendTo(nil))
			require.Equal(t, gpuerr.None, code)
			require.NoError(t, p.send(build(p)))
			for {
				_, code, _, ok := p.recv()
				if !ok {
					break
				}
				require.Equal(t, gpuerr.Protocol, code)
			}
		})
	}

	require.Eventually(t, func() bool { return sessionCount(svc) == 0 }, 10*time.Second, time.Millisecond)
	stillWorks(t, svc)
}

func TestHandlesOfNobody(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	p, other := rawPeer(t, svc), rawPeer(t, svc)
	code, body := other.ask(control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096}.AppendTo(nil))
	require.Equal(t, gpuerr.None, code)
	made, err := control.ParseCreateBufferReply(body)
	require.NoError(t, err)
	for _, h := range []uint64{1, made.Handle + 1, made.Handle + 1<<32, 1 << 32, math.MaxUint64, 1 << 63} {
		for _, typ := range []control.MsgType{control.TypeDestroyBuffer, control.TypeDestroyFence, control.TypeFenceState,
			control.TypeCloseProgram, control.TypeCancelQueue, control.TypeCloseQueue, control.TypeCloseList} {
			code, _ := p.ask(typ, control.HandleBody{Handle: h}.AppendTo(nil))
			require.Equal(t, gpuerr.Stale, code, "%v of %#x", typ, h)
		}
		code, _ = p.ask(control.TypeFenceWait, control.FenceWaitRequest{Handle: h, Value: 1, TimeoutNanos: math.MaxUint64}.AppendTo(nil))
		require.Equal(t, gpuerr.Stale, code)
	}

	// Another session's handle reveals nothing about that session, nor does a
	// handle of another kind.
	code, _ = p.ask(control.TypeDestroyBuffer, control.HandleBody{Handle: made.Handle}.AppendTo(nil))
	require.Equal(t, gpuerr.Stale, code)
	code, _ = other.ask(control.TypeDestroyFence, control.HandleBody{Handle: made.Handle}.AppendTo(nil))
	require.Equal(t, gpuerr.Stale, code)
	code, _ = other.ask(control.TypeDestroyBuffer, control.HandleBody{Handle: made.Handle}.AppendTo(nil))
	require.Equal(t, gpuerr.None, code)
	code, _ = other.ask(control.TypeDestroyBuffer, control.HandleBody{Handle: made.Handle}.AppendTo(nil))
	require.Equal(t, gpuerr.Stale, code, "closed once already")

	code, _ = p.ask(control.TypeHello, control.HelloRequest{Version: 1}.AppendTo(nil))
	require.Equal(t, gpuerr.Unimplemented, code, "a message of another socket")
	code, _ = p.ask(999, nil)
	require.Equal(t, gpuerr.Unimplemented, code)
}

// Requests that may wait for ever never fill the 64 places. The service always
// reads the socket, so no descriptor that keeps the socket alive can stay hidden in
// it.
func TestEndlessWaitsDoNotStopTheReading(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	p := rawPeer(t, svc)
	_, body := p.ask(control.TypeCreateFence, control.CreateFenceRequest{}.AppendTo(nil))
	f, err := control.ParseHandleBody(body)
	require.NoError(t, err)
	const asked, places = 2 * control.MaxInFlight, 32
	wait := control.FenceWaitRequest{Handle: f.Handle, Value: 1, TimeoutNanos: math.MaxUint64}.AppendTo(nil)
	refused := map[control.MsgType]int{}
	next := func() (control.MsgType, gpuerr.Code) {
		typ, code, _, ok := p.recv()
		require.True(t, ok)
		return typ, code
	}

	for i := range asked {
		require.NoError(t, p.send(p.datagram(control.TypeFenceWait, wait, 0)))
		if i < places {
			continue
		}
		typ, code := next()
		require.Equal(t, control.TypeFenceWait, typ)
		require.Equal(t, gpuerr.Busy, code)
		refused[typ]++
	}

	for i := range asked {
		require.NoError(t, p.send(p.datagram(control.TypeAwaitEnd, nil, 0)))
		if i == 0 {
			continue
		}
		typ, code := next()
		require.Equal(t, control.TypeAwaitEnd, typ)
		require.Equal(t, gpuerr.Busy, code)
		refused[typ]++
	}

	require.Equal(t, map[control.MsgType]int{control.TypeFenceWait: asked - places, control.TypeAwaitEnd: asked - 1}, refused)
	code, _ := p.ask(control.TypeDescribe, nil)
	require.Equal(t, gpuerr.None, code)

	// The places become free again.
	require.NoError(t, p.send(p.datagram(control.TypeFenceSignal, control.FenceSignalRequest{Handle: f.Handle, Value: 1}.AppendTo(nil), 0)))
	for range places + 1 {
		typ, code := next()
		require.Contains(t, []control.MsgType{control.TypeFenceWait, control.TypeFenceSignal}, typ)
		require.Equal(t, gpuerr.None, code)
	}

	code, _ = p.ask(control.TypeFenceWait, wait)
	require.Equal(t, gpuerr.None, code)
}

func TestPeerVanishesInMidCall(t *testing.T) {
	leakcheck.Check(t)
	svc := sessiontest.Start(t, sessiontest.Options{})
	for range 20 {
		p := rawPeer(t, svc)
		_, body := p.ask(control.TypeCreateFence, control.CreateFenceRequest{}.AppendTo(nil))
		f, err := control.ParseHandleBody(body)
		require.NoError(t, err)
		for range 5 {
			p.send(p.datagram(control.TypeFenceWait, control.FenceWaitRequest{Handle: f.Handle, Value: 1, TimeoutNanos: math.MaxUint64}.AppendTo(nil), 0))
			p.send(p.datagram(control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 1 << 20}.AppendTo(nil), 0))
			p.send(p.datagram(control.TypeCreateQueue, control.CreateQueueRequest{Entries: 16, ArgBytes: 64}.AppendTo(nil), 0))
			p.send(p.datagram(control.TypeRestrict, control.RestrictRequest{}.AppendTo(nil), 0))
		}
		p.close()
	}

	require.Eventually(t, func() bool { return sessionCount(svc) == 0 }, 10*time.Second, time.Millisecond)
	stillWorks(t, svc)
}

func TestTooManyRequestsWaitTheirTurn(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	p := rawPeer(t, svc)
	_, body := p.ask(control.TypeCreateFence, control.CreateFenceRequest{}.AppendTo(nil))
	f, err := control.ParseHandleBody(body)
	require.NoError(t, err)
	const asked = 3 * control.MaxInFlight
	sent := make(chan error, 1)
	go func() {
		for range asked {
			req := control.FenceWaitRequest{Handle: f.Handle, Value: 1, TimeoutNanos: uint64(20 * time.Millisecond)}
			if err := p.send(p.datagram(control.TypeFenceWait, req.AppendTo(nil), 0)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()

	for range asked {
		typ, _, _, ok := p.recv() // E_BUSY for every wait above 32
		require.True(t, ok)
		require.Equal(t, control.TypeFenceWait, typ)
	}

	require.NoError(t, <-sent)
}

func TestPeerThatNeverReads(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	p := rawPeer(t, svc)
	require.NoError(t, unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 15}))
	// The replies fill the socket. The service then stops reading, drops the peer
	// after its write timeout, and the session is gone.
	var err error
	for err == nil {
		err = p.send(p.datagram(control.TypeDescribe, nil, 0))
	}
	require.Contains(t, []error{unix.EPIPE, unix.ECONNRESET}, err)
	require.Eventually(t, func() bool { return sessionCount(svc) == 0 }, 10*time.Second, time.Millisecond)
	stillWorks(t, svc)
}

func TestManySessionsAtOnce(t *testing.T) {
	leakcheck.Check(t)
	svc := sessiontest.Start(t, sessiontest.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	errs := make(chan error)
	const clients = 16
	for range clients {
		go func() { errs <- oneClient(ctx, svc.Socket) }()
	}
	for range clients {
		require.NoError(t, <-errs)
	}
	require.Zero(t, sessionCount(svc))
}
