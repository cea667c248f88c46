package ddfrpc

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

func pair(t *testing.T) (ours *net.UnixConn, theirs int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fds[0]), "grant link")
	c, err := net.FileConn(f)
	f.Close()
	require.NoError(t, err)
	return c.(*net.UnixConn), fds[1]
}

// Without a manager at the other end there are no grants, whenever it went: the
// connection may be found dead in the sending or in the receiving.
func TestDialDeadManager(t *testing.T) {
	refused := func(c *net.UnixConn) {
		t.Helper()
		_, err := Dial(context.Background(), c)
		require.ErrorIs(t, err, gpuerr.Disconnected)
		require.EqualError(t, err, "take the grants from the device-manager: E_DISCONNECTED: the grant set is missing: device-manager closed the grant link")
	}
	for range 50 {
		ours, theirs := pair(t)
		require.NoError(t, unix.Close(theirs))
		refused(ours)
	}
	ours, theirs := pair(t)
	heard := make(chan error)
	go func() {
		_, err := unix.Read(theirs, make([]byte, 4096))
		unix.Close(theirs)
		heard <- err
	}()
	refused(ours)
	require.NoError(t, <-heard)
}
