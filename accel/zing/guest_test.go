package zing_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/accel/zing"
	"capgpu/driver/session/sessiontest"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// guest speaks the ABI, written from the tables of docs/zing.md alone.
type guest struct {
	t   testing.TB
	h   *zing.Host
	rid uint32
}

func newGuest(t testing.TB, change func(*zing.Config)) *guest {
	t.Helper()
	return guestOf(t, sessiontest.Start(t, sessiontest.Options{}), change)
}

// guestOf is a guest of a service, which checks at the end that nothing is left of it.
func guestOf(t testing.TB, svc *sessiontest.Service, change func(*zing.Config)) *guest {
	t.Helper()
	c := zing.Config{Conn: svc.Dial(t), Ext: true}
	if change != nil {
		change(&c)
	}
	h, err := zing.NewHost(context.Background(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return &guest{t: t, h: h}
}

// payload lays out fields: strings and byte slices with their lengths, numbers in their sizes.
func payload(fields ...any) []byte {
	var b []byte
	for _, f := range fields {
		switch v := f.(type) {
		case string:
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
		case []byte:
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
		case raw:
			b = append(b, v...)
		case uint8:
			b = append(b, v)
		case uint16:
			b = binary.LittleEndian.AppendUint16(b, v)
		case int:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case int32:
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, v)
		case uint64:
			b = binary.LittleEndian.AppendUint64(b, v)
		default:
			panic("a field of no type of Hopper's")
		}
	}
	return b
}

type raw []byte

func frame(op uint16, rid, timeout uint32, p []byte) []byte {
	return append(payload(raw("ZCL1"), uint16(1), op, rid, timeout, 0, len(p)), p...)
}

// result is an answer, taken apart.
type result struct {
	ok         bool
	bytes      []byte
	trace, msg string
}

// parseAnswer takes an answer apart, and fails the test where it is none to the request.
func parseAnswer(t testing.TB, req, b []byte) (r result) {
	t.Helper()
	require.GreaterOrEqual(t, len(b), 24)
	require.Equal(t, "ZCL1", string(b[:4]))
	require.Equal(t, []byte{1, 0}, b[4:6])
	require.Equal(t, req[6:12], b[6:12], "op and rid")
	require.Zero(t, binary.LittleEndian.Uint32(b[12:]))
	require.Equal(t, len(b)-20, int(binary.LittleEndian.Uint32(b[16:])))
	require.Equal(t, []byte{0, 0, 0}, b[21:24])
	r.ok, r.bytes = b[20] == 1, b[24:]
	if r.ok {
		return r
	}
	require.Zero(t, b[20])
	rest := r.bytes
	var fields [3]string
	for i := range fields {
		require.GreaterOrEqual(t, len(rest), 4)
		n := binary.LittleEndian.Uint32(rest)
		require.LessOrEqual(t, int(n), len(rest)-4)
		fields[i], rest = string(rest[4:4+n]), rest[4+n:]
	}
	require.Empty(t, rest)
	require.Regexp(t, "^[a-z0-9_]+$", fields[0])
	r.trace, r.msg = fields[0], fields[1]
	return r
}

func (g *guest) ctl(op uint16, timeout uint32, p []byte) result {
	g.t.Helper()
	g.rid++
	req, resp := frame(op, g.rid, timeout, p), make([]byte, 4096)
	n := g.h.Ctl(req, resp)
	require.Positive(g.t, n)
	return parseAnswer(g.t, req, resp[:n])
}

// open opens a handle, or says with which trace that was refused.
func (g *guest) open(kind string, mode int, timeout uint32, params []byte) (handle int32, trace string) {
	g.t.Helper()
	r := g.ctl(3, timeout, payload(kind, "default", mode, params))
	if !r.ok {
		return 0, r.trace
	}
	require.Len(g.t, r.bytes, 12)
	return int32(binary.LittleEndian.Uint32(r.bytes)), ""
}

func (g *guest) must(kind string, mode int, timeout uint32, params []byte) int32 {
	g.t.Helper()
	h, trace := g.open(kind, mode, timeout, params)
	require.Empty(g.t, trace)
	return h
}

// all reads a handle to its end, in pieces.
func (g *guest) all(handle int32) []byte {
	g.t.Helper()
	var b []byte
	piece := make([]byte, 7)
	for {
		n := g.h.Read(handle, piece)
		require.GreaterOrEqual(g.t, n, int32(0))
		if n == 0 {
			return b
		}
		b = append(b, piece[:n]...)
	}
}

func (g *guest) buffer(bytes, flags int) int32 {
	g.t.Helper()
	return g.must("accel", 2, 0, payload("spirv", "0", uint64(bytes), flags))
}

func (g *guest) write(handle int32, values ...float32) {
	g.t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, values)
	require.NoError(g.t, err)
	require.Equal(g.t, int32(len(b)), g.h.Write(handle, b))
}

func (g *guest) floats(handle int32) []float32 {
	g.t.Helper()
	b := g.all(handle)
	values := make([]float32, len(b)/4)
	_, err := binary.Decode(b, binary.LittleEndian, values)
	require.NoError(g.t, err)
	return values
}

// ref and inline are arguments.
func ref(handle int32) raw { return payload(uint8(2), uint8(0), uint16(0), 4, handle) }
func inline(p []byte) raw  { return payload(uint8(1), uint8(0), uint16(0), len(p), raw(p)) }

func submission(module, kernel string, grid, block [3]int, shared, budget int, args ...raw) []byte {
	p := payload("spirv", "0", module, kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared, len(args))
	for _, a := range args {
		p = append(p, a...)
	}
	return payload(raw(p), budget)
}

func launch(kernel string, args ...raw) []byte {
	return submission("capgpu", kernel, [3]int{1, 1, 1}, [3]int{256, 1, 1}, 0, 0, args...)
}
