package session_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
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
