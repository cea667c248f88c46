package rpcguard

import (
	"encoding/binary"
	"testing"
	"time"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard/rpcguardtest"
)

// Streams that end go-capnp's own server, v3.1.0-alpha.2 and later.
const (
	// Bootstrap, then a Call on its own promised answer: nil dereference in
	// rpc.Conn.handleCall.
	pocSelfTarget = "00000000100000000000000001000100020000000000000000000000030003000000000000000000000000000000000000000000000000000800000001000100180000000000020000000000000000000000000001000000000000000100010000000000000000000100000007000000000000000100000000000000000000000000000000000000"
	// A message of an unknown type with a cyclic composite list as its body: echoing it
	// overflows the stack, which cannot be recovered.
	pocCyclicList = "000000000500000000000000010001000c00000000000000010000000f0000000400000000000100f9ffffff0f000000"
	// Disembargo of an answer that returned without results: nil dereference in
	// rpc.Conn.getAnswerSnapshot.
	pocDisembargo = "000000000b00000000000000010001000d00000000000000000000000100020000000000000000000400000001000100000000000000000000000000010000000000000001000100010000000000000001000000070000000000000001000000"
)

func TestSelfTarget(t *testing.T) {
	peer, ended := serve(t, newService(), Limits{})
	p := newRawPeer(t, peer)
	p.send(fromHex(t, pocSelfTarget))
	require.Contains(t, p.aborted(), "E_PROTOCOL")
	require.ErrorIs(t, <-ended, gpuerr.Protocol)
}

func TestCyclicList(t *testing.T) {
	peer, ended := serve(t, newService(), Limits{})
	p := newRawPeer(t, peer)
	p.send(fromHex(t, pocCyclicList))
	require.Contains(t, p.aborted(), "E_PROTOCOL")
	require.ErrorIs(t, <-ended, gpuerr.Protocol)
}

func TestDisembargoOfEmptyAnswer(t *testing.T) {
	peer, _ := serve(t, newService(), Limits{})
	p := newRawPeer(t, peer)
	p.send(rpcguardtest.Bootstrap(0))
	manager := p.capOf(0)
	p.send(callBytes(callSpec{id: 1, iface: managerInterface, method: 1, export: manager, arg: openNoResults}))
	p.returned(1)
	p.send(fromHex(t, pocDisembargo))
	m, err := p.next()
	require.NoError(t, err)
	require.Equal(t, rpccp.Message_Which_disembargo, m.Which())
	d, err := m.Disembargo()
	require.NoError(t, err)
	require.Equal(t, rpccp.Disembargo_context_Which_receiverLoopback, d.Context().Which())
	p.send(callBytes(callSpec{id: 2, iface: managerInterface, method: 1, export: manager}))
	p.capOf(2)
}

// The same promised capability as an argument twice leaves go-capnp's Conn
// locked for good.
func TestSameReceiverAnswerTwice(t *testing.T) {
	peer, _ := serve(t, newService(), Limits{})
	p := newRawPeer(t, peer)
	opened := uint32(1)
	twice := func(table rpccp.CapDescriptor_List) error {
		for i := range table.Len() {
			if err := rpcguardtest.SetPromise(table.At(i).NewReceiverAnswer, opened, []uint16{0}); err != nil {
				return err
			}
		}
		return nil
	}
	p.send(rpcguardtest.Bootstrap(0))
	manager := p.capOf(0)
	p.send(
		callBytes(callSpec{id: opened, iface: managerInterface, method: 1, export: manager, arg: openBlockThenSession}),
		callBytes(callSpec{id: 2, iface: managerInterface, method: 1, export: manager, arg: openNoResults, caps: twice, capsCount: 2}),
		callBytes(callSpec{id: 3, iface: managerInterface, method: 1, export: manager, arg: openNoResults, caps: twice, capsCount: 2}),
		callBytes(callSpec{id: 4, iface: managerInterface, method: 1, export: manager, arg: openNoResults}),
	)
	p.returned(4)
	// A broken one breaks the call that names it.
	opened = 5
	p.send(
		callBytes(callSpec{id: opened, iface: managerInterface, method: 1, export: manager, arg: openQuota}),
		callBytes(callSpec{id: 6, iface: managerInterface, method: 1, export: manager, arg: openNoResults, caps: twice, capsCount: 2}),
	)
	require.Contains(t, p.exception(6), "E_QUOTA")
}

