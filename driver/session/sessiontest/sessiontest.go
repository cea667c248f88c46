// Package sessiontest is a whole GPU service in the process of a test: the mock
// device on fake grants, the core, and both sockets. It plays the device-manager in
// its simplest form: one device, one tenant.
//
// The service belongs to its test. At the end of the test the device is closed, its
// ledger must be sound and empty, and nothing of the service may remain.
package sessiontest

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/ddf/fake"
	"capgpu/driver/session"
	"capgpu/gpu"
	"capgpu/gpu/backend/mock"
	"capgpu/gpuerr"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

// Tenant is the one tenant of the service.
const Tenant = "test"

// Options of a service; the zero value is a device with everything allowed.
type Options struct {
	Mock   mock.Options
	Fake   fake.Options
	Config func(*gpu.Config) // changes the core's configuration
	Attach func(*gpu.Attach) // changes what a session is opened with
}

// Service is one running service.
type Service struct {
	Socket string // of the tenant
	Device *gpu.Device

	t        testing.TB
	options  Options
	epoch    uint64
	listener *net.UnixListener
	serving  sync.WaitGroup
	ctx      context.Context // of every socket
	kill     context.CancelFunc

	sessions    sync.WaitGroup
	driver      context.Context // of the sessions' sockets
	endSessions context.CancelFunc
}

// Start runs a service until the end of the test.
func Start(t testing.TB, o Options) *Service {
	t.Helper()
	function, err := fake.New(o.Fake)
	require.NoError(t, err)
	device, err := mock.New(o.Mock)
	require.NoError(t, err)
	grants := function.Grants()
	cfg := gpu.Config{Info: grants.Device, Backend: device, DMA: grants.DMA}
	if o.Config != nil {
		o.Config(&cfg)
	}

	core, err := gpu.New(cfg)
	require.NoError(t, err)
	s := &Service{
		Socket:  filepath.Join(t.TempDir(), "test.sock"),
		Device:  core,
		t:       t,
		options: o,
		epoch:   grants.Device.Epoch,
	}

	s.ctx, s.kill = context.WithCancel(context.Background())
	s.driver, s.endSessions = context.WithCancel(s.ctx)
	s.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: s.Socket, Net: "unixpacket"})
	require.NoError(t, err)
	s.serving.Go(s.runAccept)
	t.Cleanup(func() {
		s.Kill()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, core.Check(), "the ledger of the device")
		require.NoError(t, core.Close(ctx), "close of the device")
		require.Zero(t, function.Pool().Usage().UsedBytes, "DMA memory is left")
		require.NoError(t, function.Close())
	})

	return s
}

// Kill ends every socket of the service at once: all peers see E_DISCONNECTED. It
// returns when everything is dismantled.
func (s *Service) Kill() {
	s.kill()
	s.listener.Close()
	s.serving.Wait()
	s.sessions.Wait()
}

// KillDriver ends only the sessions' sockets, as the end of a driver does.
// Connections to the tenant's socket stay.
func (s *Service) KillDriver() {
	s.endSessions()
	s.sessions.Wait()
}

func (s *Service) runAccept() {
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		conn, err := control.NewConn(dupOf(s.t, c), control.ConnOptions{})
		c.Close()
		if err != nil {
			s.t.Errorf("accept: %v", err)
			return
		}
		s.serving.Go(func() { control.Serve(s.ctx, conn, s.broker) })
	}
}

func dupOf(t testing.TB, c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		t.Errorf("socket: %v", err)
		return -1
	}
	fd := -1
	raw.Control(func(s uintptr) { fd, _ = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	return fd
}

// broker answers the messages of the tenant socket.
func (s *Service) broker(ctx context.Context, m *control.Message) *control.Message {
	defer m.CloseFDs()
	switch m.Type {
	case control.TypeHello:
		return control.NewReply(m, control.HelloReply{Version: control.HelloVersion, Tenant: Tenant}.AppendTo(nil))

	case control.TypeListDevices:
		return control.NewReply(m, control.ListDevicesReply{Devices: []control.DeviceInfo{{
			State: 1, Epoch: s.epoch, MemoryBytes: 1 << 30, VendorID: 0x1de5, DeviceID: 1, Facet: 2, Name: "mock0", Backend: "mock",
		}}}.AppendTo(nil))

	case control.TypeOpenDevice:
		req, err := control.ParseOpenDeviceRequest(m.Body)
		if err == nil && req.Index != 0 {
			err = gpuerr.New(gpuerr.NoDevice, "there is no device %d", req.Index)
		}
		var fd int
		if err == nil {
			fd, err = s.open()
		}
		if err != nil {
			return control.ErrorReply(m, err)
		}
		return control.NewReply(m, control.OpenDeviceReply{Epoch: s.epoch}.AppendTo(nil), fd)

	case control.TypeNextState:
		req, err := control.ParseNextStateRequest(m.Body)
		if err != nil {
			return control.ErrorReply(m, err)
		}
		timeout := time.NewTimer(time.Duration(req.TimeoutNanos))
		defer timeout.Stop()
		reply := control.NextStateReply{Epoch: s.epoch, State: 1}
		if req.Epoch == s.epoch {
			select {
			case <-ctx.Done():
			case <-timeout.C:
			case <-s.Device.Lost():
				reply = control.NextStateReply{Epoch: s.epoch, State: 2, Changed: true, Cause: s.Device.Err().Error()}
			}
		} else {
			reply.Changed = true
		}
		return control.NewReply(m, reply.AppendTo(nil))

	case control.TypeStatus:
		text, err := json.Marshal(s.Device.Status(Tenant))
		if err != nil {
			return control.ErrorReply(m, err)
		}
		return control.NewReply(m, text)
	}

	return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v is not a message of the tenant socket", m.Type))
}

// open opens a session and serves it; it returns the client's end.
func (s *Service) open() (int, error) {
	attach := gpu.Attach{Tenant: Tenant, TenantLimits: ledger.NoLimits(), Limits: ledger.NoLimits(), Facet: gpu.FacetFull}
	if s.options.Attach != nil {
		s.options.Attach(&attach)
	}

	core, err := s.Device.OpenSession(attach)
	if err != nil {
		return -1, err
	}

	ours, theirs, err := shm.Socketpair()
	if err != nil {
		core.Close()
		return -1, err
	}

	conn, err := control.NewConn(ours, control.ConnOptions{})
	if err != nil {
		core.Close()
		unix.Close(theirs)
		return -1, err
	}

	s.sessions.Go(func() { session.Serve(s.driver, conn, core) })
	return theirs, nil
}

// OpenFD opens a session and returns its control socket, which the caller owns.
func (s *Service) OpenFD(t testing.TB) int {
	t.Helper()
	fd, err := s.open()
	require.NoError(t, err)
	return fd
}

// Dial connects a client.
func (s *Service) Dial(t testing.TB) *client.Conn {
	t.Helper()
	c, err := client.Dial(context.Background(), s.Socket)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// Open opens a session through a client; it is closed with the test.
func (s *Service) Open(t testing.TB) *client.Session {
	t.Helper()
	session, err := client.NewSession(s.OpenFD(t), s.epoch)
	require.NoError(t, err)
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}
