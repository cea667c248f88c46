package gate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/internal/rpcguard"
	"capgpu/internal/shm"
	"capgpu/schema"

	"capnproto.org/go/capnp/v3/rpc"
)

// silentService opens a session on a driver that makes fences and never answers a
// request to destroy one.
type silentService struct {
	t    *testing.T
	done chan struct{} // one token for each session that ended
}

func (s *silentService) broker(ctx context.Context, m *control.Message) *control.Message {
	switch m.Type {
	case control.TypeHello:
		return control.NewReply(m, control.HelloReply{Version: control.HelloVersion, Tenant: "test"}.AppendTo(nil))
	case control.TypeOpenDevice:
		ours, theirs, err := shm.Socketpair()
		require.NoError(s.t, err)
		conn, err := control.NewConn(ours, control.ConnOptions{})
		require.NoError(s.t, err)
		go func() {
			_ = control.Serve(context.Background(), conn, s.session)
			s.done <- struct{}{}
		}()
		return control.NewReply(m, control.OpenDeviceReply{Epoch: 1}.AppendTo(nil), theirs)
	}
	return control.NewReply(m, nil)
}

func (s *silentService) session(ctx context.Context, m *control.Message) *control.Message {
	switch m.Type {
	case control.TypeDescribe:
		return control.NewReply(m, control.Description{Facet: uint32(client.FacetFull)}.AppendTo(nil))
	case control.TypeCreateFence:
		return control.NewReply(m, control.HandleBody{Handle: 1<<32 | 1}.AppendTo(nil))
	case control.TypeDestroyFence:
		<-ctx.Done() // until the gate gives up
	}
	return control.NewReply(m, nil)
}

// If a client vanishes, its gate ends even when the driver does not answer the
// gate's last requests.
func TestVanishingBeforeASilentDriver(t *testing.T) {
	s := &silentService{t: t, done: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()

	conn, ended := gateTo(ctx, t, s.broker, func() { s.done <- struct{}{} })
	manager := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	opened, release := manager.OpenDevice(ctx, nil)
	made, release2 := opened.Session().CreateFence(ctx, nil)
	_, err := made.Struct()
	require.NoError(t, err)
	conn.Close()
	release2()
	release()
	manager.Release()
	for _, what := range []string{"a socket of the service", "the other socket"} {
		select {
		case <-s.done:
		case <-ctx.Done():
			t.Fatalf("%s stays open", what)
		}
	}

	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-ctx.Done():
		t.Fatal("the gate does not end")
	}
}

// gateTo is a connection to a gate in front of a service of the test's, and the
// gate's result. over is called when the service gets no more requests.
func gateTo(ctx context.Context, t *testing.T, broker control.Handler, over func()) (conn *rpc.Conn, ended <-chan error) {
	t.Helper()
	ours, theirs, err := shm.Socketpair()
	require.NoError(t, err)
	tenant, err := control.NewConn(ours, control.ConnOptions{})
	require.NoError(t, err)
	go func() {
		defer over()
		_ = control.Serve(context.Background(), tenant, broker)
	}()

	service, err := client.NewConn(ctx, theirs)
	require.NoError(t, err)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	end := make(chan error, 1)
	go func() { end <- Serve(context.Background(), unixConn(t, fds[0]), service, Options{}) }()
	return rpc.NewConn(rpcguard.NewClientTransport(unixConn(t, fds[1])), nil), end
}
