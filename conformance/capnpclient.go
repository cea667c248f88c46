package conformance

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/rpc"
	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/gpuerr"
	"capgpu/internal/rpcguard"
	"capgpu/outcome"
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

// rpcConn is a connection to a gate. What comes over it is released with it.
type rpcConn struct {
	socket    *net.UnixConn
	transport *rpcguard.ClientTransport
	conn      *rpc.Conn
	manager   schema.GpuDeviceManager

	mu sync.Mutex
	// +checklocks:mu
	others []*rpc.Conn // both ends of those to vats that have got something from this one
}

// result awaits a call and copies what it needs of the answer with take.
func result[F interface{ Struct() (R, error) }, R, V any](f F, release capnp.ReleaseFunc, take func(R) (V, error)) (v V, err error) {
	defer release()
	r, err := f.Struct()
	if err != nil {
		return v, rpcguard.FromException(err)
	}
	return take(r)
}

// done awaits a call that answers nothing.
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

// usageWords are those of createBuffer, by bit; what is no bit is a word that is none.
func usageWords(usage uint32) string {
	words := ""
	for bit, word := range []string{"storage ", "upload ", "readback "} {
		if usage>>bit&1 != 0 {
			words += word
		}
	}
	if usage>>3 != 0 {
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

type rpcBuffer struct {
	c    *rpcConn
	b    schema.GpuBuffer
	id   uint32
	size uint64

	mu sync.Mutex
	// +checklocks:mu
	elsewhere *rpcBuffer
}

func (x *rpcBuffer) ID() uint64 { return uint64(x.id) }

func (x *rpcBuffer) Size() uint64 { return x.size }

// transferBytes is what read and write move at most.
const transferBytes = 64 << 10

func (x *rpcBuffer) Read(ctx context.Context, off uint64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), transferBytes)
		f, release := x.b.Read(ctx, func(a schema.GpuBuffer_read_Params) error {
			a.SetOffset(off)
			a.SetLength(uint32(n))
			return nil
		})
		got, err := result(f, release, func(r schema.GpuBuffer_read_Results) (int, error) {
			data, err := r.Data()
			return copy(p, data), err
		})
		if err != nil {
			return err
		}
		if got != n {
			return io.ErrUnexpectedEOF
		}
		p, off = p[n:], off+uint64(n)
	}
	return nil
}

func (x *rpcBuffer) Write(ctx context.Context, off uint64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), transferBytes)
		f, release := x.b.Write(ctx, func(a schema.GpuBuffer_write_Params) error {
			a.SetOffset(off)
			return a.SetData(p[:n])
		})
		if err := done(f, release); err != nil {
			return err
		}
		p, off = p[n:], off+uint64(n)
	}
	return nil
}

func (x *rpcBuffer) Export(ctx context.Context) (fd int, off, length uint64, err error) {
	f, release := x.b.MapReadWrite(ctx, nil)
	_, err = result(f, release, func(r schema.GpuBuffer_mapReadWrite_Results) (struct{}, error) {
		off, length = r.Addr(), r.Len()
		var ok bool
		if fd, ok = x.c.transport.TakeFD(capnp.Client(r.Memory())); !ok {
			return struct{}{}, gpuerr.New(gpuerr.Protocol, "no descriptor came with the memory")
		}
		return struct{}{}, nil
	})
	return fd, off, length, err
}

// Elsewhere hands the capability to a vat of its own, which has it over a connection to
// this one.
func (x *rpcBuffer) Elsewhere(ctx context.Context) (Buffer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.elsewhere != nil {
		return x.elsewhere, nil
	}
	here, there, err := pair()
	if err != nil {
		return nil, err
	}
	server := rpc.NewConn(rpc.NewStreamTransport(here), &rpc.Options{BootstrapClient: capnp.Client(x.b.AddRef())})
	conn := rpc.NewConn(rpc.NewStreamTransport(there), nil)
	x.c.mu.Lock()
	x.c.others = append(x.c.others, conn, server)
	x.c.mu.Unlock()
	b := schema.GpuBuffer(conn.Bootstrap(ctx))
	x.elsewhere = &rpcBuffer{c: x.c, b: b, id: x.id, size: x.size}
	return x.elsewhere, b.Resolve(ctx)
}

// pair is two ends of a stream.
func pair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(f); err != nil {
			err = fmt.Errorf("socket pair: %w", err)
		}
		f.Close()
	}
	return ends[0], ends[1], err
}

func (x *rpcBuffer) Close(ctx context.Context) error { return done(x.b.Close(ctx, nil)) }

type rpcFence struct {
	f  schema.GpuFence
	id uint32
}

func (x rpcFence) ID() uint64 { return uint64(x.id) }

func (x rpcFence) Wait(ctx context.Context, value uint64, timeout time.Duration) (outcome.Outcome, error) {
	f, release := x.f.WaitValue(ctx, func(p schema.GpuFence_waitValue_Params) error {
		p.SetValue(value)
		p.SetTimeoutNanos(uint64(timeout))
		return nil
	})
	end, err := result(f, release, func(r schema.GpuFence_waitValue_Results) (outcome.Outcome, error) {
		o, err := r.Outcome()
		if err != nil {
			return outcome.Outcome{}, err
		}
		if end := outcomeOf(o); r.Ok() != (end.Kind == outcome.OK) {
			return end, gpuerr.New(gpuerr.Protocol, "ok is %t and the outcome %v", r.Ok(), end)
		}
		return outcomeOf(o), nil
	})
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return end, err
}

func (x rpcFence) Signal(ctx context.Context, value uint64) error {
	return done(x.f.Signal(ctx, func(p schema.GpuFence_signal_Params) error { p.SetValue(value); return nil }))
}

