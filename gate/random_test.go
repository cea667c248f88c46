package gate

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"github.com/stretchr/testify/require"

	"capgpu/driver/session/sessiontest"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// randomMethods are all methods that a client can call.
var randomMethods = []struct {
	iface   uint64
	methods int
}{
	{schema.GpuMemorySession_TypeID, 10}, {schema.GpuProgramSession_TypeID, 2}, {schema.GpuSession_TypeID, 4},
	{schema.GpuBuffer_TypeID, 7}, {schema.GpuFence_TypeID, 7}, {schema.GpuQueue_TypeID, 4},
	{schema.GpuProgram_TypeID, 2}, {schema.GpuDeviceManager_TypeID, 3}, {schema.Lifecycle_TypeID, 1},
}

// caller makes calls of the right shape with arbitrary arguments.
type caller struct {
	rng  *rand.Rand
	mu   sync.Mutex
	caps []capnp.Client
}

func (c *caller) number() uint64 {
	switch c.rng.IntN(8) {
	case 0:
		return c.rng.Uint64()
	case 1:
		return math.MaxUint64 - uint64(c.rng.IntN(3))
	case 2:
		return 1 << c.rng.IntN(64)
	default:
		return uint64(c.rng.IntN(12))
	}
}

// capability is an earlier result; the caller owns the reference.
func (c *caller) capability() capnp.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.caps[c.rng.IntN(len(c.caps))].AddRef()
}

func (c *caller) keep(p capnp.Ptr) {
	client := p.Interface().Client()
	if !client.IsValid() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.caps) < 24 {
		c.caps = append(c.caps, client.AddRef())
		return
	}
	at := 1 + c.rng.IntN(len(c.caps)-1)
	c.caps[at].Release()
	c.caps[at] = client.AddRef()
}

// fill fills a struct with random values.
func (c *caller) fill(s capnp.Struct, depth int) error {
	for at := capnp.DataOffset(0); at+8 <= capnp.DataOffset(s.Size().DataSize); at += 8 {
		switch c.rng.IntN(3) {
		case 0:
			s.SetUint64(at, c.number())
		default:
			s.SetUint32(at, uint32(c.number()))
			s.SetUint32(at+4, uint32(c.number()))
		}
	}
	for i := range s.Size().PointerCount {
		if err := c.fillPointer(s, i, depth); err != nil {
			return err
		}
	}
	return nil
}

var randomNames = []string{"copy", "vecadd_f32", "fill_u32", "spin", "trap", "", "no_such", "upload readback", "deviceMemory"}

func (c *caller) fillPointer(s capnp.Struct, i uint16, depth int) error {
	switch c.rng.IntN(7) {
	case 0:
		return nil

	case 1:
		return s.SetText(i, randomNames[c.rng.IntN(len(randomNames))])
	case 2:
		return s.SetData(i, make([]byte, c.rng.IntN(100)))

	case 3:
		list, err := capnp.NewUInt32List(s.Segment(), int32(c.rng.IntN(5)))
		if err != nil {
			return err
		}
		for j := range list.Len() {
			list.Set(j, uint32(c.number()))
		}
		return s.SetPtr(i, list.ToPtr())

	case 4, 5:
		return s.SetPtr(i, capnp.NewInterface(s.Segment(), s.Message().CapTable().Add(c.capability())).ToPtr())
	default:
		if depth == 0 {
			return nil
		}
		list, err := capnp.NewCompositeList(s.Segment(), capnp.ObjectSize{DataSize: capnp.Size(8 * c.rng.IntN(8)), PointerCount: uint16(c.rng.IntN(4))}, int32(c.rng.IntN(4)))
		if err != nil {
			return err
		}
		for j := range list.Len() {
			if err := c.fill(list.Struct(j), depth-1); err != nil {
				return err
			}
		}
		if list.Len() > 0 && c.rng.IntN(2) == 0 {
			return s.SetPtr(i, list.Struct(0).ToPtr())
		}
		return s.SetPtr(i, list.ToPtr())
	}
}

// call makes one call and reports E_INTERNAL, which no argument may cause.
func (c *caller) call(ctx context.Context, t *testing.T) {
	m := randomMethods[c.rng.IntN(len(randomMethods))]
	method := capnp.Method{InterfaceID: m.iface, MethodID: uint16(c.rng.IntN(m.methods))}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()

	target := c.capability()
	defer target.Release()
	answer, release := target.SendCall(ctx, capnp.Send{
		Method:    method,
		ArgsSize:  capnp.ObjectSize{DataSize: 24, PointerCount: 4},
		PlaceArgs: func(s capnp.Struct) error { return c.fill(s, 2) },
	})

	defer release()
	res, err := answer.Struct()
	if err != nil {
		if code := gpuerr.CodeOf(rpcguard.FromException(err)); code == gpuerr.Internal && ctx.Err() == nil {
			t.Errorf("%x.%d: %v", method.InterfaceID, method.MethodID, err)
		}
		return
	}

	for i := range res.Size().PointerCount {
		if p, err := res.Ptr(i); err == nil {
			c.keep(p)
		}
	}
}

// TestRandomCalls calls all methods on all objects that it gets, with arbitrary
// arguments. No method may panic or fail as a bug, and at the end the device's
// ledger is sound and empty (sessiontest checks that). CAPGPU_FUZZ_SECONDS prolongs
// it.
func TestRandomCalls(t *testing.T) {
	duration := 2 * time.Second
	if v := os.Getenv("CAPGPU_FUZZ_SECONDS"); v != "" {
		seconds, err := strconv.ParseUint(v, 10, 16)
		require.NoError(t, err, "CAPGPU_FUZZ_SECONDS")
		duration = time.Duration(seconds) * time.Second
	}

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	service := sessiontest.Start(t, sessiontest.Options{})
	end := time.Now().Add(duration)
	calls := 0
	for round := uint64(0); time.Now().Before(end) && !t.Failed(); round++ {
		ended := make(chan error, 1)
		peer := serveGate(t, service, ended)
		conn := rpc.NewConn(rpcguard.NewClientTransport(peer), &rpc.Options{Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		manager := conn.Bootstrap(ctx)
		c := &caller{rng: rand.New(rand.NewPCG(seed, round)), caps: []capnp.Client{manager}}
		for range 2 {
			f, release := schema.GpuDeviceManager(manager).OpenDevice(ctx, nil)
			res, err := f.Struct()
			require.NoError(t, err)
			c.caps = append(c.caps, capnp.Client(res.Session().AddRef()))
			release()
		}

		for range 500 {
			if time.Now().After(end) {
				break
			}
			c.call(ctx, t)
			calls++
			select {
			case err := <-ended:
				t.Fatalf("the gate ended after %d calls: %v", calls, err)
			default:
			}
		}

		for _, client := range c.caps {
			client.Release()
		}

		cancel()
		conn.Close()
		<-ended
	}

	t.Logf("%d calls", calls)
}
