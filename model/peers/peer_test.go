package peers

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// from is a connection with a peer's address.
type from struct {
	net.Conn
	addr net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.addr }

// A user on a UNIX socket is a peer, and so is another machine. This machine is one
// peer, by any of its addresses, and so is a host with many IPv6 addresses.
func TestBehind(t *testing.T) {
	for ip, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1",
		"127.0.0.1": "loopback", "127.8.9.10": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback",
		"2001:db8::1": "2001:db8::/64", "2001:db8:0:0:ffff::": "2001:db8::/64", "2001:db8:0:1::": "2001:db8:0:1::/64",
	} {
		require.Equal(t, want, Behind(from{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 7}}), ip)
	}

	require.Equal(t, "fe80::/64", Behind(from{addr: &net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}}))

	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	defer l.Close()
	mine, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer mine.Close()

	theirs, err := l.Accept()
	require.NoError(t, err)
	defer theirs.Close()
	require.Equal(t, "uid"+strconv.Itoa(os.Getuid()), Behind(theirs))

	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	require.Equal(t, "unknown", Behind(a))
}
