package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/control"
	"capgpu/outcome"
)

// DialGo connects by the Go client.
func DialGo(ctx context.Context, socket string) (Conn, error) {
	c, err := client.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	return &goConn{Conn: c, socket: socket, sessions: map[*client.Session]int{}}, nil
}

// goConn is a connection and the sessions that were opened on it or below those. It
// vanishes by closing their sockets, and its Close closes them all, as the end of a
// Cap'n Proto connection does.
type goConn struct {
	*client.Conn
	socket string

	mu sync.Mutex
	// +checklocks:mu
	sessions map[*client.Session]int // a duplicate of the control socket; noSocket for a restricted one
}

// noSocket marks a session that ends with its parent.
const noSocket = -1

func (c *goConn) Open(ctx context.Context, device uint32) (Session, error) {
	fd, epoch, err := openRaw(ctx, c.socket, device)
	if err != nil {
		return nil, err
	}
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	s, err := client.NewSession(fd, epoch)
	if err != nil {
		unix.Close(again)
		return nil, err
	}
	return c.keep(s, again), nil
}

// keep makes a session end with the connection.
func (c *goConn) keep(s *client.Session, socket int) goSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[s] = socket
	return goSession{c, s}
}

// drop is the opposite of keep.
func (c *goConn) drop(s *client.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if socket, kept := c.sessions[s]; kept && socket != noSocket {
		unix.Close(socket)
	}
	delete(c.sessions, s)
}

// openRaw opens a session and returns its control socket.
func openRaw(ctx context.Context, socket string, device uint32) (fd int, epoch uint64, err error) {
	caller, err := dialRaw(ctx, socket)
	if err != nil {
		return -1, 0, err
	}
	defer caller.Close()

	if _, err := caller.Call(ctx, control.TypeHello, control.HelloRequest{Version: control.HelloVersion}.AppendTo(nil), nil); err != nil {
		return -1, 0, err
	}

	m, err := caller.Call(ctx, control.TypeOpenDevice, control.OpenDeviceRequest{Index: device}.AppendTo(nil), nil)
	if err != nil {
		return -1, 0, err
	}

	r, err := control.ParseOpenDeviceReply(m.Body)
	if err != nil {
		m.CloseFDs()
		return -1, 0, err
	}

	return m.FDs[0], r.Epoch, nil
}

// dialRaw speaks the tenant socket's protocol without the client.
func dialRaw(ctx context.Context, socket string) (*control.Caller, error) {
	fd, err := dialPacket(ctx, socket)
	if err != nil {
		return nil, err
	}
	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	if err != nil {
		return nil, err
	}
	return control.NewCaller(conn), nil
}

// dialPacket connects a SEQPACKET socket and returns its descriptor.
func dialPacket(ctx context.Context, socket string) (int, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unixpacket", socket)
	if err != nil {
		return -1, err
	}
	defer nc.Close()
	raw, err := nc.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, dupErr)
}

func (c *goConn) Next(ctx context.Context, device uint32, epoch uint64, timeout time.Duration) (client.State, error) {
	return c.NextStateFor(ctx, device, epoch, timeout)
}

// Vanish shuts the sockets down, as the kernel does for a dead process.
func (c *goConn) Vanish() {
	c.mu.Lock()
	for _, socket := range c.sessions {
		if socket != noSocket {
			_ = unix.Shutdown(socket, unix.SHUT_RDWR)
		}
	}
	c.mu.Unlock()
	c.Close()
}

func (c *goConn) Close() {
	_ = c.Conn.Close()
	c.mu.Lock()
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for _, s := range sessions {
		_ = s.Close(ctx) // it may be over; this frees the process's own part in any case
		c.drop(s)
	}
}

type goSession struct {
	c *goConn
	s *client.Session
}

func (g goSession) Describe(ctx context.Context) (client.Description, error) {
	return g.s.Describe(ctx)
}

func (g goSession) Budget(ctx context.Context) ([]client.BudgetEntry, error) { return g.s.Budget(ctx) }

func (g goSession) Close(ctx context.Context) error {
	err := g.s.Close(ctx)
	g.c.drop(g.s)
	return err
}

func (g goSession) Buffer(ctx context.Context, bytes uint64) (Buffer, error) {
	return g.BufferOf(ctx, bytes, uint32(client.Storage))
}

func (g goSession) BufferOf(ctx context.Context, bytes uint64, usage uint32) (Buffer, error) {
	b, err := g.s.CreateBuffer(ctx, bytes, client.Usage(usage))
	if err != nil {
		return nil, err
	}
	return goBuffer{b}, nil
}

func (g goSession) Fence(ctx context.Context) (Fence, error) {
	f, err := g.s.CreateFence(ctx, 0)
	if err != nil {
		return nil, err
	}
	return goFence{f}, nil
}

