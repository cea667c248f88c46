package rpc

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/internal/rpcguard"
	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/model/lm"
	"capgpu/model/lm/lmtest"
	"capgpu/schema"
)

// conversations covers nearly everything that a client of a model server can send.
func conversations() rpcguardtest.Config {
	return rpcguardtest.Config{
		Schema: rpcguardtest.LoadSchema(schema.RegisterSchema, schema.ModelServer_TypeID),
		Root:   schema.ModelServer_TypeID,
		Prelude: []rpcguardtest.Call{
			{Interface: schema.ModelServer_TypeID, Method: 0},   // languageModel
			{Interface: schema.ModelServer_TypeID, Method: 1},   // embedder
			{Interface: schema.LanguageModel_TypeID, Method: 1}, // generate
			{Interface: schema.TokenStream_TypeID, Method: 0},   // next
		},
		Numbers: map[string][]uint64{
			"max": {1, 8, 2000}, "timeoutNanos": {0, 1e6, 1e9}, "maxTokens": {0, 1, 20},
			"logProbs": {0, 1, 5}, "topK": {0, 1, 1 << 31}, "penaltyLast": {0, 64},
		},
		Texts: map[string][]string{
			"text": {"", "one two", "three"}, "role": {"user", "system", "root"}, "content": {"", "hi"},
		},
	}
}

// TestFuzzConversations attacks a model server in a process of its own with
// conversations of the real interfaces, half of them damaged, for
// CAPGPU_FUZZ_SECONDS (3 by default). Nothing may crash, hang, be reported as a
// bug, or stay behind, and an ordinary client must be served afterwards as before.
func TestFuzzConversations(t *testing.T) {
	if rpcguardtest.IsServer() {
		serveFuzzed(t)
		return
	}
	rpcguardtest.Fuzz(t, conversations(), func(peer *net.UnixConn) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		conn := rpc.NewConn(rpcguard.NewClientTransport(peer), nil)
		defer conn.Close()
		t.Run("client", func(t *testing.T) {
			r := &rig{t: t, ctx: ctx, conn: conn, server: schema.ModelServer(conn.Bootstrap(ctx))}
			t.Cleanup(r.server.Release)
			got, _ := r.all(r.generate(text("one two", 7)))
			require.Equal(t, "two one", got)
		})
	})
}

func serveFuzzed(t *testing.T) {
	log := rpcguardtest.Log(t)
	var asked atomic.Int64
	model := lmtest.New()
	model.Refuse = func(lm.Request) error { asked.Add(1); return nil }
	rpcguardtest.Serve(t, rpcguardtest.Service{
		Serve: func(conn *net.UnixConn) {
			_ = Serve(context.Background(), conn, model, Options{Log: log, Limits: rpcguard.Limits{WriteTimeout: time.Second}})
		},
		Held: func() string {
			if n := model.Open(); n > 0 {
				return fmt.Sprintf("%d answers", n)
			}
			return ""
		},
		Count: asked.Load,
	})
}
