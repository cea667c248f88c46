package openai

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

// TestPeers: another machine is one peer, a user of this one on a UNIX socket is one, and
// on loopback each connection is one.
func TestPeers(t *testing.T) {
	at := func(ip string, port int) net.Conn {
		return &limitedConn{Conn: from{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: port}}, number: uint64(port)}
	}
	require.Equal(t, "10.0.0.1", peerOf(at("10.0.0.1", 1)))
	require.Equal(t, peerOf(at("10.0.0.1", 1)), peerOf(at("10.0.0.1", 2)))
	require.NotEqual(t, peerOf(at("10.0.0.1", 1)), peerOf(at("10.0.0.2", 1)))
	require.NotEqual(t, peerOf(at("127.0.0.1", 1)), peerOf(at("127.0.0.1", 2)))
	require.NotEqual(t, peerOf(at("::1", 1)), peerOf(at("::1", 2)))

	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	l = Limit(l, 2)
	defer l.Close()
	mine, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer mine.Close()
	theirs, err := l.Accept()
	require.NoError(t, err)
	defer theirs.Close()
	require.Equal(t, "uid"+strconv.Itoa(os.Getuid()), peerOf(theirs))
}
