package main

import (
	"errors"
	"net"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/schema"
)

// rpcPeer is a connection to a tenant's Cap'n Proto socket. Its methods turn
// exceptions back into gpuerr errors. References are released with the
// connection.
type rpcPeer struct {
	conn      *rpc.Conn
	transport *rpcguard.ClientTransport
	manager   schema.GpuDeviceManager
}

func (c *check) dialRPC(tenant string) *rpcPeer {
	socket := get[*net.UnixConn](c, "dial")(net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: c.capnpSocket(tenant)}))
	p := &rpcPeer{transport: rpcguard.NewClientTransport(socket)}
	p.conn = rpc.NewConn(p.transport, nil)
	p.manager = schema.GpuDeviceManager(p.conn.Bootstrap(c.ctx))
	return p
}

func (p *rpcPeer) close() { p.conn.Close() }

func (p *rpcPeer) open(c *check) schema.GpuSession {
	f, release := p.manager.OpenDevice(c.ctx, func(a schema.GpuDeviceManager_openDevice_Params) error {
		a.SetCapabilityIndex(0)
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "open a session over Cap'n Proto")
	return r.Session().AddRef()
}

func (p *rpcPeer) describe(c *check, s schema.GpuSession) error {
	f, release := s.Describe(c.ctx, nil)
	defer release()
	r, err := f.Struct()
	if err != nil {
		return rpcguard.FromException(err)
	}
	d, err := r.Description()
	if err == nil && d.HangBoundNanos() == 0 {
		err = gpuerr.New(gpuerr.Internal, "the description has no hang bound")
	}
	return err
}

func (p *rpcPeer) closeSession(c *check, s schema.GpuSession) error {
	f, release := s.Close(c.ctx, nil)
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

func (p *rpcPeer) restrict(c *check, s schema.GpuSession, facet schema.SessionFacet) schema.GpuSession {
	f, release := s.Restrict(c.ctx, func(a schema.GpuMemorySession_restrict_Params) error {
		policy, err := a.NewPolicy()
		if err == nil {
			policy.SetFacet(facet)
		}
		return err
	})
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "restrict")
	return schema.GpuSession(capnp.Client(r.Session()).AddRef())
}

func (p *rpcPeer) tryBuffer(c *check, s schema.GpuSession, size uint64, usage string) (schema.GpuBuffer, error) {
	f, release := s.CreateBuffer(c.ctx, func(a schema.GpuMemorySession_createBuffer_Params) error {
		a.SetBytes(size)
		return a.SetUsage(usage)
	})
	defer release()
	r, err := f.Struct()
	if err != nil {
		return schema.GpuBuffer{}, rpcguard.FromException(err)
	}
	return r.Buffer().AddRef(), nil
}

func (p *rpcPeer) buffer(c *check, s schema.GpuSession, size uint64) schema.GpuBuffer {
	return get[schema.GpuBuffer](c, "create a buffer over Cap'n Proto")(p.tryBuffer(c, s, size, "storage upload readback"))
}

func (p *rpcPeer) destroyBuffer(c *check, s schema.GpuSession, id uint32) error {
	f, release := s.DestroyBuffer(c.ctx, func(a schema.GpuMemorySession_destroyBuffer_Params) error {
		a.SetBuffer(id)
		return nil
	})
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// mapped maps a buffer by the descriptor that comes with it.
func (p *rpcPeer) mapped(c *check, b schema.GpuBuffer, size uint64) []byte {
	f, release := b.MapReadWrite(c.ctx, nil)
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "map over Cap'n Proto")
	c.that(r.Len() == size, "mapReadWrite tells %d bytes, want %d", r.Len(), size)
	fd, ok := p.transport.TakeFD(capnp.Client(r.Memory()))
	c.that(ok, "no descriptor came with the memory capability")
	defer unix.Close(fd)
	return get[[]byte](c, "map the descriptor")(unix.Mmap(fd, int64(r.Addr()), int(r.Len()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
}

func (p *rpcPeer) id(c *check, b schema.GpuBuffer) uint32 {
	f, release := b.Id(c.ctx, nil)
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "ask for the id")
	return r.Id()
}

func (p *rpcPeer) sizeOf(c *check, b schema.GpuBuffer) error {
	f, release := b.Size(c.ctx, nil)
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

func (p *rpcPeer) read(c *check, b schema.GpuBuffer, off uint64, n uint32) []byte {
	f, release := b.Read(c.ctx, func(a schema.GpuBuffer_read_Params) error {
		a.SetOffset(off)
		a.SetLength(n)
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "read")
	data := get[[]byte](c, "read")(r.Data())
	c.that(len(data) == int(n), "read gives %d bytes, want %d", len(data), n)
	return append([]byte(nil), data...)
}

func (p *rpcPeer) write(c *check, b schema.GpuBuffer, off uint64, data []byte) error {
	f, release := b.Write(c.ctx, func(a schema.GpuBuffer_write_Params) error {
		a.SetOffset(off)
		return a.SetData(data)
	})
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

func (p *rpcPeer) fence(c *check, s schema.GpuSession) schema.GpuFence {
	f, release := s.CreateFence(c.ctx, nil)
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "create a fence")
	return r.Fence().AddRef()
}

func (p *rpcPeer) poll(c *check, fence schema.GpuFence) error {
	f, release := fence.Poll(c.ctx, nil)
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// ending is how a fence's last promised value was reached.
type ending struct {
	ok     bool
	kind   schema.OutcomeKind
	cause  schema.OutcomeCause
	offset uint64
}

func (p *rpcPeer) wait(c *check, fence schema.GpuFence) ending {
	f, release := fence.Wait(c.ctx, func(a schema.GpuFence_wait_Params) error {
		a.SetTimeoutNanos(uint64(wireAnswer))
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "wait for the fence")
	o := get[schema.Outcome](c, "read the outcome")(r.Outcome())
	trap := get[schema.Trap](c, "read the trap")(o.Trap())
	return ending{ok: r.Ok(), kind: o.Kind(), cause: o.Cause(), offset: trap.Offset()}
}

func (p *rpcPeer) launch(c *check, s schema.GpuSession, program string, grid, block uint32, buffers []uint32, fence schema.GpuFence) error {
	f, release := s.LaunchKernel(c.ctx, func(a schema.GpuSession_launchKernel_Params) error {
		a.SetGrid(grid)
		a.SetBlock(block)
		list, err := a.NewBufferList(int32(len(buffers)))
		if err != nil {
			return err
		}
		for i, id := range buffers {
			list.Set(i, id)
		}
		if fence.IsValid() {
			if err := a.SetFence(fence.AddRef()); err != nil {
				return err
			}
		}
		return a.SetProgram(program)
	})
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

func (p *rpcPeer) load(c *check, s schema.GpuSession, bundle []byte) (schema.GpuProgram, error) {
	f, release := s.LoadProgram(c.ctx, func(a schema.GpuSession_loadProgram_Params) error { return a.SetBundle(bundle) })
	defer release()
	r, err := f.Struct()
	if err != nil {
		return schema.GpuProgram{}, rpcguard.FromException(err)
	}
	return r.Program().AddRef(), nil
}

// run runs a program over its natural grid.
func (p *rpcPeer) run(c *check, s schema.GpuSession, program schema.GpuProgram, buffers []uint32, inline []byte, fence schema.GpuFence) error {
	f, release := s.RunProgram(c.ctx, func(a schema.GpuProgramSession_runProgram_Params) error {
		list, err := a.NewBindings(int32(len(buffers)))
		if err != nil {
			return err
		}
		for i, id := range buffers {
			list.At(i).SetBuffer(id)
		}
		return errors.Join(a.SetInlineArgs(inline), a.SetProgram(program.AddRef()), a.SetFence(fence.AddRef()))
	})
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// spin launches the program that never ends, on a queue of its own, and returns
// how it ended.
func (p *rpcPeer) spin(c *check, s schema.GpuSession, deadline time.Duration) schema.OutcomeKind {
	opened, release := s.OpenProgram(c.ctx, func(a schema.GpuProgramSession_openProgram_Params) error { return a.SetName("spin") })
	defer release()
	program, err := opened.Struct()
	c.must(rpcguard.FromException(err), "open spin")
	created, release := s.CreateQueue(c.ctx, nil)
	defer release()
	queue, err := created.Struct()
	c.must(rpcguard.FromException(err), "create a queue")

	submitted, release := queue.Queue().Submit(c.ctx, func(a schema.GpuQueue_submit_Params) error {
		list, err := a.NewCommands(1)
		if err != nil {
			return err
		}
		list.At(0).SetDeadlineNanos(uint64(deadline))
		list.At(0).SetLaunch()
		return list.At(0).Launch().SetProgram(program.Program().AddRef())
	})
	defer release()
	_, err = submitted.Struct()
	c.must(rpcguard.FromException(err), "submit")
	ended, release := queue.Queue().Completions(c.ctx, func(a schema.GpuQueue_completions_Params) error {
		a.SetMax(1)
		a.SetTimeoutNanos(uint64(wireAnswer))
		return nil
	})
	defer release()
	r, err := ended.Struct()
	c.must(rpcguard.FromException(err), "wait for the completion")
	list := get[schema.Completion_List](c, "read the completions")(r.Completions())
	c.that(list.Len() == 1, "%d completions", list.Len())
	return get[schema.Outcome](c, "read the outcome")(list.At(0).Outcome()).Kind()
}

// lifecycleStep is one answer of Lifecycle.next.
type lifecycleStep struct {
	state schema.DeviceState
	epoch uint64
	cause string
}

func (p *rpcPeer) next(c *check, epoch uint64) lifecycleStep {
	opened, release := p.manager.Lifecycle(c.ctx, nil)
	defer release()
	l, err := opened.Struct()
	c.must(rpcguard.FromException(err), "get the lifecycle")
	f, release := l.Lifecycle().Next(c.ctx, func(a schema.Lifecycle_next_Params) error {
		a.SetEpoch(epoch)
		a.SetTimeoutNanos(uint64(wireAnswer))
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.must(rpcguard.FromException(err), "wait for the next state")
	cause, _ := r.Cause()
	return lifecycleStep{state: r.State(), epoch: r.Epoch(), cause: cause}
}
