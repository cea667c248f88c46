package peers

import (
	"context"
	"net"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/schema"
)

// fence answers the smallest call of our own schema: no arguments, one word back.
type fence struct{ value uint64 }

func (f *fence) Poll(_ context.Context, call schema.GpuFence_poll) error {
	r, err := call.AllocResults()
	if err != nil {
		return err
	}
	f.value++
	r.SetValue(f.value)
	return nil
}

func (f *fence) Wait(context.Context, schema.GpuFence_wait) error           { return nil }
func (f *fence) Close(context.Context, schema.GpuFence_close) error         { return nil }
func (f *fence) Id(context.Context, schema.GpuFence_id) error               { return nil }
func (f *fence) Value(context.Context, schema.GpuFence_value) error         { return nil }
func (f *fence) WaitValue(context.Context, schema.GpuFence_waitValue) error { return nil }
func (f *fence) Signal(context.Context, schema.GpuFence_signal) error       { return nil }

func serveCapnp(socket string) error {
	l, err := listen(socket)
	if err != nil {
		return err
	}
	c, err := l.Accept()
	if err != nil {
		return err
	}
	conn := rpc.NewConn(rpc.NewStreamTransport(c), &rpc.Options{BootstrapClient: capnp.Client(schema.GpuFence_ServerToClient(&fence{}))})
	<-conn.Done()
	return nil
}

func dialCapnp(socket string) (call, disconnect func() error, err error) {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	conn := rpc.NewConn(rpc.NewStreamTransport(c), nil)
	ctx := context.Background()
	f := schema.GpuFence(conn.Bootstrap(ctx))
	call = func() error {
		answer, release := f.Poll(ctx, nil)
		defer release()
		_, err := answer.Struct()
		return err
	}
	return call, func() error { f.Release(); return conn.Close() }, nil
}
