package conformance

import (
	"context"
	"net"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// DialCapnp connects by Cap'n Proto, with go-capnp as any foreign client would.
func DialCapnp(ctx context.Context, socket string) (Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	c := &rpcConn{socket: nc.(*net.UnixConn)}
	c.transport = rpcguard.NewClientTransport(c.socket)
	c.conn = rpc.NewConn(c.transport, nil)
	c.manager = schema.GpuDeviceManager(c.conn.Bootstrap(ctx))
	if err := c.manager.Resolve(ctx); err != nil {
		c.Close()
		return nil, rpcguard.FromException(err)
	}
	return c, nil
}

// rpcConn is a connection to a gate. Its capabilities are released with it.
type rpcConn struct {
	socket    *net.UnixConn
	transport *rpcguard.ClientTransport
	conn      *rpc.Conn
	manager   schema.GpuDeviceManager

	mu sync.Mutex
	// +checklocks:mu
	others []*rpc.Conn // both ends of the connections to vats that hold a capability of this one
}

// result awaits a call and copies the needed part of the answer with take.
func result[F interface{ Struct() (R, error) }, R, V any](f F, release capnp.ReleaseFunc, take func(R) (V, error)) (v V, err error) {
	defer release()
	r, err := f.Struct()
	if err != nil {
		return v, rpcguard.FromException(err)
	}
	return take(r)
}

// done awaits a call without an answer.
func done[F interface{ Struct() (R, error) }, R any](f F, release capnp.ReleaseFunc) error {
	_, err := result(f, release, func(R) (struct{}, error) { return struct{}{}, nil })
	return err
}

func (c *rpcConn) Devices(ctx context.Context) ([]client.DeviceInfo, error) {
	f, release := c.manager.ListDevices(ctx, nil)
	return result(f, release, func(r schema.GpuDeviceManager_listDevices_Results) ([]client.DeviceInfo, error) {
		list, err := r.Devices()
		if err != nil {
			return nil, err
		}
		all := make([]client.DeviceInfo, list.Len())
		for i := range all {
			if all[i], err = deviceOf(list.At(i)); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
}

func deviceOf(d schema.GpuDeviceInfo) (client.DeviceInfo, error) {
	name, err := d.Name()
	if err != nil {
		return client.DeviceInfo{}, err
	}
	backend, err := d.Backend()
	return client.DeviceInfo{Index: d.Index(), State: client.DeviceState(d.State()), Epoch: d.Epoch(), Name: name, Backend: backend,
		MemoryBytes: d.MemoryBytes(), Facet: client.Facet(d.Facet())}, err
}

func (c *rpcConn) Open(ctx context.Context, device uint32) (Session, error) {
	f, release := c.manager.OpenDevice(ctx, func(p schema.GpuDeviceManager_openDevice_Params) error {
		p.SetCapabilityIndex(device)
		return nil
	})
	return result(f, release, func(r schema.GpuDeviceManager_openDevice_Results) (Session, error) {
		return rpcSession{c, r.Session().AddRef()}, nil
	})
}

func (c *rpcConn) Next(ctx context.Context, device uint32, epoch uint64, timeout time.Duration) (client.State, error) {
	opened, free := c.manager.Lifecycle(ctx, func(p schema.GpuDeviceManager_lifecycle_Params) error {
		p.SetCapabilityIndex(device)
		return nil
	})
	defer free()
	life := opened.Lifecycle()
	f, release := life.Next(ctx, func(p schema.Lifecycle_next_Params) error {
		p.SetEpoch(epoch)
		p.SetTimeoutNanos(uint64(timeout))
		return nil
	})
	return result(f, release, func(r schema.Lifecycle_next_Results) (client.State, error) {
		cause, err := r.Cause()
		return client.State{Epoch: r.Epoch(), State: client.DeviceState(r.State()), Changed: r.Changed(), Cause: cause}, err
	})
}

// Vanish closes the socket under the connection.
func (c *rpcConn) Vanish() {
	if raw, err := c.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	c.Close()
}

func (c *rpcConn) Close() {
	c.mu.Lock()
	others := c.others
	c.others = nil
	c.mu.Unlock()
	for _, other := range others {
		_ = other.Close()
	}
	c.manager.Release()
	_ = c.conn.Close()
}

type rpcSession struct {
	c *rpcConn
	s schema.GpuSession
}

func (x rpcSession) Describe(ctx context.Context) (client.Description, error) {
	f, release := x.s.Describe(ctx, nil)
	return result(f, release, func(r schema.GpuMemorySession_describe_Results) (client.Description, error) {
		d, err := r.Description()
		if err != nil {
			return client.Description{}, err
		}

		info, err := d.Device()
		if err != nil {
			return client.Description{}, err
		}

		device, err := deviceOf(info)
		poisoned, perr := d.Poisoned()
		if perr != nil {
			return client.Description{}, perr
		}

		return client.Description{
			Device: device, HangBound: time.Duration(d.HangBoundNanos()), RevokeBound: time.Duration(d.RevokeBoundNanos()),
			MaxDeadline: time.Duration(d.MaxDeadlineNanos()), MaxBufferBytes: d.MaxBufferBytes(), MaxThreadsPerBlock: d.MaxThreadsPerBlock(),
			MaxGridDim: d.MaxGridDim(), MaxSharedBytes: d.MaxSharedBytes(), MaxBindings: d.MaxBindings(), MaxInlineBytes: d.MaxInlineBytes(),
			MaxQueueEntries: d.QueueEntries(), Facet: client.Facet(d.Facet()), Poisoned: outcomeOf(poisoned),
			GlobalMemAlignment: d.GlobalMemAlignment(), ComputeUnits: d.ComputeUnits(), Deterministic: d.Deterministic(),
		}, err
	})
}

func (x rpcSession) Budget(ctx context.Context) ([]client.BudgetEntry, error) {
	f, release := x.s.Budget(ctx, nil)
	return result(f, release, func(r schema.GpuMemorySession_budget_Results) ([]client.BudgetEntry, error) {
		list, err := r.Entries()
		if err != nil {
			return nil, err
		}
		all := make([]client.BudgetEntry, list.Len())
		for i := range all {
			e := list.At(i)
			name, err := e.Resource()
			if err != nil {
				return nil, err
			}
			all[i] = client.BudgetEntry{Resource: name, Used: e.Used(), Limit: e.Limit(), Peak: e.Peak()}
		}
		return all, nil
	})
}

func (x rpcSession) Buffer(ctx context.Context, bytes uint64) (Buffer, error) {
	return x.BufferOf(ctx, bytes, uint32(client.Storage))
}

// usageWords are the words of createBuffer, by bit; a bit without a word becomes an
// invalid one.
func usageWords(usage uint32) string {
	words := ""
	for bit, word := range []string{"storage ", "upload ", "readback ", "device "} {
		if usage>>bit&1 != 0 {
			words += word
		}
	}
	if usage>>4 != 0 {
		words += "nonsense"
	}
	return words
}

func (x rpcSession) BufferOf(ctx context.Context, bytes uint64, usage uint32) (Buffer, error) {
	f, release := x.s.CreateBuffer(ctx, func(p schema.GpuMemorySession_createBuffer_Params) error {
		p.SetBytes(bytes)
		return p.SetUsage(usageWords(usage))
	})
	b, err := result(f, release, func(r schema.GpuMemorySession_createBuffer_Results) (schema.GpuBuffer, error) {
		return r.Buffer().AddRef(), nil
	})
	if err != nil {
		return nil, err
	}
	asked, free := b.Id(ctx, nil)
	id, err := result(asked, free, func(r schema.GpuBuffer_id_Results) (uint32, error) { return r.Id(), nil })
	return &rpcBuffer{c: x.c, b: b, id: id, size: bytes}, err
}

func (x rpcSession) Fence(ctx context.Context) (Fence, error) {
	f, release := x.s.CreateFence(ctx, nil)
	line, err := result(f, release, func(r schema.GpuMemorySession_createFence_Results) (schema.GpuFence, error) {
		return r.Fence().AddRef(), nil
	})
	if err != nil {
		return nil, err
	}
	asked, free := line.Id(ctx, nil)
	id, err := result(asked, free, func(r schema.GpuFence_id_Results) (uint32, error) { return r.Id(), nil })
	return rpcFence{line, id}, err
}

func (x rpcSession) Program(ctx context.Context, name string) (Program, error) {
	f, release := x.s.OpenProgram(ctx, func(p schema.GpuProgramSession_openProgram_Params) error { return p.SetName(name) })
	p, err := result(f, release, func(r schema.GpuProgramSession_openProgram_Results) (schema.GpuProgram, error) {
		return r.Program().AddRef(), nil
	})
	if err != nil {
		return nil, err
	}
	return &rpcProgram{p, name}, nil
}

func (x rpcSession) Load(ctx context.Context, bundle []byte) (Program, error) {
	f, release := x.s.LoadProgram(ctx, func(p schema.GpuSession_loadProgram_Params) error { return p.SetBundle(bundle) })
	p, err := result(f, release, func(r schema.GpuSession_loadProgram_Results) (schema.GpuProgram, error) {
		return r.Program().AddRef(), nil
	})
	if err != nil {
		return nil, err
	}
	return &rpcProgram{p, "loaded"}, nil
}

func (x rpcSession) Queue(ctx context.Context) (Queue, error) {
	f, release := x.s.CreateQueue(ctx, nil)
	q, err := result(f, release, func(r schema.GpuSession_createQueue_Results) (schema.GpuQueue, error) { return r.Queue().AddRef(), nil })
	if err != nil {
		return nil, err
	}
	return rpcQueue{q}, nil
}

func (x rpcSession) Restrict(ctx context.Context, policy client.Policy) (Session, error) {
	f, release := x.s.Restrict(ctx, func(a schema.GpuMemorySession_restrict_Params) error {
		p, err := a.NewPolicy()
		if err != nil {
			return err
		}

		p.SetFacet(schema.SessionFacet(policy.Facet))
		p.SetMaxDeadlineNanos(uint64(policy.MaxDeadline))
		list, err := p.NewLimits(int32(len(policy.Limits)))
		i := 0
		for name, amount := range policy.Limits {
			list.At(i).SetAmount(amount)
			if err == nil {
				err = list.At(i).SetResource(name)
			}
			i++
		}

		return err
	})
	return result(f, release, func(r schema.GpuMemorySession_restrict_Results) (Session, error) {
		return rpcSession{x.c, schema.GpuSession(capnp.Client(r.Session()).AddRef())}, nil
	})
}

func (x rpcSession) Close(ctx context.Context) error { return done(x.s.Close(ctx, nil)) }
