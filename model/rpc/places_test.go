package rpc

import (
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm/lmtest"
	"capgpu/schema"
)

// Silent connections keep nobody out.
func TestSilentConnections(t *testing.T) {
	r := newRig(t, lmtest.New())
	var silent []net.Conn
	for range maxOfOne {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
		require.NoError(t, err)
		defer c.Close()
		silent = append(silent, c)
	}

	c, err := Dial(r.ctx, r.path)
	require.NoError(t, err)
	require.Equal(t, "backwards", c.Info().Name)
	require.NoError(t, c.Close())

	// The first of them has learned that its place is gone.
	require.NoError(t, silent[0].SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = silent[0].Read(make([]byte, 4096))
	require.NoError(t, err)
	f, release := r.server.Status(r.ctx, nil)
	defer release()

	_, err = f.Struct()
	// Closed: the call came just before the end of the connection, and was answered.
	require.Contains(t, []gpuerr.Code{gpuerr.Disconnected, gpuerr.Closed}, gpuerr.CodeOf(rpcguard.FromException(err)))
}

// maxOfOne is the largest number of connections of one user.
const maxOfOne = maxConns * 3 / 4

// A client that comes when all places are in use learns so at once.
func TestNoPlace(t *testing.T) {
	r := newRig(t, lmtest.New())
	r.generate(text("a", 1))
	var streams []schema.TokenStream
	for range maxOfOne - 1 {
		server, _ := r.dial()
		m, release := server.LanguageModel(r.ctx, nil)
		defer release()
		f, release := m.Model().Generate(r.ctx, asked(text("a", 1)))
		streams = append(streams, await(r, f, release).Stream())
	}

	_, err := Dial(r.ctx, r.path)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "clients are served")
	closed, release := streams[0].Close(r.ctx, nil)
	await(r, closed, release)
	c, err := Dial(r.ctx, r.path)
	require.NoError(t, err, "that one says nothing now")
	require.NoError(t, c.Close())
	f, release := streams[0].Next(r.ctx, upTo(1, 0))
	defer release()

	_, err = f.Struct()
	require.Error(t, rpcguard.FromException(err))
}

// All connections of a user are one peer, and each of them is a user of that peer.
func TestAskers(t *testing.T) {
	r := newRig(t, lmtest.New())
	r.generate(text("a", 1))
	r.generate(text("a", 1))
	r.server, r.conn = r.dial()
	r.generate(text("a", 1))
	who := r.model.Askers()
	require.Equal(t, "uid"+strconv.Itoa(os.Getuid()), who[0].Peer)
	require.NotEmpty(t, who[0].User)
	require.Equal(t, who[0], who[1])
	require.Equal(t, who[0].Peer, who[2].Peer)
	require.NotEqual(t, who[0].User, who[2].User)
}
