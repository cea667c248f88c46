package driver

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/ledger"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// A driver that device-manager did not start reports exactly what is wrong.
func TestCheckLink(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()

	require.ErrorContains(t, checkLink(int(r.Fd()), unix.SOCK_STREAM), "it is no socket")
	require.ErrorContains(t, checkLink(9999, unix.SOCK_STREAM), "it is not open")

	a, b, err := shm.Socketpair()
	require.NoError(t, err)
	defer unix.Close(a)
	defer unix.Close(b)

	require.NoError(t, checkLink(a, unix.SOCK_SEQPACKET))
	require.ErrorContains(t, checkLink(a, unix.SOCK_STREAM), "of another type")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	defer f.Close()

	require.ErrorContains(t, checkLink(int(f.Fd()), unix.SOCK_STREAM), "no UNIX socket")
}

// The error names everything that is missing, and the grant set by its name.
func TestCheckLinks(t *testing.T) {
	a, b, err := shm.Socketpair()
	require.NoError(t, err)
	defer unix.Close(a)
	defer unix.Close(b)

	err = checkLinks(9998, 9999)
	require.ErrorIs(t, err, gpuerr.Invalid)
	require.ErrorContains(t, err, "descriptor 9998 is not the supervision link, a SEQPACKET socket (it is not open); "+
		"the grant set is missing: descriptor 9999 is not the grant link, a STREAM socket (it is not open); a driver is started by device-manager")

	err = checkLinks(a, 9999)
	require.ErrorContains(t, err, "E_INVALID: the grant set is missing: descriptor 9999")
	err = checkLinks(9998, a)
	require.ErrorContains(t, err, fmt.Sprintf("the grant set is missing: descriptor %d is not the grant link, a STREAM socket (it is a socket of another type)", a))
	c, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(c[0])
	defer unix.Close(c[1])

	require.NoError(t, checkLinks(a, c[0]))
}

// A driver with a dead manager reports that it has no grants, and why.
func TestNoManager(t *testing.T) {
	leakcheck.Check(t)
	a, b, err := shm.Socketpair()
	require.NoError(t, err)
	unix.Close(b)
	c, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	unix.Close(c[1])
	l, err := newLinks(a, c[0])
	require.NoError(t, err)
	err = run(context.Background(), Options{}, l)
	require.ErrorIs(t, err, gpuerr.Disconnected)
	require.ErrorContains(t, err, "E_DISCONNECTED: the grant set is missing: device-manager closed the grant link")
}

func TestNewLinksOwnsBoth(t *testing.T) {
	leakcheck.Check(t)
	a, b, err := shm.Socketpair()
	require.NoError(t, err)
	defer unix.Close(b)

	c, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(c[1])
	l, err := newLinks(a, c[0])
	require.NoError(t, err)
	require.NoError(t, l.close())

	// Swapped links are refused, and both are closed.
	a, b2, err := shm.Socketpair()
	require.NoError(t, err)
	defer unix.Close(b2)

	d, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(d[1])
	_, err = newLinks(d[0], a)
	require.Error(t, err)
}

func TestLimitsOf(t *testing.T) {
	l := limitsOf([]control.Limit{{Class: uint32(ledger.Buffers), Amount: 7}})
	require.EqualValues(t, 7, l[ledger.Buffers])
	require.Equal(t, uint64(ledger.Unlimited), l[ledger.Sessions], "what is not named is not limited")
	require.Equal(t, time.Duration(math.MaxInt64), deadlineOf(math.MaxUint64))
}

func TestHalveSessions(t *testing.T) {
	s := gpu.Status{Tenants: []gpu.TenantStatus{{Sessions: make([]gpu.SessionStatus, 5)}, {}}}
	for i, want := range []int{2, 1, 0} {
		require.True(t, halveSessions(&s), "round %d", i)
		require.Len(t, s.Tenants[0].Sessions, want)
	}
	require.False(t, halveSessions(&s), "nothing is left to leave out")
}

// A session that never ends does not keep the driver from exiting.
func TestCloseWithoutTheLastSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d driver
		require.NoError(t, d.beginSession())
		ctx, cancel := context.WithTimeout(t.Context(), closeTimeout)
		defer cancel()
		require.ErrorIs(t, d.awaitSessions(ctx), gpuerr.Busy)
		d.sessions.Done()
		require.NoError(t, d.awaitSessions(t.Context()))
	})
}
