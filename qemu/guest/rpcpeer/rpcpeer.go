// Package rpcpeer is a guest's Cap'n Proto client of the service: the calls of
// schema/capos.capnp that the checks make, each ending its check when it fails.
package rpcpeer

import (
	"errors"
	"net"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/qemu/guest/tap"
	"capgpu/schema"
)

// Peer is a connection to a tenant's Cap'n Proto socket. Its methods turn
// exceptions back into gpuerr errors. References are released with the
// connection.
type Peer struct {
	Manager   schema.GpuDeviceManager
	conn      *rpc.Conn
	transport *rpcguard.ClientTransport
}

// answer bounds the wait for something that the service is to do.
const answer = 10 * time.Second

// Dial connects to the socket of this path.
func Dial(c *tap.Check, path string) *Peer {
	socket := tap.Get[*net.UnixConn](c, "dial")(net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path}))
	p := &Peer{transport: rpcguard.NewClientTransport(socket)}
	p.conn = rpc.NewConn(p.transport, nil)
	p.Manager = schema.GpuDeviceManager(p.conn.Bootstrap(c.Ctx))
	return p
}

// Close ends the connection and every capability that came over it.
func (p *Peer) Close() { p.conn.Close() }

// Open opens a session of the tenant's device of this index.
func (p *Peer) Open(c *tap.Check, device uint32) schema.GpuSession {
	f, release := p.Manager.OpenDevice(c.Ctx, func(a schema.GpuDeviceManager_openDevice_Params) error {
		a.SetCapabilityIndex(device)
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "open a session over Cap'n Proto")
	return r.Session().AddRef()
}

// Describe asks a session for its rights.
func (p *Peer) Describe(c *tap.Check, s schema.GpuSession) error {
	f, release := s.Describe(c.Ctx, nil)
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

// CloseSession closes a session.
func (p *Peer) CloseSession(c *tap.Check, s schema.GpuSession) error {
	f, release := s.Close(c.Ctx, nil)
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// Restrict makes a weaker session.
func (p *Peer) Restrict(c *tap.Check, s schema.GpuSession, facet schema.SessionFacet) schema.GpuSession {
	f, release := s.Restrict(c.Ctx, func(a schema.GpuMemorySession_restrict_Params) error {
		policy, err := a.NewPolicy()
		if err == nil {
			policy.SetFacet(facet)
		}
		return err
	})
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "restrict")
	return schema.GpuSession(capnp.Client(r.Session()).AddRef())
}

// TryBuffer creates a buffer, or returns why not.
func (p *Peer) TryBuffer(c *tap.Check, s schema.GpuSession, size uint64, usage string) (schema.GpuBuffer, error) {
	f, release := s.CreateBuffer(c.Ctx, func(a schema.GpuMemorySession_createBuffer_Params) error {
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

// Buffer creates a buffer.
func (p *Peer) Buffer(c *tap.Check, s schema.GpuSession, size uint64) schema.GpuBuffer {
	return tap.Get[schema.GpuBuffer](c, "create a buffer over Cap'n Proto")(p.TryBuffer(c, s, size, "storage upload readback"))
}

// DestroyBuffer destroys the buffer of this id.
func (p *Peer) DestroyBuffer(c *tap.Check, s schema.GpuSession, id uint32) error {
	f, release := s.DestroyBuffer(c.Ctx, func(a schema.GpuMemorySession_destroyBuffer_Params) error {
		a.SetBuffer(id)
		return nil
	})
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// Mapped maps a buffer by the descriptor that comes with it.
func (p *Peer) Mapped(c *tap.Check, b schema.GpuBuffer, size uint64) []byte {
	f, release := b.MapReadWrite(c.Ctx, nil)
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "map over Cap'n Proto")
	c.That(r.Len() == size, "mapReadWrite tells %d bytes, want %d", r.Len(), size)
	fd, ok := p.transport.TakeFD(capnp.Client(r.Memory()))
	c.That(ok, "no descriptor came with the memory capability")
	defer unix.Close(fd)
	return tap.Get[[]byte](c, "map the descriptor")(unix.Mmap(fd, int64(r.Addr()), int(r.Len()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))
}

// ID is the number of a buffer in its session.
func (p *Peer) ID(c *tap.Check, b schema.GpuBuffer) uint32 {
	f, release := b.Id(c.Ctx, nil)
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "ask for the id")
	return r.Id()
}

// SizeOf asks a buffer for its size.
func (p *Peer) SizeOf(c *tap.Check, b schema.GpuBuffer) error {
	f, release := b.Size(c.Ctx, nil)
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// Read copies bytes out of a buffer.
func (p *Peer) Read(c *tap.Check, b schema.GpuBuffer, off uint64, n uint32) []byte {
	f, release := b.Read(c.Ctx, func(a schema.GpuBuffer_read_Params) error {
		a.SetOffset(off)
		a.SetLength(n)
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "read")
	data := tap.Get[[]byte](c, "read")(r.Data())
	c.That(len(data) == int(n), "read gives %d bytes, want %d", len(data), n)
	return append([]byte(nil), data...)
}

// Write copies bytes into a buffer.
func (p *Peer) Write(c *tap.Check, b schema.GpuBuffer, off uint64, data []byte) error {
	f, release := b.Write(c.Ctx, func(a schema.GpuBuffer_write_Params) error {
		a.SetOffset(off)
		return a.SetData(data)
	})
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// Fence creates a fence.
func (p *Peer) Fence(c *tap.Check, s schema.GpuSession) schema.GpuFence {
	f, release := s.CreateFence(c.Ctx, nil)
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "create a fence")
	return r.Fence().AddRef()
}

// Poll asks a fence where it stands.
func (p *Peer) Poll(c *tap.Check, fence schema.GpuFence) error {
	f, release := fence.Poll(c.Ctx, nil)
	defer release()
	_, err := f.Struct()
	return rpcguard.FromException(err)
}

// Ending is how a fence's last promised value was reached.
type Ending struct {
	OK     bool
	Kind   schema.OutcomeKind
	Cause  schema.OutcomeCause
	Offset uint64
}

// Wait waits for a fence's last promised value.
func (p *Peer) Wait(c *tap.Check, fence schema.GpuFence) Ending {
	f, release := fence.Wait(c.Ctx, func(a schema.GpuFence_wait_Params) error {
		a.SetTimeoutNanos(uint64(answer))
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "wait for the fence")
	o := tap.Get[schema.Outcome](c, "read the outcome")(r.Outcome())
	trap := tap.Get[schema.Trap](c, "read the trap")(o.Trap())
	return Ending{OK: r.Ok(), Kind: o.Kind(), Cause: o.Cause(), Offset: trap.Offset()}
}

// Launch calls launchKernel.
func (p *Peer) Launch(c *tap.Check, s schema.GpuSession, program string, grid, block uint32, buffers []uint32, fence schema.GpuFence) error {
	f, release := s.LaunchKernel(c.Ctx, func(a schema.GpuSession_launchKernel_Params) error {
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

// Load loads a program, or returns why not.
func (p *Peer) Load(c *tap.Check, s schema.GpuSession, bundle []byte) (schema.GpuProgram, error) {
	f, release := s.LoadProgram(c.Ctx, func(a schema.GpuSession_loadProgram_Params) error { return a.SetBundle(bundle) })
	defer release()
	r, err := f.Struct()
	if err != nil {
		return schema.GpuProgram{}, rpcguard.FromException(err)
	}
	return r.Program().AddRef(), nil
}

// Run runs a program over its natural grid.
func (p *Peer) Run(c *tap.Check, s schema.GpuSession, program schema.GpuProgram, buffers []uint32, inline []byte, fence schema.GpuFence) error {
	f, release := s.RunProgram(c.Ctx, func(a schema.GpuProgramSession_runProgram_Params) error {
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

// Spin launches the program that never ends, on a queue of its own, and returns
// how it ended.
func (p *Peer) Spin(c *tap.Check, s schema.GpuSession, deadline time.Duration) schema.OutcomeKind {
	opened, release := s.OpenProgram(c.Ctx, func(a schema.GpuProgramSession_openProgram_Params) error { return a.SetName("spin") })
	defer release()
	program, err := opened.Struct()
	c.Must(rpcguard.FromException(err), "open spin")
	created, release := s.CreateQueue(c.Ctx, nil)
	defer release()
	queue, err := created.Struct()
	c.Must(rpcguard.FromException(err), "create a queue")

	submitted, release := queue.Queue().Submit(c.Ctx, func(a schema.GpuQueue_submit_Params) error {
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
	c.Must(rpcguard.FromException(err), "submit")
	ended, release := queue.Queue().Completions(c.Ctx, func(a schema.GpuQueue_completions_Params) error {
		a.SetMax(1)
		a.SetTimeoutNanos(uint64(answer))
		return nil
	})
	defer release()
	r, err := ended.Struct()
	c.Must(rpcguard.FromException(err), "wait for the completion")
	list := tap.Get[schema.Completion_List](c, "read the completions")(r.Completions())
	c.That(list.Len() == 1, "%d completions", list.Len())
	return tap.Get[schema.Outcome](c, "read the outcome")(list.At(0).Outcome()).Kind()
}

// Step is one answer of Lifecycle.next.
type Step struct {
	State schema.DeviceState
	Epoch uint64
	Cause string
}

// Next asks for the device's next state after an epoch.
func (p *Peer) Next(c *tap.Check, epoch uint64) Step {
	opened, release := p.Manager.Lifecycle(c.Ctx, nil)
	defer release()
	l, err := opened.Struct()
	c.Must(rpcguard.FromException(err), "get the lifecycle")
	f, release := l.Lifecycle().Next(c.Ctx, func(a schema.Lifecycle_next_Params) error {
		a.SetEpoch(epoch)
		a.SetTimeoutNanos(uint64(answer))
		return nil
	})
	defer release()
	r, err := f.Struct()
	c.Must(rpcguard.FromException(err), "wait for the next state")
	cause, _ := r.Cause()
	return Step{State: r.State(), Epoch: r.Epoch(), Cause: cause}
}

// Memcpy calls submitMemcpy, and waits for the copy's end on the fence.
func (p *Peer) Memcpy(c *tap.Check, s schema.GpuSession, dst, src schema.GpuBuffer, bytes uint64, fence schema.GpuFence) error {
	to, from := p.ID(c, dst), p.ID(c, src)
	f, release := s.SubmitMemcpy(c.Ctx, func(a schema.GpuMemorySession_submitMemcpy_Params) error {
		a.SetDst(to)
		a.SetSrc(from)
		a.SetBytes(bytes)
		return nil
	})
	defer release()
	if _, err := f.Struct(); err != nil {
		return rpcguard.FromException(err)
	}

	asked, release := fence.Id(c.Ctx, nil)
	defer release()
	id, err := asked.Struct()
	if err != nil {
		return rpcguard.FromException(err)
	}

	signalled, release := s.SubmitFenceSignal(c.Ctx, func(a schema.GpuMemorySession_submitFenceSignal_Params) error {
		a.SetFence(id.Id())
		return nil
	})
	defer release()
	_, err = signalled.Struct()
	return rpcguard.FromException(err)
}
