package zing_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel/zing"
	"capgpu/driver/session/sessiontest"
)

// peer is a guest at the other end of a wire.
type peer struct {
	t    testing.TB
	conn net.Conn
	end  chan error
}

func dial(t *testing.T, h *zing.Host) *peer {
	ours, theirs := net.Pipe()
	p := &peer{t: t, conn: ours, end: make(chan error, 1)}
	go func() { p.end <- zing.Serve(t.Context(), theirs, h) }()
	t.Cleanup(func() { ours.Close() })
	return p
}

func (p *peer) call(op uint16, pl []byte) result {
	p.t.Helper()
	req := frame(op, 7, 5000, pl)
	_, err := p.conn.Write(req)
	require.NoError(p.t, err)
	return parseAnswer(p.t, req, p.answer())
}

func (p *peer) answer() []byte {
	p.t.Helper()
	head := make([]byte, 20)
	_, err := io.ReadFull(p.conn, head)
	require.NoError(p.t, err)
	rest := make([]byte, binary.LittleEndian.Uint32(head[16:]))
	_, err = io.ReadFull(p.conn, rest)
	require.NoError(p.t, err)
	return append(head, rest...)
}

func TestWire(t *testing.T) {
	p := dial(t, newGuest(t, nil).h)
	require.Equal(t, payload(2), p.call(1, nil).bytes[:4])
	open := p.call(3, payload("accel", "default", 2, payload("spirv", "0", uint64(8), 0)))
	require.Equal(t, payload(3, 7, ""), open.bytes)
	require.Equal(t, payload(4), p.call(1002, payload(3, []byte{1, 2, 3, 4})).bytes)
	require.Equal(t, payload(uint32(0xffffffff)), p.call(1002, payload(3, make([]byte, 5))).bytes)
	require.Equal(t, payload(3, []byte{1, 2, 3}), p.call(1001, payload(3, 3)).bytes)
	require.Equal(t, payload(5, []byte{4, 0, 0, 0, 0}), p.call(1001, payload(3, 0x7fffffff)).bytes)
	require.Equal(t, payload(0, ""), p.call(1001, payload(3, 9)).bytes)
	require.Empty(t, p.call(1003, payload(3)).bytes)
	require.Equal(t, payload(uint32(0xffffffff), ""), p.call(1001, payload(3, 9)).bytes)
	require.True(t, p.call(1004, payload("topic", "msg")).ok)
	for _, op := range []uint16{1001, 1002, 1003, 1004} {
		require.Equal(t, "t_ctl_bad_params", p.call(op, []byte{0}).trace)
	}
	require.Equal(t, "t_ctl_unknown_op", p.call(1005, nil).trace)
	require.NoError(t, p.conn.Close())
	require.NoError(t, <-p.end)
}

func TestTheWireEnds(t *testing.T) {
	h := newGuest(t, nil).h
	for trace, c := range map[string][]byte{
		"t_ctl_bad_frame": append([]byte("ZCL2"), frame(1, 1, 0, nil)[4:]...),
		"t_ctl_overflow":  append(frame(1, 1, 0, nil)[:20], 0, 0x10, 0x10, 1),
	} {
		p := dial(t, h)
		_, err := p.conn.Write(c)
		require.NoError(t, err)
		require.Equal(t, trace, parseAnswer(t, c, p.answer()).trace)
		_, err = p.conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.ErrorContains(t, <-p.end, trace)
	}
	p := dial(t, h)
	_, err := p.conn.Write(frame(1, 1, 0, nil)[:9])
	require.NoError(t, err)
	p.conn.Close()
	require.ErrorIs(t, <-p.end, io.ErrUnexpectedEOF)
}

// TestAClientDies: its work and its memory end with its host, and the service checks that nothing is
// left.
func TestAClientDies(t *testing.T) {
	svc := sessiontest.Start(t, sessiontest.Options{})
	h, err := zing.NewHost(context.Background(), zing.Config{Conn: svc.Dial(t)})
	require.NoError(t, err)
	p := dial(t, h)
	for range 3 {
		require.True(t, p.call(3, payload("accel", "default", 2, payload("spirv", "0", uint64(1<<20), 0))).ok)
	}
	require.True(t, p.call(3, payload("accel", "default", 3, submission("capgpu", "spin", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, 0))).ok)
	_, err = p.conn.Write(frame(3, 1, 0, payload("accel", "default"))[:30])
	require.NoError(t, err)
	p.conn.Close() // in the middle of a frame
	require.Error(t, <-p.end)
	require.NoError(t, h.Close())
	require.NoError(t, svc.Device.Reclaimed(t.Context()))
	for _, tenant := range svc.Device.Status("").Tenants {
		require.Empty(t, tenant.Sessions)
	}
}
