package rpcguard

import (
	"bufio"
	"encoding/hex"
	"net"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/schema"
)

const (
	managerInterface = schema.GpuDeviceManager_TypeID
	sessionInterface = schema.GpuMemorySession_TypeID
	bufferInterface  = schema.GpuBuffer_TypeID
)

// callSpec is a Call with a first data word of arguments.
type callSpec struct {
	id        uint32
	iface     uint64
	method    uint16
	export    uint32
	promise   *uint32 // instead of export
	path      []uint16
	arg       uint64
	arg2      uint64
	caps      func(rpccp.CapDescriptor_List) error
	capsCount int32
	yourself  bool
}

func callBytes(s callSpec) []byte {
	return rpcguardtest.Build(func(m rpccp.Message) error {
		c, err := m.NewCall()
		if err != nil {
			return err
		}
		c.SetQuestionId(s.id)
		c.SetInterfaceId(s.iface)
		c.SetMethodId(s.method)
		if s.yourself {
			c.SendResultsTo().SetYourself()
		}
		tgt, err := c.NewTarget()
		if err != nil {
			return err
		}
		if s.promise == nil {
			tgt.SetImportedCap(s.export)
		} else if err := rpcguardtest.SetPromise(tgt.NewPromisedAnswer, *s.promise, s.path); err != nil {
			return err
		}
		p, err := c.NewParams()
		if err != nil {
			return err
		}
		args, err := capnp.NewStruct(p.Segment(), capnp.ObjectSize{DataSize: 16, PointerCount: 2})
		if err != nil {
			return err
		}
		args.SetUint64(0, s.arg)
		args.SetUint64(8, s.arg2)
		if err := p.SetContent(args.ToPtr()); err != nil {
			return err
		}
		if s.caps == nil {
			return nil
		}
		table, err := p.NewCapTable(s.capsCount)
		if err != nil {
			return err
		}
		return s.caps(table)
	})
}

func fromHex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// rawPeer speaks bytes.
type rawPeer struct {
	t    testing.TB
	conn *net.UnixConn
	r    *bufio.Reader
}

func newRawPeer(t testing.TB, conn *net.UnixConn) *rawPeer {
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	return &rawPeer{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func (p *rawPeer) send(messages ...[]byte) {
	p.t.Helper()
	for _, m := range messages {
		_, err := p.conn.Write(m)
		require.NoError(p.t, err)
	}
}

func (p *rawPeer) next() (rpccp.Message, error) {
	f, err := readFrame(p.r, 64<<20)
	if err != nil {
		return rpccp.Message{}, err
	}
	m, err := f.checked()
	if err != nil {
		return rpccp.Message{}, err
	}
	return rpccp.ReadRootMessage(m)
}

// returned reads messages up to the Return of a question.
func (p *rawPeer) returned(id uint32) rpccp.Return {
	p.t.Helper()
	for {
		m, err := p.next()
		require.NoError(p.t, err)
		require.Equal(p.t, rpccp.Message_Which_return, m.Which(), "%v", m)
		ret, err := m.Return()
		require.NoError(p.t, err)
		if ret.AnswerId() == id {
			return ret
		}
	}
}

func (p *rawPeer) capOf(id uint32) uint32 {
	p.t.Helper()
	ret := p.returned(id)
	require.Equal(p.t, rpccp.Return_Which_results, ret.Which())
	res, err := ret.Results()
	require.NoError(p.t, err)
	table, err := res.CapTable()
	require.NoError(p.t, err)
	require.Equal(p.t, rpccp.CapDescriptor_Which_senderHosted, table.At(0).Which())
	return table.At(0).SenderHosted()
}

func (p *rawPeer) exception(id uint32) string {
	p.t.Helper()
	ret := p.returned(id)
	require.Equal(p.t, rpccp.Return_Which_exception, ret.Which())
	e, err := ret.Exception()
	require.NoError(p.t, err)
	reason, err := e.Reason()
	require.NoError(p.t, err)
	return reason
}

// aborted reads up to the Abort and returns its reason; then the stream ends.
func (p *rawPeer) aborted() string {
	p.t.Helper()
	for {
		m, err := p.next()
		require.NoError(p.t, err)
		if m.Which() != rpccp.Message_Which_abort {
			continue
		}
		a, err := m.Abort()
		require.NoError(p.t, err)
		reason, err := a.Reason()
		require.NoError(p.t, err)
		_, err = p.next()
		require.Error(p.t, err)
		return reason
	}
}
