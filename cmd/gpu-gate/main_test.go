package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/driver/session/sessiontest"
	"capgpu/internal/leakcheck"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// The test binary is the command when this is set.
const runEnv = "CAPGPU_RUN_GPU_GATE"

func TestMain(m *testing.M) {
	if os.Getenv(runEnv) != "" {
		main()
	}
	leakcheck.Main(m)
}

func command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), runEnv+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

func TestRefusesToStartWithoutDescriptors(t *testing.T) {
	cmd, stderr := command(t)
	require.Error(t, cmd.Run())
	require.Equal(t, statusWrongStart, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr.String(), "descriptor 3")

	pair := socketpair(t, unix.SOCK_DGRAM)
	cmd, stderr = command(t)
	cmd.ExtraFiles = pair[:]
	require.Error(t, cmd.Run())
	require.Equal(t, statusWrongStart, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr.String(), "another kind of socket")

	cmd, stderr = command(t, "now")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), `"now"`)
}

func TestHelp(t *testing.T) {
	cmd, _ := command(t, "--help")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "exit status")
}

func socketpair(t *testing.T, socketType int) [2]*os.File {
	fds, err := unix.Socketpair(unix.AF_UNIX, socketType|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	a, b := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { a.Close(); b.Close() })
	return [2]*os.File{a, b}
}

// start runs a gate, gives it a client of service, and returns the client's socket.
func start(t *testing.T, service *sessiontest.Service) (*exec.Cmd, *net.UnixConn) {
	pair, link := socketpair(t, unix.SOCK_STREAM), socketpair(t, unix.SOCK_SEQPACKET)
	tenant, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: service.Socket, Net: "unixpacket"})
	require.NoError(t, err)
	defer tenant.Close()

	file, err := tenant.File()
	require.NoError(t, err)
	defer file.Close()
	cmd, _ := command(t)
	cmd.ExtraFiles = []*os.File{link[0]}
	require.NoError(t, cmd.Start())
	link[0].Close()
	give(t, link[1], int(pair[0].Fd()), int(file.Fd()))
	pair[0].Close()
	conn, err := net.FileConn(pair[1])
	require.NoError(t, err)
	pair[1].Close()
	t.Cleanup(func() { conn.Close() })
	return cmd, conn.(*net.UnixConn)
}

// give answers a gate that asks for a client.
func give(t *testing.T, link *os.File, fds ...int) {
	fd, err := unix.FcntlInt(link.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	conn, err := control.NewConn(fd, control.ConnOptions{})
	require.NoError(t, err)
	defer conn.Close()
	ask, err := conn.Recv()
	require.NoError(t, err)
	require.Equal(t, control.TypeAwaitClient, ask.Type)
	require.NoError(t, conn.Send(t.Context(), control.NewReply(ask, nil, fds...)))
}

// If no client comes any more, a gate ends, and that is no failure.
func TestEndsWithoutAClient(t *testing.T) {
	link := socketpair(t, unix.SOCK_SEQPACKET)
	cmd, stderr := command(t)
	cmd.ExtraFiles = []*os.File{link[0]}
	require.NoError(t, cmd.Start())
	link[0].Close()
	link[1].Close()
	await(t, cmd)
	require.Equal(t, 0, cmd.ProcessState.ExitCode())
	require.NotContains(t, stderr.String(), "level=ERROR")
}

func await(t *testing.T, cmd *exec.Cmd) {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = cmd.Process.Kill()
		t.Fatal("the gate does not end")
	}
}

func TestServesOneClient(t *testing.T) {
	service := sessiontest.Start(t, sessiontest.Options{})
	cmd, socket := start(t, service)
	conn := rpc.NewConn(rpcguard.NewClientTransport(socket), nil)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	m := schema.GpuDeviceManager(conn.Bootstrap(ctx))
	f, release := m.OpenDevice(ctx, nil)
	_, err := f.Struct()
	require.NoError(t, err)
	release()
	m.Release()
	require.NoError(t, conn.Close())
	await(t, cmd)
	require.Equal(t, 0, cmd.ProcessState.ExitCode())

	cmd, socket = start(t, service)
	_, err = socket.Write([]byte("GET / HTTP/1.1\r\nHost: gpu\r\n\r\n"))
	require.NoError(t, err)
	await(t, cmd)
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
}