func (x rpcFence) State(ctx context.Context) (reached, promised uint64, err error) {
	f, release := x.f.Value(ctx, nil)
	_, err = result(f, release, func(r schema.GpuFence_value_Results) (struct{}, error) {
		reached, promised = r.Reached(), r.Promised()
		return struct{}{}, nil
	})
	return reached, promised, err
}

func (x rpcFence) Close(ctx context.Context) error { return done(x.f.Close(ctx, nil)) }

type rpcProgram struct {
	p    schema.GpuProgram
	name string
}

func (x *rpcProgram) Info() client.ProgramInfo { return client.ProgramInfo{Name: x.name} }

func (x *rpcProgram) Close(ctx context.Context) error { return done(x.p.Close(ctx, nil)) }

type rpcQueue struct{ q schema.GpuQueue }

func (x rpcQueue) Submit(ctx context.Context, commands ...Command) (uint64, error) {
	f, release := x.q.Submit(ctx, func(p schema.GpuQueue_submit_Params) error {
		list, err := p.NewCommands(int32(len(commands)))
		if err != nil {
			return err
		}
		for i, c := range commands {
			if err := putCommand(list.At(i), c); err != nil {
				return err
			}
		}
		return nil
	})
	return result(f, release, func(r schema.GpuQueue_submit_Results) (uint64, error) { return r.FirstTicket(), nil })
}

func putCommand(out schema.Command, c Command) error {
	id := func(b Buffer) uint32 {
		if b == nil {
			return 0
		}
		return uint32(b.ID())
	}
	out.SetDeadlineNanos(uint64(c.Deadline))
	switch c.Op {
	case Launch:
		out.SetLaunch()
		l := out.Launch()
		l.SetGridX(c.Grid.X)
		l.SetGridY(c.Grid.Y)
		l.SetGridZ(c.Grid.Z)
		l.SetBlockX(uint16(c.Block.X))
		l.SetBlockY(uint16(c.Block.Y))
		l.SetBlockZ(uint16(c.Block.Z))
		l.SetSharedBytes(c.SharedBytes)
		list, err := l.NewBindings(int32(len(c.Bindings)))
		if err != nil {
			return err
		}
		for i, b := range c.Bindings {
			list.At(i).SetBuffer(id(b.Buffer))
			list.At(i).SetOffset(b.Off)
			list.At(i).SetLength(b.Len)
		}
		if err := l.SetInlineArgs(c.Inline); err != nil {
			return err
		}
		if p, ok := c.Program.(*rpcProgram); ok {
			return l.SetProgram(p.p.AddRef())
		}
		return nil
	case Copy:
		out.SetCopy()
		o := out.Copy()
		o.SetDst(id(c.Dst))
		o.SetDstOffset(c.DstOff)
		o.SetSrc(id(c.Src))
		o.SetSrcOffset(c.SrcOff)
		o.SetLength(c.Bytes)
	case Fill:
		out.SetFill()
		o := out.Fill()
		o.SetBuffer(id(c.Dst))
		o.SetFillOffset(c.DstOff)
		o.SetFillLength(c.Bytes)
		o.SetPattern(c.Pattern)
	case Signal:
		out.SetSignal()
		out.Signal().SetFence(uint32(c.Fence.ID()))
		out.Signal().SetValue(c.Value)
	case Wait:
		out.SetWait()
		out.Wait().SetWaitFence(uint32(c.Fence.ID()))
		out.Wait().SetWaitValue(c.Value)
		out.Wait().SetOrderOnly(c.OrderOnly)
	}
	return nil
}

func (x rpcQueue) Completions(ctx context.Context, most int, timeout time.Duration) ([]client.Completion, error) {
	f, release := x.q.Completions(ctx, func(p schema.GpuQueue_completions_Params) error {
		p.SetMax(uint32(most))
		p.SetTimeoutNanos(uint64(timeout))
		return nil
	})
	return result(f, release, func(r schema.GpuQueue_completions_Results) ([]client.Completion, error) {
		list, err := r.Completions()
		if err != nil {
			return nil, err
		}
		all := make([]client.Completion, list.Len())
		for i := range all {
			o, err := list.At(i).Outcome()
			if err != nil {
				return nil, err
			}
			message, err := o.Message_()
			if err != nil {
				return nil, err
			}
			all[i] = client.Completion{Ticket: list.At(i).Ticket(), Outcome: outcomeOf(o), DeviceTime: time.Duration(list.At(i).DeviceNanos())}
			all[i].Err = refusalOf(message)
		}
		return all, nil
	})
}

// refusalOf is the error that the message of an outcome tells of: one that begins with a
// code.
func refusalOf(message string) error {
	for _, code := range gpuerr.Codes() {
		if rest, ok := strings.CutPrefix(message, code.String()); ok {
			return gpuerr.New(code, "%s", strings.TrimLeft(rest, ": "))
		}
	}
	return nil
}

func (x rpcQueue) Cancel(ctx context.Context) error { return done(x.q.Cancel(ctx, nil)) }

func (x rpcQueue) Close(ctx context.Context) error { return done(x.q.Close(ctx, nil)) }

// outcomeOf reads an outcome. Numbers are the same on every wire.
func outcomeOf(o schema.Outcome) outcome.Outcome {
	end := outcome.Outcome{Kind: outcome.Kind(o.Kind()), Cause: outcome.Cause(o.Cause())}
	if t, err := o.Trap(); err == nil && end.Cause == outcome.TrapCause {
		end.Trap = outcome.Trap{Kind: outcome.TrapKind(t.Kind()), Binding: uint16(t.Binding()), Offset: t.Offset(), Workgroup: t.Workgroup(), Lane: t.Lane()}
	}
	return end
}
