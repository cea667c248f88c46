package rpcguard

import (
	"context"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/rpc"

	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/schema"
)

var noDeadline time.Time

func benchBuffer(b *testing.B) schema.GpuBuffer {
	s := newService()
	peer, _ := serve(b, s, Limits{})
	conn := rpc.NewConn(NewClientTransport(peer), nil)
	b.Cleanup(func() { conn.Close() })
	m := schema.GpuDeviceManager(conn.Bootstrap(context.Background()))
	opened, release := m.OpenDevice(context.Background(), nil)
	b.Cleanup(release)
	made, release := opened.Session().CreateBuffer(context.Background(), size(1))
	b.Cleanup(release)
	res, err := made.Struct()
	if err != nil {
		b.Fatal(err)
	}
	return res.Buffer()
}

// BenchmarkCall is one call at a time, both ends in this process.
func BenchmarkCall(b *testing.B) {
	buffer := benchBuffer(b)
	b.ReportAllocs()
	for b.Loop() {
		f, release := buffer.Size(context.Background(), nil)
		if _, err := f.Struct(); err != nil {
			b.Fatal(err)
		}
		release()
	}
}

// BenchmarkCallsInFlight keeps 64 calls in flight.
func BenchmarkCallsInFlight(b *testing.B) {
	buffer := benchBuffer(b)
	b.ReportAllocs()
	slots := make(chan struct{}, 64)
	for b.Loop() {
		slots <- struct{}{}
		f, release := buffer.Size(context.Background(), nil)
		go func() {
			if _, err := f.Struct(); err != nil {
				b.Error(err)
			}
			release()
			<-slots
		}()
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// BenchmarkServe is the server's part alone: raw messages in, raw messages out.
func BenchmarkServe(b *testing.B) {
	s := newService()
	peer, _ := serve(b, s, Limits{MaxQuestions: 1 << 30})
	p := newRawPeer(b, peer)
	_ = peer.SetDeadline(noDeadline)
	p.send(rpcguardtest.Bootstrap(0))
	p.send(callBytes(callSpec{id: 1, iface: managerInterface, method: 1, export: p.capOf(0)}))
	p.send(callBytes(callSpec{id: 2, iface: sessionInterface, method: 0, export: p.capOf(1), arg: 1}))
	buffer := p.capOf(2)
	messages := append(callBytes(callSpec{id: 3, iface: bufferInterface, method: 2, export: buffer}), rpcguardtest.Finish(3, false)...)
	call := len(messages) - len(rpcguardtest.Finish(3, false))
	b.ReportAllocs()
	for b.Loop() {
		p.send(messages[:call])
		if _, err := readFrame(p.r, 1<<20); err != nil {
			b.Fatal(err)
		}
		p.send(messages[call:])
	}
}
