package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
)

// Conn is a tenant's connection to the service: what the tenant may see and open.
type Conn struct {
	caller *control.Caller
	tenant string
}

// protocolVersion is what Hello speaks.
const protocolVersion = control.HelloVersion

// Dial connects to a tenant socket. An error that comes from the socket is both
// gpuerr.Disconnected and the system's own (fs.ErrNotExist, for instance). A service
// that is too busy to accept is waited for, until ctx ends or for busyPatience.
func Dial(ctx context.Context, path string) (*Conn, error) {
	nc, err := dial(ctx, path)
	for begun, pause := time.Now(), time.Millisecond; errors.Is(err, unix.EAGAIN) && time.Since(begun) < busyPatience; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-time.After(pause):
			nc, err = dial(ctx, path)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: connect to %s: %w", gpuerr.Disconnected, path, rootOf(err))
	}
	fd, err := takeFD(nc.(*net.UnixConn))
	if err != nil {
		return nil, err
	}
	return NewConn(ctx, fd)
}

// busyPatience is how long Dial waits while the line of those that want to be
// accepted is full. Then connect(2) says EAGAIN, and nothing can be waited for.
const busyPatience = 10 * time.Second

func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unixpacket", path)
}

// rootOf leaves out what net says about addresses, which the caller says better.
func rootOf(err error) error {
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		return sys.Err
	}
	return err
}

