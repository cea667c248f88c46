package churn

import (
	"context"
	"math/rand/v2"
	"net"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// gateWorker is a worker that speaks Cap'n Proto: it has a gate, and one session.
type gateWorker struct {
	socket  string
	random  *rand.Rand
	most    int
	conn    *rpc.Conn // nil: none
	session schema.GpuSession
	buffers []gateBuffer
	ops     int
}

type gateBuffer struct {
	schema.GpuBuffer
	bytes uint64
}

// gateBytes bounds one of its buffers: one message can write that much.
const gateBytes = 60 << 10

func (w *gateWorker) step() error {
	err := persist(w.operate, w.leave)
	if err == nil {
		w.ops++
	}
	return err
}

func (w *gateWorker) operate(ctx context.Context) error {
	switch {
	case w.conn == nil:
		return w.enter(ctx)
	case len(w.buffers) < w.most && w.random.IntN(2) == 0:
		return w.create(ctx)
	case len(w.buffers) > 0:
		last := len(w.buffers) - 1
		b := w.buffers[last]
		w.buffers = w.buffers[:last]
		return await(b.Close(ctx, nil))
	}
	return nil
}

// enter connects and opens a session.
func (w *gateWorker) enter(ctx context.Context) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: w.socket, Net: "unix"})
	if err != nil {
		return err
	}
	w.conn = rpc.NewConn(rpcguard.NewClientTransport(c), nil)
	m := schema.GpuDeviceManager(w.conn.Bootstrap(ctx))
	defer m.Release()
	opened, release := m.OpenDevice(ctx, nil)
	defer release()
	if _, err := opened.Struct(); err != nil {
		return rpcguard.FromException(err)
	}
	w.session = opened.Session().AddRef()
	return nil
}

func (w *gateWorker) create(ctx context.Context) error {
	n := uint64(1 + w.random.IntN(gateBytes))
	made, release := w.session.CreateBuffer(ctx, func(p schema.GpuMemorySession_createBuffer_Params) error {
		p.SetBytes(n)
		return p.SetUsage("storage")
	})
	defer release()
	if _, err := made.Struct(); err != nil {
		return rpcguard.FromException(err)
	}
	b := made.Buffer().AddRef()
	w.buffers = append(w.buffers, gateBuffer{b, n})
	// All of it is written, so that the kernel counts as many pages as the ledger.
	return await(b.Write(ctx, func(p schema.GpuBuffer_write_Params) error { return p.SetData(make([]byte, n)) }))
}

// await returns how a call ended.
func await[F interface{ Struct() (R, error) }, R any](f F, release capnp.ReleaseFunc) error {
	defer release()
	if _, err := f.Struct(); err != nil {
		return rpcguard.FromException(err)
	}
	return nil
}

// leave forgets everything, which ends with the connection.
func (w *gateWorker) leave() {
	w.buffers = nil
	if w.conn != nil {
		w.session.Release()
		_ = w.conn.Close() // the gate may be gone
		w.conn, w.session = nil, schema.GpuSession{}
	}
}

func (w *gateWorker) forgetLost() {
	if w.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	if err := await(w.session.Describe(ctx, nil)); err != nil {
		w.leave()
	}
}

func (w *gateWorker) closeAll() { w.leave() }

func (w *gateWorker) holds() Holds {
	h := Holds{Ops: w.ops, Buffers: len(w.buffers)}
	if w.conn != nil {
		h.Sessions = 1
	}
	for _, b := range w.buffers {
		h.Bytes += (b.bytes + 4095) &^ 4095
	}
	return h
}
