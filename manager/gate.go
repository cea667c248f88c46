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

// serveCapnp serves a Cap'n Proto client of a user once it has sent a byte. A gpu-gate of its
// own gets the connection and a tenant socket, and is served there like any client. The gate
// ends with its client, and serveCapnp returns with the gate.
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

	c.Close() // now only the gate holds it, so its death ends the connection
	s.log.Debug("a gate serves", "pid", gate.child.pid())
	err = s.serveBroker(conn, broker)

	// The broker socket is closed: the gate has ended or is about to.
	ctx, cancel := context.WithTimeout(conn.ctx, gateGrace)
	defer cancel()
	gate.child.endWithin(ctx)
	s.log.Debug("a gate ended", "pid", gate.child.pid(), "exit", gate.child.err, "broker", err)
}

// awaitFirst waits until a client has sent a byte, which stays unread, or until the
// connection's idle timeout.
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

// giveGate passes the connection, which stays the caller's, to a gate. It returns the
// manager's end of the gate's tenant socket.
func (s *tenantServer) giveGate(c *net.UnixConn, conn *connection) (*gateProcess, int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, -1, err
	}

	gone := func() (gone bool) {
		return raw.Control(func(fd uintptr) { gone = hungUp(int(fd)) }) != nil || gone
	}
	for range readyGates + 1 { // all gates of the pool may be dead or of another program
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

// refuseCapnp sends one Abort with the manager's own text only, and closes. It reads nothing
// from the peer.
func refuseCapnp(_ context.Context, c *net.UnixConn, why error) {
	defer c.Close()
	b, err := abortMessage(why)
	if err != nil {
		return
	}
	_ = c.SetWriteDeadline(time.Now().Add(refusalTimeout))
	_, _ = c.Write(b) // a peer that does not read misses it
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