// takeFD moves the descriptor out of a connection that package net made.
func takeFD(nc *net.UnixConn) (int, error) {
	defer nc.Close()
	raw, err := nc.SyscallConn()
	if err != nil {
		return -1, gpuerr.New(gpuerr.IO, "socket: %v", err)
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(s uintptr) { fd, dupErr = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, dupErr); err != nil {
		return -1, gpuerr.New(gpuerr.IO, "socket: %v", err)
	}
	return fd, nil
}

// NewConn speaks on a connected tenant socket; it takes ownership of fd, also
// when it fails.
func NewConn(ctx context.Context, fd int) (*Conn, error) {
	conn, err := control.NewConn(fd, control.ConnOptions{Descriptors: true})
	if err != nil {
		return nil, err
	}
	c := &Conn{caller: control.NewCaller(conn)}
	m, err := c.caller.Call(ctx, control.TypeHello, control.HelloRequest{Version: protocolVersion}.AppendTo(nil), nil)
	if err != nil {
		c.Close()
		return nil, err
	}
	r, err := control.ParseHelloReply(m.Body)
	if err == nil && r.Version != protocolVersion {
		err = gpuerr.New(gpuerr.Protocol, "the service speaks version %d of the protocol, this client version %d", r.Version, protocolVersion)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	c.tenant = r.Tenant
	return c, nil
}

// Tenant is the tenant that the service takes this client for.
func (c *Conn) Tenant() string { return c.tenant }

// Devices lists the devices of the tenant.
func (c *Conn) Devices(ctx context.Context) ([]DeviceInfo, error) {
	m, err := c.caller.Call(ctx, control.TypeListDevices, nil, nil)
	if err != nil {
		return nil, err
	}
	r, err := control.ParseListDevicesReply(m.Body)
	if err != nil {
		return nil, err
	}
	out := make([]DeviceInfo, len(r.Devices))
	for i, d := range r.Devices {
		out[i] = deviceInfo(d)
	}
	return out, nil
}

// Open opens a session on the device of the given DeviceInfo.Index. The session
// does not depend on the Conn.
func (c *Conn) Open(ctx context.Context, index uint32) (*Session, error) {
	return c.open(ctx, control.TypeOpenDevice, control.OpenDeviceRequest{Index: index}.AppendTo(nil))
}

// open asks for a session, with one of the two messages that do.
func (c *Conn) open(ctx context.Context, t control.MsgType, body []byte) (*Session, error) {
	m, err := c.caller.Call(ctx, t, body, nil)
	if err != nil {
		return nil, err
	}
	r, err := control.ParseOpenDeviceReply(m.Body)
	if err != nil {
		m.CloseFDs()
		return nil, err
	}
	return NewSession(m.FDs[0], r.Epoch)
}

// OpenChecked is Open of a checked session (Policy.Check), with the facet that Open
// gives: programs run slowly in it, and data races between lanes, reads of
// uninitialised shared memory and divergent barriers are traps.
func (c *Conn) OpenChecked(ctx context.Context, index uint32) (*Session, error) {
	whole, err := c.Open(ctx, index)
	if err != nil {
		return nil, err
	}
	d, err := whole.Describe(ctx)
	if err == nil {
		var s *Session
		if s, err = whole.Restrict(ctx, Policy{Facet: d.Facet, Check: true}); err == nil {
			s.above = whole
			return s, nil
		}
	}
	_ = whole.Close(ctx) // or with its socket
	return nil, err
}

// NextState blocks until the device's state differs from "ready in epoch". Pass
// the epoch of the last call. When ctx ends first it returns ctx's error.
func (c *Conn) NextState(ctx context.Context, index uint32, epoch uint64) (State, error) {
	for {
		st, err := c.nextState(ctx, control.NextStateRequest{Index: index, Epoch: epoch, TimeoutNanos: uint64(waitSlice)})
		if err != nil || st.Changed {
			return st, err
		}
	}
}

// NextStateFor is NextState with the time limit as a result: when timeout is
// over it returns the present state with Changed false and no error.
func (c *Conn) NextStateFor(ctx context.Context, index uint32, epoch uint64, timeout time.Duration) (State, error) {
	return c.nextFor(ctx, control.NextStateRequest{Index: index, Epoch: epoch}, timeout)
}

// NextStepFor is NextStateFor, and a change of State.Recovery, State.Incidents
// or State.Suspended is news as well.
func (c *Conn) NextStepFor(ctx context.Context, index uint32, epoch uint64, timeout time.Duration) (State, error) {
	return c.nextFor(ctx, control.NextStateRequest{Index: index, Epoch: epoch, Steps: true}, timeout)
}

func (c *Conn) nextFor(ctx context.Context, req control.NextStateRequest, timeout time.Duration) (State, error) {
	end := time.Now().Add(timeout)
	for {
		left := time.Until(end)
		req.TimeoutNanos = uint64(max(0, min(left, waitSlice)))
		st, err := c.nextState(ctx, req)
		if err != nil || st.Changed || left <= waitSlice {
			return st, err
		}
	}
}

func (c *Conn) nextState(ctx context.Context, req control.NextStateRequest) (State, error) {
	m, err := c.caller.Call(ctx, control.TypeNextState, req.AppendTo(nil), nil)
	if err != nil {
		return State{}, err
	}
	r, err := control.ParseNextStateReply(m.Body)
	if err != nil {
		return State{}, err
	}
	return State{
		Epoch: r.Epoch, State: DeviceState(r.State), Changed: r.Changed, Cause: r.Cause,
		Recovery: RecoveryStep(r.Recovery), LastRecovery: RecoveryStep(r.LastRecovery), Incidents: r.Incidents, Suspended: r.Suspended,
	}, nil
}

// Status is the driver's account of its sessions and budgets, as JSON.
func (c *Conn) Status(ctx context.Context, index uint32) (json.RawMessage, error) {
	m, err := c.caller.Call(ctx, control.TypeStatus, control.StatusRequest{Index: index}.AppendTo(nil), nil)
	if err != nil {
		return nil, err
	}
	if !json.Valid(m.Body) {
		return nil, gpuerr.New(gpuerr.Protocol, "the status is not JSON")
	}
	return json.RawMessage(m.Body), nil
}

// Done is closed when the service is gone or Close was called.
func (c *Conn) Done() <-chan struct{} { return c.caller.Done() }

// Err says why Done is closed; nil before.
func (c *Conn) Err() error { return c.caller.Err() }

// Close ends the connection. Sessions opened on it live on.
func (c *Conn) Close() error { return c.caller.Close() }