func TestBreachesAbort(t *testing.T) {
	promise := func(id uint32) *uint32 { return &id }
	capIs := func(f func(rpccp.CapDescriptor) error) func(rpccp.CapDescriptor_List) error {
		return func(l rpccp.CapDescriptor_List) error { return f(l.At(0)) }
	}
	block := callSpec{id: 1, iface: managerInterface, method: 1, arg: openBlock}
	for name, messages := range map[string][][]byte{
		"unknown capability": {callBytes(callSpec{id: 1, export: 77})},
		"unknown promise":    {callBytes(callSpec{id: 1, promise: promise(77)})},
		"finished promise": {callBytes(block), rpcguardtest.Finish(0, false),
			callBytes(callSpec{id: 2, promise: promise(0)})},
		"question reused":         {callBytes(block), callBytes(block)},
		"bootstrap reused":        {callBytes(block), rpcguardtest.Bootstrap(1)},
		"results to third party":  {callBytes(callSpec{id: 1, yourself: true})},
		"unknown finish":          {rpcguardtest.Finish(9, true)},
		"finished twice":          {callBytes(block), callBytes(callSpec{id: 2, promise: promise(1), path: []uint16{0}}), rpcguardtest.Finish(1, true), rpcguardtest.Finish(1, true)},
		"unknown release":         {rpcguardtest.Release(9, 1)},
		"released too often":      {rpcguardtest.Release(0, 2)},
		"path too long":           {callBytes(callSpec{id: 1, promise: promise(0), path: make([]uint16, 9)})},
		"argument of unknown cap": {callBytes(callSpec{id: 1, capsCount: 1, caps: capIs(func(d rpccp.CapDescriptor) error { d.SetReceiverHosted(9); return nil })})},
		"argument of itself":      {callBytes(callSpec{id: 1, capsCount: 1, caps: capIs(func(d rpccp.CapDescriptor) error { return rpcguardtest.SetPromise(d.NewReceiverAnswer, 1, nil) })})},
		"too many capabilities":   {callBytes(callSpec{id: 1, capsCount: 300, caps: func(rpccp.CapDescriptor_List) error { return nil }})},
		"return":                  {rpcguardtest.Build(func(m rpccp.Message) error { _, err := m.NewReturn(); return err })},
		"resolve":                 {rpcguardtest.Build(func(m rpccp.Message) error { _, err := m.NewResolve(); return err })},
		"provide":                 {rpcguardtest.Build(func(m rpccp.Message) error { _, err := m.NewProvide(); return err })},
		"accept":                  {rpcguardtest.Build(func(m rpccp.Message) error { _, err := m.NewAccept(); return err })},
		"join":                    {rpcguardtest.Build(func(m rpccp.Message) error { _, err := m.NewJoin(); return err })},
		"receiver loopback": {rpcguardtest.Build(func(m rpccp.Message) error {
			d, err := m.NewDisembargo()
			d.Context().SetReceiverLoopback(0)
			return err
		})},
		"no root":           {{0, 0, 0, 0, 0, 0, 0, 0}},
		"too many segments": {{64, 0, 0, 0, 0, 0, 0, 0}},
		"garbage":           {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		"claims too much":   {{0, 0, 0, 0, 0, 0, 4, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			peer, ended := serve(t, newService(), Limits{})
			p := newRawPeer(t, peer)
			p.send(rpcguardtest.Bootstrap(0))
			require.Equal(t, uint32(0), p.capOf(0))
			p.send(messages...)
			require.Contains(t, p.aborted(), "E_PROTOCOL")
			require.ErrorIs(t, <-ended, gpuerr.Protocol)
		})
	}
}

func TestTruncatedAndHalfOpen(t *testing.T) {
	whole := callBytes(callSpec{id: 1, iface: managerInterface, method: 1, arg: openBlock})
	for cut := 1; cut < len(whole); cut += 7 {
		peer, ended := serve(t, newService(), Limits{})
		p := newRawPeer(t, peer)
		p.send(rpcguardtest.Bootstrap(0), whole[:cut])
		require.NoError(t, peer.CloseWrite())
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("still waiting for the rest of a message")
		}
	}
	peer, ended := serve(t, newService(), Limits{})
	require.NoError(t, peer.Close())
	require.NoError(t, <-ended)
}

func TestAbortFromPeerEndsQuietly(t *testing.T) {
	peer, ended := serve(t, newService(), Limits{})
	newRawPeer(t, peer).send(rpcguardtest.Build(func(m rpccp.Message) error { _, err := m.NewAbort(); return err }))
	require.NoError(t, <-ended)
}

