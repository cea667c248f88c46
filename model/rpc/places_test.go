package rpc

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/model/lm/lmtest"
	"capgpu/schema"
)

// ended makes an end for place i of a list of those that were told to.
func ended(list *[]int, i int) context.CancelCauseFunc {
	return func(err error) { *list = append(*list, i) }
}

// Who is quiet for the longest goes for one that comes; who waits in a call or has an
// answer stays, the latter for as long as it asks for more of it.
func TestPlaceOfTheQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all places
		var out []int
		var have []*place
		for i := range maxConns {
			p, err := all.take(uint32(i/(maxConns/2)), ended(&out, i))
			require.NoError(t, err)
			have = append(have, p)
			time.Sleep(time.Millisecond) // of the bubble: each is quiet for a time of its own
		}
		for i, p := range have {
			switch i {
			case 0:
				p.said(+1, 0) // is in a call
			case 2:
				p.said(+1, 0) // has just been in one
				p.said(-1, 0)
			case 3:
			default:
				p.said(0, +1)
			}
		}
		for i, want := range []int{3, 2} {
			_, err := all.take(2, ended(&out, maxConns+i))
			require.NoError(t, err)
			require.Equal(t, want, out[len(out)-1])
			time.Sleep(time.Millisecond)
		}
		require.Len(t, out, 2)
		time.Sleep(unread - 2*maxConns*time.Millisecond) // so those with answers still ask
		_, err := all.take(2, ended(&out, 0))            // of those of user 2, as the others have answers
		require.NoError(t, err)
		require.Equal(t, maxConns, out[2])
		time.Sleep(unread)
		have[1].said(0, 0)
		_, err = all.take(0, ended(&out, 0))
		require.NoError(t, err)
		require.GreaterOrEqual(t, out[3], maxConns/2, "of the user who has the most")
		require.Less(t, out[3], maxConns)
		for i, p := range have {
			p.leave()
			require.NotContains(t, all.held, p, i)
		}
		require.Equal(t, 1, all.leaving, "that of user 2 has not left")
	})
}

// One user does not have all places, also if all are in use; and no more than so many are
// on their way out.
func TestPlacesOfAUser(t *testing.T) {
	var all places
	var have []*place
	none := func(error) {}
	for range maxPerUser {
		p, err := all.take(7, none)
		require.NoError(t, err)
		p.said(+1, 0)
		have = append(have, p)
	}
	_, err := all.take(7, none)
	require.ErrorIs(t, err, gpuerr.Busy)
	other, err := all.take(8, none)
	require.NoError(t, err)
	_, err = all.take(7, none)
	require.ErrorIs(t, err, gpuerr.Busy)
	require.False(t, other.lost, "it is another's")
	have[0].leave()
	last, err := all.take(7, none)
	require.NoError(t, err)
	var done []func()
	for range maxLeaving {
		d, ok := all.refusing()
		require.True(t, ok)
		done = append(done, d)
	}
	_, ok := all.refusing()
	require.False(t, ok)
	_, err = all.take(7, none)
	require.ErrorIs(t, err, gpuerr.Busy, "nobody may leave")
	done[0]()
	_, err = all.take(7, none)
	require.NoError(t, err)
	require.True(t, last.lost)
}

// Connections that say nothing lock nobody out.
func TestSilentConnections(t *testing.T) {
	r := newRig(t, lmtest.New())
	var silent []net.Conn
	for range maxConns {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
		require.NoError(t, err)
		defer c.Close()
		silent = append(silent, c)
	}
	c, err := Dial(r.ctx, r.path)
	require.NoError(t, err)
	require.Equal(t, "backwards", c.Info().Name)
	require.NoError(t, c.Close())
	// The first of them has been told that its place is gone.
	require.NoError(t, silent[0].SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = silent[0].Read(make([]byte, 4096))
	require.NoError(t, err)
	f, release := r.server.Status(r.ctx, nil)
	defer release()
	_, err = f.Struct()
	// Closed: the call came just before the end of the connection, and was answered.
	require.Contains(t, []gpuerr.Code{gpuerr.Disconnected, gpuerr.Closed}, gpuerr.CodeOf(rpcguard.FromException(err)))
}

// Who comes when all places are in use hears so at once.
func TestNoPlace(t *testing.T) {
	r := newRig(t, lmtest.New())
	r.generate(text("a", 1))
	var streams []schema.TokenStream
	for range maxPerUser - 1 {
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

// Turns are those of connections.
func TestTags(t *testing.T) {
	r := newRig(t, lmtest.New())
	r.generate(text("a", 1))
	r.generate(text("a", 1))
	r.server, r.conn = r.dial()
	r.generate(text("a", 1))
	asked := r.model.Requests()
	require.NotEmpty(t, asked[0].Tag)
	require.Equal(t, asked[0].Tag, asked[1].Tag)
	require.NotEmpty(t, asked[2].Tag)
	require.NotEqual(t, asked[0].Tag, asked[2].Tag)
}
