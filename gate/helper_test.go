package gate

import (
	"context"
	"net"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/exc"
	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// patience is for what comes at once on a machine that has nothing else to do.
const patience = 20 * time.Second

func TestMain(m *testing.M) { leakcheck.Main(m) }

// rig is a service, a gate before it, and a Cap'n Proto client of that.
type rig struct {
	t         *testing.T
	ctx       context.Context
	service   *sessiontest.Service
	transport *rpcguard.ClientTransport
	conn      *rpc.Conn
	manager   schema.GpuDeviceManager
	ended     chan error // of Serve
}

func newRig(t *testing.T, o sessiontest.Options) *rig {
	t.Helper()
	// No test hangs, not even in its cleanup: the watchdog prints what it waits
	// for.
	watchdog := time.AfterFunc(2*time.Minute, func() {
		debug.SetTraceback("all")
		panic(t.Name() + " hangs")
	})
	t.Cleanup(func() { watchdog.Stop() })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	r := &rig{t: t, ctx: ctx, service: sessiontest.Start(t, o), ended: make(chan error, 1)}
	peer := serveGate(t, r.service, r.ended)
	r.transport = rpcguard.NewClientTransport(peer)
	r.conn = rpc.NewConn(r.transport, nil)
	t.Cleanup(func() { r.conn.Close() })
	r.manager = schema.GpuDeviceManager(r.conn.Bootstrap(ctx))
	t.Cleanup(r.manager.Release)
	return r
}

// serveGate runs a gate in front of service and returns the client's socket.
func serveGate(t *testing.T, service *sessiontest.Service, ended chan<- error) *net.UnixConn {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	ours, theirs := unixConn(t, fds[0]), unixConn(t, fds[1])
	conn, err := client.Dial(context.Background(), service.Socket)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- Serve(context.Background(), ours, conn, Options{})
	}()

	t.Cleanup(func() {
		theirs.Close()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("the gate did not end with its client")
		}
	})

	return theirs
}

func unixConn(t *testing.T, fd int) *net.UnixConn {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	require.NoError(t, err)
	return c.(*net.UnixConn)
}

// await returns the results of a call, which stay valid until the end of the test.
func await[F interface{ Struct() (R, error) }, R any](r *rig, f F, release capnp.ReleaseFunc) R {
	r.t.Helper()
	r.t.Cleanup(release)
	res, err := f.Struct()
	require.NoError(r.t, err)
	return res
}

// refused expects an exception of a type and a code, and returns its reason.
func refused[F interface{ Struct() (R, error) }, R any](r *rig, code gpuerr.Code, f F, release capnp.ReleaseFunc) string {
	r.t.Helper()
	defer release()
	_, err := f.Struct()
	require.Error(r.t, err)
	require.ErrorIs(r.t, rpcguard.FromException(err), code)
	want := map[gpuerr.Class]exc.Type{
		gpuerr.ClassFailed: exc.Failed, gpuerr.ClassOverloaded: exc.Overloaded,
		gpuerr.ClassDisconnected: exc.Disconnected, gpuerr.ClassUnimplemented: exc.Unimplemented,
	}[code.Class()]
	require.True(r.t, exc.IsType(err, want), "%v is not %v", err, want)
	return err.Error()
}

func (r *rig) open() schema.GpuSession {
	r.t.Helper()
	f, release := r.manager.OpenDevice(r.ctx, nil)
	return await(r, f, release).Session()
}

func (r *rig) buffer(s schema.GpuSession, bytes uint64) (schema.GpuBuffer, uint32) {
	r.t.Helper()
	f, release := s.CreateBuffer(r.ctx, bytesOf(bytes, ""))
	b := await(r, f, release).Buffer()
	id, release := b.Id(r.ctx, nil)
	return b, await(r, id, release).Id()
}

func (r *rig) fence(s schema.GpuSession) (schema.GpuFence, uint32) {
	r.t.Helper()
	f, release := s.CreateFence(r.ctx, nil)
	line := await(r, f, release).Fence()
	id, release := line.Id(r.ctx, nil)
	return line, await(r, id, release).Id()
}

func bytesOf(n uint64, usage string) func(schema.GpuMemorySession_createBuffer_Params) error {
	return func(p schema.GpuMemorySession_createBuffer_Params) error {
		p.SetBytes(n)
		return p.SetUsage(usage)
	}
}

func waitFor(d time.Duration) func(schema.GpuFence_wait_Params) error {
	return func(p schema.GpuFence_wait_Params) error {
		p.SetTimeoutNanos(uint64(d))
		return nil
	}
}

type kernel struct {
	program     string
	grid, block uint32
	buffers     []uint32
	fence       schema.GpuFence
}

func (k kernel) params(p schema.GpuSession_launchKernel_Params) error {
	p.SetGrid(k.grid)
	p.SetBlock(k.block)
	list, err := p.NewBufferList(int32(len(k.buffers)))
	if err != nil {
		return err
	}
	for i, id := range k.buffers {
		list.Set(i, id)
	}
	if err := p.SetFence(k.fence.AddRef()); err != nil {
		return err
	}
	return p.SetProgram(k.program)
}

// mapped maps a buffer by its descriptor.
func (r *rig) mapped(b schema.GpuBuffer) []byte {
	r.t.Helper()
	f, release := b.MapReadWrite(r.ctx, nil)
	res := await(r, f, release)
	fd, ok := r.transport.TakeFD(capnp.Client(res.Memory()))
	require.True(r.t, ok, "no descriptor came")
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, int64(res.Addr()), int(res.Len()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}
