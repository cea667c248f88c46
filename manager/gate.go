package manager

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
)

// gateGrace is how long a gate may take to exit once its broker socket is gone.
const gateGrace = 2 * time.Second

// serveCapnp serves a Cap'n Proto client of a user, once it has said something: a
// gpu-gate of its own gets the connection and a tenant socket, on which it is served like
// any client. The gate ends with its client, and we with the gate.
func (s *tenantServer) serveCapnp(c *net.UnixConn, conn *connection) {
	if err := conn.awaitFirst(c); err != nil {
		c.Close()
		s.log.Debug("a client left", "why", err)
		return
	}

	if err := s.gatePace.enter(s.policy(), conn.who.uid, time.Now()); err != nil {
		s.log.Info("refused a connection", "uid", conn.who.uid, "err", err)
		s.runRefusal(c, err, refuseCapnp)
		return
	}

	gate, broker, err := s.giveGate(c, conn)
	switch {
	case errors.Is(err, errGone):
		c.Close()
		return
	case err != nil:
		s.runRefusal(c, err, refuseCapnp)
		return
	}

	c.Close() // only the gate holds it now: its death is the end of the connection
	s.log.Debug("a gate serves", "pid", gate.child.pid())
	err = s.serveBroker(conn, broker)

	// The broker socket is closed: the gate has ended, or ends now.
	ctx, cancel := context.WithTimeout(conn.ctx, gateGrace)
	defer cancel()
	gate.child.endWithin(ctx)
	s.log.Debug("a gate ended", "pid", gate.child.pid(), "exit", gate.child.err, "broker", err)
}

// awaitFirst waits until a client has said something, which stays unread, for as long as
// a connection may be idle.
func (conn *connection) awaitFirst(c *net.UnixConn) error {
	_ = c.SetReadDeadline(time.Now().Add(conn.tenant.policy().IdleTimeout))
	stop := context.AfterFunc(conn.ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	err := awaitBytes(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errIdle
	}
	return err
}

// giveGate gives the connection, which stays the caller's, to a gate, and returns our end
// of the gate's tenant socket.
func (s *tenantServer) giveGate(c *net.UnixConn, conn *connection) (*gateProcess, int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, -1, err
	}

	gone := func() (gone bool) {
		return raw.Control(func(fd uintptr) { gone = hungUp(int(fd)) }) != nil || gone
	}
	for range readyGates + 1 { // so many may have died just now, or be of another program
		gate, err := s.m.gates.take(conn.ctx, s, conn.who.uid, gone)
		if err != nil {
			return nil, -1, err
		}
		ours, theirs, err := shm.Socketpair()
		if err != nil {
			gate.end()
			return nil, -1, err
		}
		given := raw.Control(func(fd uintptr) { err = gate.give(s, conn.who.uid, int(fd), theirs) })
		if err = errors.Join(given, err); err == nil {
			crashpoint.Here("manager.gate.started")
			unix.Close(theirs)
			return gate, ours, nil
		}
		unix.Close(ours)
		unix.Close(theirs)
		gate.end()
		s.log.Debug("a gate is of no use", "pid", gate.child.pid(), "err", err)
	}

	return nil, -1, gpuerr.New(gpuerr.Busy, "no gate could be given this connection; connect again")
}

// refuseCapnp sends one Abort, built here from our own words only, and closes.
// Nothing of the peer is read.
func refuseCapnp(_ context.Context, c *net.UnixConn, why error) {
	defer c.Close()
	b, err := abortMessage(why)
	if err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_, _ = c.Write(b) // a peer that does not read is not our problem
	_ = c.CloseWrite()
}

var abortTypes = map[gpuerr.Class]rpccp.Exception_Type{
	gpuerr.ClassFailed:        rpccp.Exception_Type_failed,
	gpuerr.ClassOverloaded:    rpccp.Exception_Type_overloaded,
	gpuerr.ClassDisconnected:  rpccp.Exception_Type_disconnected,
	gpuerr.ClassUnimplemented: rpccp.Exception_Type_unimplemented,
}

func abortMessage(why error) ([]byte, error) {
	e := gpuerr.From(why)
	if e == nil {
		return nil, errors.New("a refusal without a reason")
	}

	msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		return nil, err
	}

	root, err := rpccp.NewRootMessage(seg)
	if err != nil {
		return nil, err
	}

	abort, err := root.NewAbort()
	if err != nil {
		return nil, err
	}

	abort.SetType(abortTypes[e.Code.Class()])
	if err := abort.SetReason(e.Error()); err != nil {
		return nil, err
	}

	return msg.Marshal()
}
