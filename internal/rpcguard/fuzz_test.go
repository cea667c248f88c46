package rpcguard

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/schema"
)

// conversations are about the small service of these tests.
func conversations() rpcguardtest.Config {
	kinds := []uint64{openSession, openSession, openSession, openSession, openSession, openBlockThenSession, openBlockThenSession}
	for kind := range uint64(openForeignError + 1) {
		kinds = append(kinds, kind)
	}
	return rpcguardtest.Config{
		Schema: rpcguardtest.LoadSchema(schema.RegisterSchema, managerInterface),
		Root:   managerInterface,
		Prelude: []rpcguardtest.Call{
			{Interface: managerInterface, Method: 1}, {Interface: sessionInterface, Method: 0}, {Interface: bufferInterface, Method: 0},
		},
		Numbers: map[string][]uint64{"capabilityIndex": kinds, "length": {0, 1, 4096, 65536}},
	}
}

// TestFuzzSemantic drives a server process with conversations that are almost
// right, for CAPGPU_FUZZ_SECONDS (3 by default).
func TestFuzzSemantic(t *testing.T) {
	if rpcguardtest.IsServer() {
		serveFuzzed(t)
		return
	}
	rpcguardtest.Fuzz(t, conversations(), func(peer *net.UnixConn) {
		conn := rpc.NewConn(NewClientTransport(peer), nil)
		defer conn.Close()
		ctx := testContext(t)
		m := schema.GpuDeviceManager(conn.Bootstrap(ctx))
		defer m.Release()
		opened, release := m.OpenDevice(ctx, open(openSession))
		defer release()
		made, release := opened.Session().CreateBuffer(ctx, size(1))
		defer release()
		sized, release := made.Buffer().Size(ctx, nil)
		defer release()
		res, err := sized.Struct()
		require.NoError(t, err)
		require.Equal(t, uint64(4096), res.Bytes())
	})
}

// serveFuzzed is the server's side. The service's own log is full of what its
// methods do wrong on purpose; the vat's must stay empty.
func serveFuzzed(t *testing.T) {
	slog.SetDefault(rpcguardtest.Log(t))
	s := newService()
	stop := drain(s)
	defer s.gate.Revoke(nil)
	defer stop()
	rpcguardtest.Serve(t, rpcguardtest.Service{
		Serve: func(conn *net.UnixConn) {
			_ = Serve(context.Background(), conn, s.bootstrap(), Limits{WriteTimeout: time.Second})
		},
		Held: func() string {
			if n := s.live.Load(); n != 0 {
				return strconv.FormatInt(n, 10) + " objects"
			}
			return ""
		},
		Count: s.opened.Load,
	})
}

// drain discards the reports of s's methods until stop.
func drain(s *service) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-s.order:
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// FuzzStream feeds bytes to a server in this process.
func FuzzStream(f *testing.F) {
	for _, poc := range []string{pocSelfTarget, pocCyclicList, pocDisembargo} {
		f.Add(fromHex(f, poc))
	}
	g := rpcguardtest.NewGenerator(conversations(), rand.New(rand.NewPCG(1, 2)))
	for range 20 {
		stream, _ := g.Stream()
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		if len(stream) > 32<<10 {
			return // more than a socket takes without a reader
		}
		s := newService()
		stop := drain(s)
		server, peer := socketpair(t)
		_, err := peer.Write(stream)
		require.NoError(t, err)
		require.NoError(t, peer.Close())
		ended := make(chan error, 1)
		go func() { ended <- Serve(context.Background(), server, s.bootstrap(), Limits{}) }()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatal("Serve does not return")
		}
		require.Zero(t, s.live.Load(), "objects outlive Serve")
		stop()
		s.gate.Revoke(nil)
	})
}
