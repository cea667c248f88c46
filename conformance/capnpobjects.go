package conformance

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/outcome"
	"capgpu/schema"
)

type rpcBuffer struct {
	c    *rpcConn
	b    schema.GpuBuffer
	id   uint32
	size uint64

	mu sync.Mutex
	// +checklocks:mu
	elsewhere *rpcBuffer
}

func (x *rpcBuffer) ID() uint64 { return uint64(x.id) }

func (x *rpcBuffer) Size() uint64 { return x.size }

// transferBytes bounds a read and a write.
const transferBytes = 64 << 10

func (x *rpcBuffer) Read(ctx context.Context, off uint64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), transferBytes)
		f, release := x.b.Read(ctx, func(a schema.GpuBuffer_read_Params) error {
			a.SetOffset(off)
			a.SetLength(uint32(n))
			return nil
		})

		got, err := result(f, release, func(r schema.GpuBuffer_read_Results) (int, error) {
			data, err := r.Data()
			return copy(p, data), err
		})
		if err != nil {
			return err
		}
		if got != n {
			return io.ErrUnexpectedEOF
		}

		p, off = p[n:], off+uint64(n)
	}
	return nil
}

func (x *rpcBuffer) Write(ctx context.Context, off uint64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), transferBytes)
		f, release := x.b.Write(ctx, func(a schema.GpuBuffer_write_Params) error {
			a.SetOffset(off)
			return a.SetData(p[:n])
		})
		if err := done(f, release); err != nil {
			return err
		}
		p, off = p[n:], off+uint64(n)
	}
	return nil
}

func (x *rpcBuffer) Export(ctx context.Context) (fd int, off, length uint64, err error) {
	f, release := x.b.MapReadWrite(ctx, nil)
	_, err = result(f, release, func(r schema.GpuBuffer_mapReadWrite_Results) (struct{}, error) {
		off, length = r.Addr(), r.Len()
		var ok bool
		if fd, ok = x.c.transport.TakeFD(capnp.Client(r.Memory())); !ok {
			return struct{}{}, gpuerr.New(gpuerr.Protocol, "no descriptor came with the memory")
		}
		return struct{}{}, nil
	})
	return fd, off, length, err
}

// Elsewhere passes the capability to another vat, which holds it over a connection
// to this one.
func (x *rpcBuffer) Elsewhere(ctx context.Context) (Buffer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.elsewhere != nil {
		return x.elsewhere, nil
	}

	here, there, err := pair()
	if err != nil {
		return nil, err
	}

	server := rpc.NewConn(rpc.NewStreamTransport(here), &rpc.Options{BootstrapClient: capnp.Client(x.b.AddRef())})
	conn := rpc.NewConn(rpc.NewStreamTransport(there), nil)
	x.c.mu.Lock()
	x.c.others = append(x.c.others, conn, server)
	x.c.mu.Unlock()
	b := schema.GpuBuffer(conn.Bootstrap(ctx))
	x.elsewhere = &rpcBuffer{c: x.c, b: b, id: x.id, size: x.size}
	return x.elsewhere, b.Resolve(ctx)
}

// pair is two ends of a stream.
func pair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(f); err != nil {
			err = fmt.Errorf("socket pair: %w", err)
		}
		f.Close()
	}
	return ends[0], ends[1], err
}

func (x *rpcBuffer) Close(ctx context.Context) error { return done(x.b.Close(ctx, nil)) }

func (x *rpcBuffer) Release() { x.b.Release() }

type rpcFence struct {
	f  schema.GpuFence
	id uint32
}

func (x rpcFence) ID() uint64 { return uint64(x.id) }

func (x rpcFence) Wait(ctx context.Context, value uint64, timeout time.Duration) (outcome.Outcome, error) {
	f, release := x.f.WaitValue(ctx, func(p schema.GpuFence_waitValue_Params) error {
		p.SetValue(value)
		p.SetTimeoutNanos(uint64(timeout))
		return nil
	})

	end, err := result(f, release, func(r schema.GpuFence_waitValue_Results) (outcome.Outcome, error) {
		o, err := r.Outcome()
		if err != nil {
			return outcome.Outcome{}, err
		}
		if end := outcomeOf(o); r.Ok() != (end.Kind == outcome.OK) {
			return end, gpuerr.New(gpuerr.Protocol, "ok is %t and the outcome %v", r.Ok(), end)
		}
		return outcomeOf(o), nil
	})

	if ctx.Err() != nil {
		err = ctx.Err()
	}

	return end, err
}

func (x rpcFence) Signal(ctx context.Context, value uint64) error {
	return done(x.f.Signal(ctx, func(p schema.GpuFence_signal_Params) error { p.SetValue(value); return nil }))
}

func (x rpcFence) State(ctx context.Context) (reached, promised uint64, err error) {
	f, release := x.f.Value(ctx, nil)
	_, err = result(f, release, func(r schema.GpuFence_value_Results) (struct{}, error) {
		reached, promised = r.Reached(), r.Promised()
		return struct{}{}, nil
	})
	return reached, promised, err
}

func (x rpcFence) Close(ctx context.Context) error { return done(x.f.Close(ctx, nil)) }

type rpcProgram struct {
	p    schema.GpuProgram
	name string
}

func (x *rpcProgram) Info() client.ProgramInfo { return client.ProgramInfo{Name: x.name} }

func (x *rpcProgram) Close(ctx context.Context) error { return done(x.p.Close(ctx, nil)) }
