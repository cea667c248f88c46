package rpcguard

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/schema"
)

// patience bounds waits for events that come at once on an idle machine.
const patience = 20 * time.Second

func TestMain(m *testing.M) { leakcheck.Main(m) }

// service is a small object tree with every way in which a method can end.
type service struct {
	schema.GpuDeviceManager_Server // an undefined method panics
	gate                           *Gate
	live                           atomic.Int64 // objects not yet shut down
	opened                         atomic.Int64 // sessions, ever
	order                          chan uint64  // offsets of buffer reads, in order
	log                            *slog.Logger
}

func newService() *service {
	return &service{gate: NewGate(), order: make(chan uint64, 1024), log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func (s *service) bootstrap() capnp.Client {
	s.live.Add(1)
	return Export(Spec{
		Name: "GpuDeviceManager", Gate: s.gate, Impl: s, Log: s.log,
		Methods:  schema.GpuDeviceManager_Methods(nil, s),
		Shutdown: func() { s.live.Add(-1) },
	})
}

const (
	openSession = iota
	openNull
	openQuota
	openPanic
	openBlock
	openNoResults
	openBlockThenSession
	openForeignError
)

func (s *service) OpenDevice(ctx context.Context, call schema.GpuDeviceManager_openDevice) error {
	switch call.Args().CapabilityIndex() {
	case openNull:
		_, err := call.AllocResults()
		return err
	case openQuota:
		return gpuerr.Refused("sessions", 1, 0)
	case openPanic:
		panic("a secret")
	case openForeignError:
		return errors.New("a secret")
	case openBlock:
		call.Go()
		<-ctx.Done()
		return context.Cause(ctx)
	case openNoResults:
		return nil
	case openBlockThenSession:
		call.Go()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond): // slower than the calls pipelined on it
		}
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetSession(schema.GpuSession(s.newSession().export()))
}

func (s *service) Lifecycle(_ context.Context, call schema.GpuDeviceManager_lifecycle) error {
	call.Go()
	return nil // a null capability
}

type session struct {
	schema.GpuMemorySession_Server
	s    *service
	gate *Gate
	line Line
}

func (s *service) newSession() *session {
	s.opened.Add(1)
	return &session{s: s, gate: s.gate.NewChild()}
}

func (o *session) export() capnp.Client {
	o.s.live.Add(1)
	return Export(Spec{
		Name: "GpuMemorySession", Gate: o.gate, Impl: o, Log: o.s.log, Ends: "close", Line: &o.line,
		Methods:  schema.GpuMemorySession_Methods(nil, o),
		Shutdown: func() { o.gate.Revoke(nil); o.s.live.Add(-1) },
	})
}

func (o *session) CreateBuffer(_ context.Context, call schema.GpuMemorySession_createBuffer) error {
	if call.Args().Bytes() == 0 {
		return gpuerr.New(gpuerr.Invalid, "bytes: 0")
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	o.s.live.Add(1)
	b := &buffer{s: o.s, gate: o.gate}
	return res.SetBuffer(schema.GpuBuffer(Export(Spec{
		Name: "GpuBuffer", Gate: o.gate, Impl: b, Log: o.s.log, Line: &o.line,
		Methods:  schema.GpuBuffer_Methods(nil, b),
		Shutdown: func() { o.s.live.Add(-1) },
	})))
}

func (o *session) Close(context.Context, schema.GpuMemorySession_close) error {
	o.gate.Revoke(gpuerr.New(gpuerr.Closed, "the session was closed"))
	return nil
}

// maxRead is more than any answer may have.
const maxRead = 64 << 20

type buffer struct {
	schema.GpuBuffer_Server
	s    *service
	gate *Gate
}

func (b *buffer) Read(_ context.Context, call schema.GpuBuffer_read) error {
	b.s.order <- call.Args().Offset()
	if n := call.Args().Length(); n > maxRead { // a random length must not cost minutes
		return gpuerr.New(gpuerr.Invalid, "length is %d; at most %d", n, maxRead)
	}
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	return res.SetData(make([]byte, call.Args().Length()))
}

func (b *buffer) Size(_ context.Context, call schema.GpuBuffer_size) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	res.SetBytes(4096)
	return nil
}

func (b *buffer) MapReadWrite(_ context.Context, call schema.GpuBuffer_mapReadWrite) error {
	res, err := call.AllocResults()
	if err != nil {
		return err
	}
	b.s.live.Add(1)
	res.SetLen(4096)
	return res.SetMemory(schema.SharedMemory(Export(Spec{
		Name: "SharedMemory", Gate: b.gate, Log: b.s.log,
		DupFD: func() (int, error) {
			fd, err := unix.MemfdCreate("rpcguard-test", unix.MFD_CLOEXEC)
			if err != nil {
				return -1, err
			}
			_, err = unix.Write(fd, []byte("shared"))
			return fd, err
		},
		Shutdown: func() { b.s.live.Add(-1) },
	})))
}

// socketpair is a connected pair of stream sockets.
func socketpair(t testing.TB) (server, client *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	return unixConn(t, fds[0]), unixConn(t, fds[1])
}

func unixConn(t testing.TB, fd int) *net.UnixConn {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	require.NoError(t, err)
	return c.(*net.UnixConn)
}

// serve runs s for one peer and returns the peer's socket. When the test ends
// the server must have returned, and all objects must be gone.
func serve(t testing.TB, s *service, limits Limits) (peer *net.UnixConn, ended <-chan error) {
	t.Helper()
	server, peer := socketpair(t)
	end := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		end <- Serve(context.Background(), server, s.bootstrap(), limits)
		close(done)
	}()
	t.Cleanup(func() {
		peer.Close()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Serve did not return after its peer closed")
		}
		require.Zero(t, s.live.Load(), "objects outlive Serve")
		s.gate.Revoke(nil)
	})
	return peer, end
}

// dial is a go-capnp client of s.
func dial(t testing.TB, s *service) (schema.GpuDeviceManager, *rpc.Conn, *ClientTransport) {
	t.Helper()
	peer, _ := serve(t, s, Limits{})
	transport := NewClientTransport(peer)
	conn := rpc.NewConn(transport, nil)
	t.Cleanup(func() { conn.Close() })
	m := schema.GpuDeviceManager(conn.Bootstrap(context.Background()))
	t.Cleanup(m.Release)
	return m, conn, transport
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func open(kind uint32) func(schema.GpuDeviceManager_openDevice_Params) error {
	return func(p schema.GpuDeviceManager_openDevice_Params) error {
		p.SetCapabilityIndex(kind)
		return nil
	}
}

func size(n uint64) func(schema.GpuMemorySession_createBuffer_Params) error {
	return func(p schema.GpuMemorySession_createBuffer_Params) error {
		p.SetBytes(n)
		return nil
	}
}
