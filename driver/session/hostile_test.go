package session_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/outcome"
)

// raw is a peer that can send anything.
type raw struct {
	t   *testing.T
	fd  int
	seq uint64
}

func rawPeer(t *testing.T, svc *sessiontest.Service) *raw {
	p := &raw{t: t, fd: svc.OpenFD(t)}
	t.Cleanup(p.close)
	return p
}

func (p *raw) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// datagram is a request with a valid header around body.
func (p *raw) datagram(typ control.MsgType, body []byte, fds int) []byte {
	p.seq++
	b := binary.LittleEndian.AppendUint16(nil, 0x4743)
	b = binary.LittleEndian.AppendUint16(b, uint16(typ))
	b = binary.LittleEndian.AppendUint32(b, uint32(control.HeaderBytes+len(body)))
	b = binary.LittleEndian.AppendUint64(b, p.seq)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(fds))
	b = binary.LittleEndian.AppendUint16(b, 0)
	return append(b, body...)
}

func (p *raw) send(b []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(p.fd, b, oob, nil, unix.MSG_NOSIGNAL)
}

// recv returns the next reply, or ok false when the socket is closed. It closes
// descriptors that come with the reply.
func (p *raw) recv() (typ control.MsgType, code gpuerr.Code, body []byte, ok bool) {
	p.t.Helper()
	require.NoError(p.t, unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	buf, oob := make([]byte, control.MaxLongBytes), make([]byte, 256)
	n, oobn, _, _, err := unix.Recvmsg(p.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR { // the runtime's own signals interrupt it; the kernel restarts no receive with a time limit
		n, oobn, _, _, err = unix.Recvmsg(p.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
	}

	if err == unix.ECONNRESET || err == nil && n == 0 {
		return 0, 0, nil, false
	}

	require.NoError(p.t, err)
	require.GreaterOrEqual(p.t, n, control.HeaderBytes)
	if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for _, m := range msgs {
			fds, _ := unix.ParseUnixRights(&m)
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}

	return control.MsgType(binary.LittleEndian.Uint16(buf[2:]) &^ (1 << 15)), gpuerr.Code(binary.LittleEndian.Uint32(buf[16:])), buf[control.HeaderBytes:n], true
}

// ask sends a request and returns the code of the answer.
func (p *raw) ask(typ control.MsgType, body []byte, fds ...int) (gpuerr.Code, []byte) {
	p.t.Helper()
	require.NoError(p.t, p.send(p.datagram(typ, body, len(fds)), fds...))
	got, code, reply, ok := p.recv()
	require.True(p.t, ok, "the socket was closed after %v", typ)
	require.Equal(p.t, typ, got)
	return code, reply
}

// stillWorks runs a whole job for another client.
func stillWorks(t *testing.T, svc *sessiontest.Service) {
	t.Helper()
	ctx := testContext(t)
	s := svc.Open(t)
	b, err := s.CreateBuffer(ctx, 8192, client.Storage)
	require.NoError(t, err)
	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 4})
	require.NoError(t, err)
	_, err = q.Submit(&client.Fill{Buffer: b, Bytes: 8192, Pattern: 0x01020304})
	require.NoError(t, err)
	var done [1]client.Completion
	_, err = q.Completions(ctx, done[:])
	require.NoError(t, err)
	require.Equal(t, outcome.Success, done[0].Outcome)
	got := make([]byte, 8192)
	_, err = b.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{4, 3, 2, 1}, 2048), got)
	require.NoError(t, s.Close(ctx))
}

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

// loadsNone is a device without a verifier.
type loadsNone struct{ backend.Backend }

func (b loadsNone) Info() backend.Info {
	info := b.Backend.Info()
	info.LoadsPrograms = false
	return info
}

// The request names a bundle by its place in memory; a descriptor is never
// accepted.
func TestLoadProgramTakesNoDescriptor(t *testing.T) {
	leakcheck.Check(t)
	svc := sessiontest.Start(t, sessiontest.Options{})
	p := rawPeer(t, svc)
	_, body := p.ask(control.TypeCreateBuffer, control.CreateBufferRequest{Bytes: 4096}.AppendTo(nil))
	b, err := control.ParseCreateBufferReply(body)
	require.NoError(t, err)
	load := func(buffer, off, bytes uint64, fds ...int) gpuerr.Code {
		code, _ := p.ask(control.TypeLoadProgram, control.LoadProgramRequest{Buffer: buffer, Off: off, Bytes: bytes}.AppendTo(nil), fds...)
		return code
	}

	require.Equal(t, gpuerr.Invalid, load(b.Handle, 0, 0))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, 0, 1<<20+1))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, 0, math.MaxUint64))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, 1, 4096))
	require.Equal(t, gpuerr.Invalid, load(b.Handle, math.MaxUint64, 2))
	require.Equal(t, gpuerr.Stale, load(b.Handle+1<<32, 0, 4096))
	require.Equal(t, gpuerr.Program, load(b.Handle, 0, 4096), "it is no program")
	mem, err := shm.Create("bundle", 4096)
	require.NoError(t, err)
	defer mem.Close()

	body = control.LoadProgramRequest{Buffer: b.Handle, Bytes: 4096}.AppendTo(nil)
	if err := p.send(p.datagram(control.TypeLoadProgram, body, 1), mem.FD()); err == nil { // Linux 6.16 can refuse the send itself
		_, code, _, _ := p.recv()
		require.Equal(t, gpuerr.Protocol, code)
		_, _, _, ok := p.recv()
		require.False(t, ok)
	}

	stillWorks(t, svc)
}

// A device that loads no programs takes nothing, and the client notices only the
// refusal.
func TestLoadProgramWhereNothingLoads(t *testing.T) {
	for name, o := range map[string]sessiontest.Options{
		"no verifier": {Config: func(c *gpu.Config) { c.Backend = loadsNone{c.Backend} }},
		"no right":    {Attach: func(a *gpu.Attach) { a.Facet = gpu.FacetProgram }},
	} {
		t.Run(name, func(t *testing.T) {
			svc := sessiontest.Start(t, o)
			s := svc.Open(t)
			_, err := s.LoadProgram(testContext(t), []byte("a bundle"))
			require.ErrorIs(t, err, gpuerr.Unimplemented)
			_, err = s.Describe(testContext(t))
			require.NoError(t, err, "the session goes on")
		})
	}
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

// oneClient runs a bit of every operation.
func oneClient(ctx context.Context, socket string) error {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close()

	s, err := conn.Open(ctx, 0)
	if err != nil {
		return err
	}

	b, err := s.CreateBuffer(ctx, 1<<16, client.Storage)
	if err != nil {
		return err
	}

	q, err := s.CreateQueue(ctx, client.QueueOptions{Entries: 8, ArgBytes: 64})
	if err != nil {
		return err
	}

	for i := range 50 {
		if _, err := q.Submit(&client.Fill{Buffer: b, Bytes: 1 << 16, Pattern: uint32(i)}); err != nil {
			return err
		}
		var done [8]client.Completion
		if _, err := q.Completions(ctx, done[:]); err != nil {
			return err
		}
	}

	return s.Close(ctx)
}