func (g goSession) Program(ctx context.Context, name string) (Program, error) {
	p, err := g.s.OpenProgram(ctx, name)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (g goSession) Load(ctx context.Context, bundle []byte) (Program, error) {
	p, err := g.s.LoadProgram(ctx, bundle)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (g goSession) Queue(ctx context.Context) (Queue, error) {
	q, err := g.s.CreateQueue(ctx, client.QueueOptions{})
	if err != nil {
		return nil, err
	}
	return goQueue{q}, nil
}

func (g goSession) Restrict(ctx context.Context, p client.Policy) (Session, error) {
	s, err := g.s.Restrict(ctx, p)
	if err != nil {
		return nil, err
	}
	return g.c.keep(s, noSocket), nil
}

type goBuffer struct{ b *client.Buffer }

func (g goBuffer) ID() uint64 { return g.b.Handle() }

func (g goBuffer) Size() uint64 { return g.b.Size() }

func (g goBuffer) Read(_ context.Context, off uint64, p []byte) error {
	_, err := g.b.ReadAt(p, int64(off))
	return err
}

func (g goBuffer) Write(_ context.Context, off uint64, p []byte) error {
	_, err := g.b.WriteAt(p, int64(off))
	return err
}

func (g goBuffer) Export(context.Context) (fd int, off, length uint64, err error) {
	return g.b.DupMemory()
}

// Elsewhere returns the same object: a Go client passes on its session's socket or
// nothing.
func (g goBuffer) Elsewhere(context.Context) (Buffer, error) { return g, nil }

func (g goBuffer) Close(ctx context.Context) error { return g.b.Close(ctx) }

type goFence struct{ f *client.Fence }

func (g goFence) ID() uint64 { return g.f.Handle() }

func (g goFence) Wait(ctx context.Context, value uint64, timeout time.Duration) (outcome.Outcome, error) {
	st, err := g.f.WaitFor(ctx, value, timeout)
	return st.Outcome, err
}

func (g goFence) Signal(ctx context.Context, value uint64) error { return g.f.Signal(ctx, value) }

func (g goFence) State(ctx context.Context) (reached, promised uint64, err error) {
	st, err := g.f.State(ctx)
	return st.Reached, st.Promised, err
}

func (g goFence) Close(ctx context.Context) error { return g.f.Close(ctx) }

type goQueue struct{ q *client.Queue }

func (g goQueue) Submit(_ context.Context, commands ...Command) (uint64, error) {
	list := make([]client.Command, len(commands))
	for i, c := range commands {
		command, err := goCommand(c)
		if err != nil {
			return 0, fmt.Errorf("command %d: %w", i, err)
		}
		list[i] = command
	}
	return g.q.Submit(list...)
}

func goCommand(c Command) (client.Command, error) {
	mem := func(b Buffer) *client.Buffer {
		if b, ok := b.(goBuffer); ok {
			return b.b
		}
		return nil
	}

	switch c.Op {
	case Launch:
		p, _ := c.Program.(*client.Program)
		l := &client.Launch{Program: p, Grid: c.Grid, Block: c.Block, SharedBytes: c.SharedBytes, Inline: c.Inline, Deadline: c.Deadline}
		for _, b := range c.Bindings {
			l.Bindings = append(l.Bindings, client.Binding{Buffer: mem(b.Buffer), Off: b.Off, Len: b.Len})
		}
		return l, nil
	case Copy:
		return &client.Copy{Dst: mem(c.Dst), DstOff: c.DstOff, Src: mem(c.Src), SrcOff: c.SrcOff, Bytes: c.Bytes, Deadline: c.Deadline}, nil
	case Fill:
		return &client.Fill{Buffer: mem(c.Dst), Off: c.DstOff, Bytes: c.Bytes, Pattern: c.Pattern, Deadline: c.Deadline}, nil
	}

	f, ok := c.Fence.(goFence)
	if !ok {
		return nil, errors.New("no fence of the Go client")
	}

	switch {
	case c.Op == Signal:
		return &client.Signal{Fence: f.f, Value: c.Value}, nil
	case c.OrderOnly:
		return &client.WaitOrder{Fence: f.f, Value: c.Value}, nil
	}

	return &client.Wait{Fence: f.f, Value: c.Value}, nil
}

func (g goQueue) Completions(ctx context.Context, max int, timeout time.Duration) ([]client.Completion, error) {
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := make([]client.Completion, max)
	n, err := g.q.Completions(waiting, out)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = nil
	}
	return out[:n], err
}

func (g goQueue) Cancel(ctx context.Context) error { return g.q.Cancel(ctx) }

func (g goQueue) Close(ctx context.Context) error { return g.q.Close(ctx) }