// Walking must refuse repetition in any form.
func TestWalk(t *testing.T) {
	words := func(w ...uint64) []byte {
		b := make([]byte, 8*len(w))
		for i, x := range w {
			binary.LittleEndian.PutUint64(b[8*i:], x)
		}
		return b
	}
	structPtr := func(off int32, data, ptrs uint64) uint64 {
		return uint64(uint32(off)<<2) | data<<32 | ptrs<<48
	}
	listPtr := func(off int32, code, n uint64) uint64 { return uint64(uint32(off)<<2) | 1 | code<<32 | n<<35 }
	farPtr := func(seg, at uint64, double uint64) uint64 { return 2 | double<<2 | at<<3 | seg<<32 }
	one := func(w ...uint64) [][]byte { return [][]byte{words(w...)} }
	for name, c := range map[string]struct {
		segments [][]byte
		ok       bool
	}{
		"null":                  {one(0), true},
		"empty segment":         {one(), false},
		"struct":                {one(structPtr(0, 1, 0), 7), true},
		"struct beyond":         {one(structPtr(0, 2, 0), 7), false},
		"struct before":         {one(structPtr(-3, 1, 0), 7), false},
		"self struct":           {one(structPtr(0, 0, 1), structPtr(-1, 0, 1)), false},
		"shared twice":          {one(structPtr(0, 0, 2), structPtr(1, 1, 0), structPtr(0, 1, 0), 7), false},
		"bytes":                 {one(listPtr(0, 2, 8), 0), true},
		"bytes beyond":          {one(listPtr(0, 2, 9), 0), false},
		"void list":             {one(listPtr(0, 0, maxEmptyElements)), true},
		"large void list":       {one(listPtr(0, 0, maxEmptyElements+1)), false},
		"huge void list":        {one(listPtr(0, 0, 1<<29-1)), false},
		"void lists":            {one(structPtr(0, 0, 2), listPtr(1, 0, maxEmptyElements), listPtr(0, 0, 1)), false},
		"composite":             {one(listPtr(0, 7, 2), structPtr(2, 1, 0), 1, 2), true},
		"composite too many":    {one(listPtr(0, 7, 2), structPtr(3, 1, 0), 1, 2), false},
		"composite of nothing":  {one(listPtr(0, 7, 0), structPtr(1<<28, 0, 0)), false},
		"composite negative":    {one(listPtr(0, 7, 1), structPtr(-1, 1, 0), 1), false},
		"composite of lists":    {one(listPtr(0, 7, 1), listPtr(1, 2, 1), 1), false},
		"capability":            {one(3 | 5<<32), true},
		"unknown kind":          {one(7), false},
		"far":                   {[][]byte{words(farPtr(1, 0, 0)), words(structPtr(0, 1, 0), 9)}, true},
		"far, no segment":       {one(farPtr(1, 0, 0)), false},
		"far, out of bounds":    {one(farPtr(0, 9, 0)), false},
		"far to itself":         {one(farPtr(0, 0, 0)), false},
		"double far":            {[][]byte{words(farPtr(1, 0, 1)), words(farPtr(2, 0, 0), structPtr(0, 1, 0)), words(9)}, true},
		"double far, bad pad":   {[][]byte{words(farPtr(1, 0, 1)), words(structPtr(0, 0, 0), structPtr(0, 1, 0)), words(9)}, false},
		"double far, bad tag":   {[][]byte{words(farPtr(1, 0, 1)), words(farPtr(2, 0, 0), farPtr(2, 0, 0)), words(9)}, false},
		"double far, no target": {[][]byte{words(farPtr(1, 0, 1)), words(farPtr(7, 0, 0), structPtr(0, 1, 0))}, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkPointers(c.segments)
			require.Equal(t, c.ok, err == nil, "%v", err)
		})
	}
	deep := make([]uint64, 0, 64)
	for range maxDepth {
		deep = append(deep, structPtr(0, 0, 1))
	}
	require.NoError(t, checkPointers(one(append(deep, 0)...)))
	require.Error(t, checkPointers(one(append(deep, structPtr(0, 0, 1), 0)...)))
}

// Descriptors that a peer attaches are dropped by the kernel, and a peer that
// does not take ours still gets its results.
func TestDescriptorsOnlyGoOut(t *testing.T) {
	peer, _ := serve(t, newService(), Limits{})
	var pipe [2]int
	require.NoError(t, unix.Pipe2(pipe[:], unix.O_CLOEXEC))
	defer unix.Close(pipe[0])
	_, _, err := peer.WriteMsgUnix(rpcguardtest.Bootstrap(0), unix.UnixRights(pipe[1]), nil)
	require.NoError(t, err)
	require.NoError(t, unix.Close(pipe[1]))
	p := newRawPeer(t, peer)
	manager := p.capOf(0)
	n, err := unix.Read(pipe[0], make([]byte, 1))
	require.NoError(t, err)
	require.Zero(t, n, "the end of the pipe: nobody holds the other side")

	p.send(callBytes(callSpec{id: 1, iface: managerInterface, method: 1, export: manager}))
	p.send(callBytes(callSpec{id: 2, iface: sessionInterface, method: 0, export: p.capOf(1), arg: 1}))
	p.send(callBytes(callSpec{id: 3, iface: bufferInterface, method: 0, export: p.capOf(2)}))
	p.capOf(3)
}

// The limits of the grant link serve an ordinary exchange.
func TestStrictLimits(t *testing.T) {
	peer, ended := serve(t, newService(), StrictLimits())
	p := newRawPeer(t, peer)
	zero, one := uint32(0), uint32(1)
	p.send(rpcguardtest.Bootstrap(0),
		callBytes(callSpec{id: 1, iface: managerInterface, method: 1, promise: &zero}),
		callBytes(callSpec{id: 2, iface: sessionInterface, method: 0, promise: &one, path: []uint16{0}, arg: 1}))
	p.capOf(2)
	p.send(callBytes(callSpec{id: 3, iface: managerInterface, capsCount: 9, caps: func(rpccp.CapDescriptor_List) error { return nil }}))
	require.Contains(t, p.aborted(), "at most 8")
	require.ErrorIs(t, <-ended, gpuerr.Protocol)
}
