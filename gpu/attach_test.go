package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/ring"
)

// attach is the client's end of a real ring, in the same process.
func attach(t testing.TB, info QueueInfo) *ring.Client {
	t.Helper()
	c := attachNow(t, info)
	t.Cleanup(func() { c.Close() })
	return c
}

// attachNow is attach where the caller closes.
func attachNow(t testing.TB, info QueueInfo) *ring.Client {
	t.Helper()
	var fds [3]int
	for i, fd := range []int{info.RingFD, info.SQFD, info.CQFD} {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		fds[i] = dup
	}
	c, err := ring.Attach(fds[0], fds[1], fds[2])
	require.NoError(t, err)
	return c
}
