package manager

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
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

// serveCapnp serves a Cap'n Proto client: a gpu-gate of its own gets the
// connection (descriptor 3) and a tenant socket (descriptor 4), on which it is
// served like any client. The gate ends with its client, and we with the gate.
func (s *tenantServer) serveCapnp(c *net.UnixConn) {
	fd, err := takeFD(c)
	if err != nil {
		s.log.Warn("take a connection", "err", err)
		return
	}
	client := os.NewFile(uintptr(fd), "Cap'n Proto connection")
	ours, theirs, err := shm.Socketpair()
	if err != nil {
		client.Close()
		s.log.Warn("make a tenant socket for a gate", "err", err)
		return
	}
	socket := os.NewFile(uintptr(theirs), "tenant socket")
	gate, err := s.m.spawner.start(s.log, "gate", s.confineGate(), s.m.cfg.GatePath, nil, client, socket)
	// Only the gate holds them now: its death is the end of the connection.
	crashpoint.Here("manager.gate.started")
	client.Close()
	socket.Close()
	if err != nil {
		unix.Close(ours)
		s.log.Error("start a gate", "err", err)
		return
	}
	// It is confined when its first request comes.
	confined := sync.OnceValue(func() error {
		if err := gate.checkConfined(s.log, slog.LevelDebug); err != nil {
			s.log.Warn("refused a gate", "err", err)
			return gpuerr.New(gpuerr.Denied, "the gate is not confined as the policy requires; device-manager's log says why")
		}
		return nil
	})
	err = s.serveBroker(ours, confined)
	// The broker socket is closed: the gate has ended, or ends now.
	ctx, cancel := context.WithTimeout(s.ctx, gateGrace)
	defer cancel()
	gate.endWithin(ctx)
	s.log.Debug("a gate ended", "pid", gate.pid(), "exit", gate.err, "broker", err)
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
