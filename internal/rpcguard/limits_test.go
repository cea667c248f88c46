package rpcguard

import (
	"encoding/binary"
	"net"
	"runtime"
	"testing"
	"time"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard/rpcguardtest"
)

// flood sends message over and over until it fails, and returns how many went.
func flood(conn *net.UnixConn, next func(i uint32) []byte) int {
	n := 0
	for ; ; n++ {
		if _, err := conn.Write(next(uint32(n + 1))); err != nil {
			return n
		}
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// heldAfter reports how much the heap grew while f ran.
func heldAfter(f func()) int64 {
	before := heapBytes()
	f()
	return int64(heapBytes()) - int64(before)
}

func TestUnreadResultsStopThePeer(t *testing.T) {
	for name, length := range map[string]uint64{"pings": 0, "large results": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			s := newService()
			go func() {
				for range s.order {
				}
			}()
			defer func() { t.Cleanup(func() { close(s.order) }) }()
			peer, ended := serve(t, s, Limits{WriteTimeout: 300 * time.Millisecond, MaxUnsentBytes: 1 << 20, MaxCalls: 64})
			p := newRawPeer(t, peer)
			p.send(rpcguardtest.Bootstrap(0))
			p.send(callBytes(callSpec{id: 1, iface: managerInterface, method: 1, export: p.capOf(0)}))
			p.send(callBytes(callSpec{id: 2, iface: sessionInterface, method: 0, export: p.capOf(1), arg: 1}))
			buffer := p.capOf(2)
			held := heldAfter(func() {
				sent := flood(peer, func(i uint32) []byte {
					return callBytes(callSpec{id: i + 2, iface: bufferInterface, method: 5, export: buffer, arg2: length})
				})
				require.Less(t, sent, 19_000, "the peer was read on and on")
				err := <-ended
				require.ErrorIs(t, err, gpuerr.Disconnected)
			})
			require.Less(t, held, int64(24<<20))
		})
	}
}

func TestOpenQuestionsAreBounded(t *testing.T) {
	peer, ended := serve(t, newService(), Limits{MaxQuestions: 100})
	p := newRawPeer(t, peer)
	p.send(rpcguardtest.Bootstrap(0))
	manager := p.capOf(0)
	for id := uint32(1); id < 100; id++ {
		p.send(callBytes(callSpec{id: id, iface: managerInterface, method: 1, export: manager, arg: openNoResults}))
		p.returned(id)
	}
	p.send(callBytes(callSpec{id: 100, iface: managerInterface, method: 1, export: manager, arg: openNoResults}))
	require.Contains(t, p.aborted(), "questions without a Finish")
	require.ErrorIs(t, <-ended, gpuerr.Protocol)
}

func TestCapabilitiesAreBounded(t *testing.T) {
	peer, _ := serve(t, newService(), Limits{MaxExports: 3})
	p := newRawPeer(t, peer)
	p.send(rpcguardtest.Bootstrap(0))
	manager := p.capOf(0)
	openOne := func(id uint32) {
		p.send(callBytes(callSpec{id: id, iface: managerInterface, method: 1, export: manager, arg: openSession}))
	}
	openOne(1)
	p.capOf(1)
	openOne(2)
	second := p.capOf(2)
	openOne(3)
	require.Contains(t, p.exception(3), "E_BUSY")
	p.send(rpcguardtest.Bootstrap(4))
	require.Contains(t, p.exception(4), "E_BUSY")
	p.send(rpcguardtest.Release(second, 1))
	openOne(5)
	p.send(rpcguardtest.Finish(1, true)) // releases the first
	p.capOf(5)
	openOne(6)
	p.capOf(6)
}

// Calls that do not end use up the room for calls, but not the way to end them.
func TestCallsInFlightAreBounded(t *testing.T) {
	s := newService()
	peer, _ := serve(t, s, Limits{MaxCalls: 4})
	p := newRawPeer(t, peer)
	p.send(rpcguardtest.Bootstrap(0))
	manager := p.capOf(0)
	for id := uint32(1); id <= 4; id++ {
		p.send(callBytes(callSpec{id: id, iface: managerInterface, method: 1, export: manager, arg: openBlock}))
	}
	for id := uint32(5); id <= 30; id++ {
		p.send(callBytes(callSpec{id: id, iface: managerInterface, method: 1, export: manager, arg: openNoResults}))
	}
	for id := uint32(5); id <= 30; id++ {
		require.Contains(t, p.exception(id), "E_BUSY")
	}
	p.send(rpcguardtest.Finish(1, true))
	require.Contains(t, p.exception(1), "E_CLOSED")
	p.send(callBytes(callSpec{id: 31, iface: managerInterface, method: 1, export: manager, arg: openNoResults}))
	require.Equal(t, rpccp.Return_Which_results, p.returned(31).Which())
}

// Short calls are throttled, never refused.
func TestManyShortCalls(t *testing.T) {
	peer, _ := serve(t, newService(), Limits{MaxCalls: 4})
	p := newRawPeer(t, peer)
	p.send(rpcguardtest.Bootstrap(0))
	manager := p.capOf(0)
	const n = 5000
	go func() {
		for id := uint32(1); id <= n; id++ {
			p.conn.Write(callBytes(callSpec{id: id, iface: managerInterface, method: 1, export: manager, arg: openNoResults}))
		}
	}()
	for id := uint32(1); id <= n; id++ {
		require.Equal(t, rpccp.Return_Which_results, p.returned(id).Which())
	}
}

// unread is how many bytes the other side has not taken yet.
func unread(t *testing.T, c *net.UnixConn) (n int) {
	raw, err := c.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	}))
	require.NoError(t, err)
	return n
}

// A claim costs nothing until its bytes come.
func TestClaimsCostNothing(t *testing.T) {
	claim := make([]byte, 8)
	binary.LittleEndian.PutUint32(claim[4:], 1<<17-1) // just under 1 MiB
	held := heldAfter(func() {
		for range 100 {
			peer, _ := serve(t, newService(), Limits{})
			_, err := peer.Write(claim)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return unread(t, peer) == 0 }, patience, time.Millisecond)
		}
	})
	require.Less(t, held, int64(8<<20))
	large := make([]byte, 8)
	binary.LittleEndian.PutUint32(large[4:], 8<<20) // 64 MiB
	peer, ended := serve(t, newService(), Limits{})
	_, err := peer.Write(large)
	require.NoError(t, err)
	require.ErrorIs(t, <-ended, gpuerr.Protocol)
}

func TestLargeResultIsRefused(t *testing.T) {
	s := newService()
	peer, _ := serve(t, s, Limits{})
	p := newRawPeer(t, peer)
	p.send(rpcguardtest.Bootstrap(0))
	p.send(callBytes(callSpec{id: 1, iface: managerInterface, method: 1, export: p.capOf(0)}))
	p.send(callBytes(callSpec{id: 2, iface: sessionInterface, method: 0, export: p.capOf(1), arg: 1}))
	p.send(callBytes(callSpec{id: 3, iface: bufferInterface, method: 5, export: p.capOf(2), arg2: 2 << 20}))
	require.Contains(t, p.exception(3), "E_INVALID")
}
