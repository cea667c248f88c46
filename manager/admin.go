package manager

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// adminServer answers the operator. Only processes of the manager's own user and of root can
// open its socket.
type adminServer struct {
	m       *Manager
	path    string
	l       *net.UnixListener
	ctx     context.Context
	cancel  context.CancelCauseFunc
	places  chan struct{} // a token per connection
	running sync.WaitGroup
}

// AdminSocketName is the file of the operator's socket in the run directory. No tenant name
// contains a dot.
const AdminSocketName = "manager.admin.sock"

const maxAdmins = 8

func (m *Manager) startAdmin() (*adminServer, error) {
	s := &adminServer{m: m, path: filepath.Join(m.dir.path, AdminSocketName), places: make(chan struct{}, maxAdmins)}
	l, err := listen(s.path, "unixpacket", &Tenant{SocketMode: 0o600, SocketUID: -1, SocketGID: -1})
	if err != nil {
		return nil, err
	}
	s.l = l
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.running.Go(s.runAccept)
	return s, nil
}

func (s *adminServer) runAccept() {
	for {
		c, err := s.l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.m.log.Warn("accept an operator's connection", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		cred, err := peerCred(c)
		if err != nil || cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
			c.Close()
			continue
		}
		select {
		case s.places <- struct{}{}:
		default:
			c.Close()
			continue
		}
		s.running.Go(func() {
			defer func() { <-s.places }()
			if err := s.serve(c); err != nil {
				s.m.log.Debug("an operator left", "why", err)
			}
		})
	}
}

func (s *adminServer) serve(c *net.UnixConn) error {
	fd, err := takeFD(c)
	if err != nil {
		return err
	}

	conn, err := control.NewConn(fd, control.ConnOptions{})
	if err != nil {
		return err
	}

	asked := &planAsker{m: s.m}
	return control.Serve(s.ctx, conn, func(ctx context.Context, m *control.Message) *control.Message {
		m.CloseFDs()
		if m.Type == control.TypePlan {
			return asked.handle(ctx, m)
		}
		return s.handle(ctx, m)
	})
}

func (s *adminServer) handle(ctx context.Context, m *control.Message) *control.Message {
	switch m.Type {
	case control.TypeUpgrade, control.TypeSuspend, control.TypeResume:
	default:
		return control.ErrorReply(m, gpuerr.New(gpuerr.Unimplemented, "%v is no message of the admin socket", m.Type))
	}

	var req control.UpgradeRequest
	var err error
	if m.Type == control.TypeUpgrade {
		req, err = control.ParseUpgradeRequest(m.Body)
	} else {
		var plain control.DeviceRequest
		plain, err = control.ParseDeviceRequest(m.Body)
		req.Device = plain.Device
	}

	if err != nil {
		return control.ErrorReply(m, err)
	}

	i := slices.IndexFunc(s.m.devices, func(d *device) bool { return d.name == req.Device })
	if i < 0 {
		return control.ErrorReply(m, gpuerr.New(gpuerr.NoDevice, "there is no device %.64q", req.Device))
	}

	reply, err := s.m.devices[i].order(ctx, m.Type, req.Force)
	switch {
	case err != nil:
		return control.ErrorReply(m, err)
	case m.Type == control.TypeUpgrade:
		return control.NewReply(m, reply.AppendTo(nil))
	}

	return control.NewReply(m, nil)
}

// Close ends every connection. A request that the supervision has begun goes on there.
func (s *adminServer) Close() error {
	if s == nil {
		return nil
	}
	err := os.Remove(s.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	s.cancel(errStopping)
	if e := s.l.Close(); !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	s.running.Wait()
	return err
}

// AdminSocketPath returns the path of the operator's socket.
func (m *Manager) AdminSocketPath() string { return filepath.Join(m.dir.path, AdminSocketName) }
