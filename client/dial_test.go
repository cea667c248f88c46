package client

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// TestDialWaitsForABusyService: a full line of connections is no reason to give up.
func TestDialWaitsForABusyService(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(listener)
	require.NoError(t, unix.Bind(listener, &unix.SockaddrUnix{Name: path}))
	require.NoError(t, unix.Listen(listener, 1))
	var waiting []int
	defer func() {
		for _, fd := range waiting {
			unix.Close(fd)
		}
	}()
	for full := false; !full; {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		require.NoError(t, err)
		waiting = append(waiting, fd)
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		if full = err == unix.EAGAIN; !full {
			require.NoError(t, err)
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	dialled := make(chan error)
	go func() {
		_, err := Dial(context.Background(), path)
		dialled <- err
	}()
	for range len(waiting) { // those that wait, but for the one that was refused; and the new one
		fd, _, err := unix.Accept(listener)
		require.NoError(t, err)
		unix.Close(fd)
	}
	// It got in, and was closed before it was greeted.
	err = <-dialled
	require.ErrorIs(t, err, gpuerr.Disconnected)
	require.NotErrorIs(t, err, unix.EAGAIN)
}
