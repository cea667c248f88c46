package gate

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/client"
	"capgpu/driver/session/sessiontest"
	"capgpu/gpu"
	"capgpu/internal/rpcguard"
	"capgpu/internal/rpcguard/rpcguardtest"
	"capgpu/schema"
)

// conversations covers nearly everything that a client of the schema can send.
func conversations() rpcguardtest.Config {
	const m, p, s = schema.GpuMemorySession_TypeID, schema.GpuProgramSession_TypeID, schema.GpuSession_TypeID
	return rpcguardtest.Config{
		Schema: rpcguardtest.LoadSchema(schema.RegisterSchema, schema.GpuSession_TypeID),
		Root:   schema.GpuDeviceManager_TypeID,
		Prelude: []rpcguardtest.Call{
			{Interface: schema.GpuDeviceManager_TypeID, Method: 1},                          // openDevice
			{Interface: m, Method: 0}, {Interface: m, Method: 0}, {Interface: m, Method: 0}, // createBuffer
			{Interface: m, Method: 4}, // createFence
			{Interface: p, Method: 0}, // openProgram
			{Interface: s, Method: 3}, // createQueue
		},
		// These are numbers of one connection: ids ascend from 1 over all of its
		// sessions.
		Numbers: map[string][]uint64{
			"capabilityIndex": {0},
			"bytes":           {1, 4096, 4096, 8192, 1 << 20, 1<<20 + 1},
			"buffer":          {1, 2, 3, 4}, "bufferList": {1, 2, 3, 4}, "dst": {1, 2, 3}, "src": {1, 2, 3},
			"fence": {4, 5}, "waitFence": {4, 5}, "value": {1, 2, 3}, "waitValue": {1, 2, 3},
			"grid": {1, 4}, "gridX": {0, 1, 3}, "gridY": {0}, "gridZ": {0}, // against a default of 1
			"block": {1, 64}, "blockX": {0, 63}, "blockY": {0}, "blockZ": {0},
			"timeoutNanos": {0, 1e6, 1e9}, "deadlineNanos": {0, 1e6}, "maxDeadlineNanos": {0, 1e6},
			"offset": {0, 4, 4096}, "length": {0, 4, 4096}, "max": {1, 8},
			"fillOffset": {0, 4}, "fillLength": {4, 4096},
			"facet": {0, 1, 2},
		},
		Texts: map[string][]string{
			"name":     {"copy", "vecadd_f32", "fill_u32", "spin", "trap"},
			"program":  {"copy", "vecadd_f32", "fill_u32", "spin", "trap"},
			"programs": {"copy", "vecadd_f32"},
			"usage":    {"", "storage", "upload readback"},
			"resource": {"deviceMemory", "buffers", "queueSlots"},
		},
	}
}

// TestFuzzConversations attacks a gate, and the service behind it, in a process of
// their own, with conversations of the real interfaces, half of them damaged, for
// CAPGPU_FUZZ_SECONDS (3 by default). Nothing may crash, hang, be reported as a
// bug, or stay behind, and an ordinary client must be served afterwards as before.
func TestFuzzConversations(t *testing.T) {
	if rpcguardtest.IsServer() {
		serveFuzzed(t)
		return
	}
	rpcguardtest.Fuzz(t, conversations(), func(peer *net.UnixConn) { runOrdinaryClient(t, peer) })
}

// runOrdinaryClient adds on the device and reads the sum through a mapping.
func runOrdinaryClient(t *testing.T, peer *net.UnixConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	transport := rpcguard.NewClientTransport(peer)
	conn := rpc.NewConn(transport, nil)
	defer conn.Close()

	// The helpers free their resources before the connection ends.
	t.Run("client", func(t *testing.T) {
		r := &rig{t: t, ctx: ctx, transport: transport, conn: conn, manager: schema.GpuDeviceManager(conn.Bootstrap(ctx))}
		t.Cleanup(r.manager.Release)
		s := r.open()
		const n = 1024
		bufA, a := r.buffer(s, 4*n)
		bufC, c := r.buffer(s, 4*n)
		memA, memC := r.mapped(bufA), r.mapped(bufC)
		putFloats(memA, func(i int) float32 { return float32(i) })
		fence, _ := r.fence(s)
		launch, release := s.LaunchKernel(ctx, kernel{"vecadd_f32", n / 256, 256, []uint32{a, a, c}, fence}.params)
		await(r, launch, release)
		wait, release := fence.Wait(ctx, waitFor(10*time.Second))
		require.True(t, await(r, wait, release).Ok())
		for i := range n {
			require.Equal(t, float32(2*i), math.Float32frombits(binary.LittleEndian.Uint32(memC[4*i:])))
		}
	})
}

// serveFuzzed is the server's side. At its end, sessiontest checks that the
// device's ledger is sound and empty, and leakcheck checks the process.
func serveFuzzed(t *testing.T) {
	log := rpcguardtest.Log(t)
	slog.SetDefault(log)
	var opened atomic.Int64
	service := sessiontest.Start(t, sessiontest.Options{
		Config: func(c *gpu.Config) {
			c.DefaultDeadline, c.MaxDeadline = 5*time.Millisecond, 20*time.Millisecond
			c.MaxBufferBytes = 1 << 20
			c.Strikes = gpu.StrikePolicy{Limit: math.MaxInt32} // a ban would end the attack
			c.Log = log
		},
		Attach: func(*gpu.Attach) { opened.Add(1) },
	})
	rpcguardtest.Serve(t, rpcguardtest.Service{
		Serve: func(conn *net.UnixConn) {
			dialled, err := client.Dial(context.Background(), service.Socket)
			if err != nil {
				t.Errorf("the service does not accept: %v", err)
				conn.Close()
				return
			}
			_ = Serve(context.Background(), conn, dialled, Options{Log: log, Limits: rpcguard.Limits{WriteTimeout: time.Second}})
		},
		Held: func() string {
			if err := service.Device.Err(); err != nil {
				return fmt.Sprintf("the device is lost: %v", err)
			}
			if err := service.Device.Check(); err != nil {
				return fmt.Sprintf("the ledger: %v", err)
			}

			for _, tenant := range service.Device.Status("").Tenants {
				if n := len(tenant.Sessions); n > 0 {
					return fmt.Sprintf("%d sessions", n)
				}
				for _, b := range tenant.Budget {
					if charged := b.Class != "deviceTime" && b.Class != "auditBytes"; charged && b.Used+b.Reserved > 0 {
						return fmt.Sprintf("%d of %s", b.Used+b.Reserved, b.Class)
					}
				}
			}

			return ""
		},
		Count: opened.Load,
	})
}
