package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"capgpu/audit"
	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
)

// tenantServer serves the two sockets of one tenant.
//
//	accept ──► credentials (SO_PEERCRED) ──► room? (Connections) ──► broker, or gate and broker
//	                 └── not allowed ────────────┴── no ──► refused, and closed
type tenantServer struct {
	m       *Manager
	log     *slog.Logger
	account *ledger.Account
	audit   AuditLog               // of the tenant
	shares  *auditShares           // bounds the records that its gates cause
	tenant  atomic.Pointer[Tenant] // replaced as a whole

	mu sync.Mutex
	// +checklocks:mu
	connections map[*connection]struct{}

	direct, capnp *net.UnixListener

	removed  atomic.Bool     // the policy has removed it
	ctx      context.Context // of all connections
	cancel   context.CancelCauseFunc
	running  sync.WaitGroup // accept loops and connections
	refusals chan struct{}  // a token per connection that is being refused
	seats    seats
	gatePace gatePace
	asking   map[*device]turnstile // for requests to its driver; the map does not change
}

const (
	maxRefusals    = 8 // at once; further ones are closed without an answer
	refusalTimeout = 2 * time.Second
)

func (m *Manager) newTenantServer(t *Tenant) (s *tenantServer, err error) {
	if s, err = m.newTenant(t); err != nil {
		return nil, err
	}
	if s.direct, err = listen(m.dir.socketPath(t.Name), "unixpacket", t); err == nil {
		s.capnp, err = listen(m.dir.capnpSocketPath(t.Name), "unix", t)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(newGrace(closeGrace)))
	}
	return s, nil
}

// newTenant returns a tenant's server without its sockets.
func (m *Manager) newTenant(t *Tenant) (*tenantServer, error) {
	limits := ledger.NoLimits()
	limits[ledger.Connections] = t.MaxConnections
	account, err := m.ledger.Root().Child("tenant "+t.Name, limits)
	if err != nil {
		return nil, err
	}

	own, err := m.keepLog(audit.OfTenant(t.Name))
	if err != nil {
		return nil, errors.Join(err, account.Close())
	}

	log := m.log.With("tenant", t.Name)
	s := &tenantServer{m: m, log: log, account: account, audit: own, shares: gateShares(m, own, log), refusals: make(chan struct{}, maxRefusals), asking: map[*device]turnstile{}, connections: map[*connection]struct{}{}}
	for _, d := range m.devices {
		s.asking[d] = newTurnstile(maxTenantAsking)
	}

	s.tenant.Store(t)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s, nil
}

// listen makes a socket in a hidden directory, gives it its owner and mode, and then its
// name.
func listen(path, network string, t *Tenant) (*net.UnixListener, error) {
	hidden, err := os.MkdirTemp(filepath.Dir(path), hiddenPrefix)
	if err != nil {
		return nil, err
	}

	defer os.RemoveAll(hidden)
	made := filepath.Join(hidden, "s")
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: made, Net: network})
	if err != nil {
		return nil, fmt.Errorf("%w (a socket's path may have 107 bytes; choose a shorter run directory if this one is longer)", err)
	}

	l.SetUnlinkOnClose(false) // its name has changed by then
	if err = prepare(l); err == nil {
		err = os.Chmod(made, t.SocketMode)
	}

	if err == nil && (t.SocketUID >= 0 || t.SocketGID >= 0) {
		if err = os.Lchown(made, t.SocketUID, t.SocketGID); errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w: only root can give a socket to another user or group", err)
		}
	}

	if err == nil {
		crashpoint.Here("manager.listen.made")
		err = os.Rename(made, path)
	}

	if err != nil {
		l.Close()
		return nil, err
	}

	return l, nil
}

// prepare lets no connection to l receive descriptors, from its first byte on, and bounds the
// kernel's queue to maxBacklog.
func prepare(l *net.UnixListener) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var listening error
	err = raw.Control(func(fd uintptr) {
		control.RefuseDescriptors(int(fd))
		listening = unix.Listen(int(fd), maxBacklog)
	})
	return errors.Join(err, listening)
}

func (s *tenantServer) policy() *Tenant { return s.tenant.Load() }

// devices returns the devices that the tenant may use, by index.
func (s *tenantServer) devices() (mine []*device) {
	t := s.policy()
	for _, d := range s.m.devices {
		if t.mayUse(d.name) {
			mine = append(mine, d)
		}
	}
	return mine
}

func (s *tenantServer) start() {
	s.running.Go(func() { s.runAccept(s.direct, s.serveDirect, refuseDirect) })
	s.running.Go(func() { s.runAccept(s.capnp, s.serveCapnp, refuseCapnp) })
}

// refuse closes both sockets: no process connects from then on.
func (s *tenantServer) refuse() error {
	var errs []error
	for path, l := range map[string]*net.UnixListener{
		s.m.dir.socketPath(s.policy().Name):      s.direct,
		s.m.dir.capnpSocketPath(s.policy().Name): s.capnp,
	} {
		if l == nil {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		crashpoint.Here("manager.listen.removed")
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}

	return errors.Join(errs...)
}

// Close ends every connection and returns when none is left, or grace is over.
func (s *tenantServer) Close(grace *grace) error {
	err := s.refuse()
	s.cancel(errStopping)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.running.Wait()
	}()
	if !grace.wait(ended) {
		return errors.Join(err, fmt.Errorf("connections of tenant %q did not end within %v", s.policy().Name, closeGrace))
	}
	s.shares.close()
	return errors.Join(err, s.account.Close(), s.m.releaseLog(audit.OfTenant(s.policy().Name)))
}

const (
	// acceptPause keeps a manager without free descriptors from spinning.
	acceptPause = 50 * time.Millisecond
	// Connections are accepted from a socket in a burst, and then one per interval: to accept
	// and refuse one takes some 10 to 60 µs. Further ones wait in the kernel. That delays
	// only processes that connect to this socket.
	acceptBurst    = 256
	acceptInterval = 250 * time.Microsecond
	// maxBacklog connections wait in the kernel, for an eighth of a second at that rate. A
	// further connect(2) waits, or fails with EAGAIN if it is non-blocking.
	maxBacklog = 512
	// acceptNap is how long none is accepted when the burst is used up.
	acceptNap = 2 * time.Millisecond
)

// runAccept accepts connections until the listener is closed.
func (s *tenantServer) runAccept(l *net.UnixListener, serve func(*net.UnixConn, *connection), refuse func(context.Context, *net.UnixConn, error)) {
	limiter := newBucket(acceptBurst, acceptInterval, time.Now())
	for {
		if !limiter.allow(time.Now()) && sleep(s.ctx, acceptNap) {
			continue
		}
		c, err := l.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.log.Warn("accept a connection", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		uid, conn, leave, err := s.admit(c)
		if err != nil {
			s.log.Info("refused a connection", "uid", uid, "err", err)
			s.runRefusal(c, err, refuse)
			continue
		}
		s.running.Go(func() {
			defer leave()
			serve(c, conn)
		})
	}
}

// runRefusal tells a peer why it is refused, unless too many peers are being told.
func (s *tenantServer) runRefusal(c *net.UnixConn, why error, refuse func(context.Context, *net.UnixConn, error)) {
	select {
	case s.refusals <- struct{}{}:
	default:
		c.Close()
		return
	}
	s.running.Go(func() {
		defer func() { <-s.refusals }()
		ctx, cancel := context.WithTimeout(s.ctx, refusalTimeout)
		defer cancel()
		refuse(ctx, c, why)
	})
}

// admit checks the peer's credentials and charges the connection, until leave is called. A
// refusal comes with the peer's uid, if that is known.
func (s *tenantServer) admit(c *net.UnixConn) (uid uint32, conn *connection, leave func(), err error) {
	t := s.policy()
	who, err := credentialsOf(c)
	if err != nil {
		return 0, nil, nil, err
	}
	if err := t.refuses(who, t); err != nil {
		return who.uid, nil, nil, err
	}

	rise, err := s.seats.take(t, s.account, who.uid)
	if err != nil {
		return who.uid, nil, nil, err
	}

	if conn, err = s.join(who, t); err != nil {
		rise()
		return who.uid, nil, nil, err
	}

	return who.uid, conn, func() {
		s.leave(conn)
		rise()
	}, nil
}

func peerCred(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	ctlErr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(ctlErr, err); err != nil {
		return nil, gpuerr.New(gpuerr.IO, "read the credentials of a connection: %v", err)
	}
	return cred, nil
}

// takeFD returns the descriptor of a connection, which the caller then owns, and closes c.
func takeFD(c *net.UnixConn) (fd int, err error) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	ctlErr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(ctlErr, err); err != nil {
		return -1, gpuerr.New(gpuerr.IO, "duplicate a socket: %v", err)
	}
	return fd, nil
}

// serveDirect serves a client of the tenant socket.
func (s *tenantServer) serveDirect(c *net.UnixConn, conn *connection) {
	fd, err := takeFD(c)
	if err == nil {
		err = s.serveBroker(conn, fd)
	}
	s.log.Debug("a client left", "why", err)
}

// serveBroker answers broker messages on a SEQPACKET socket, which it owns, until the peer is
// gone or has been idle for too long.
func (s *tenantServer) serveBroker(client *connection, fd int) error {
	conn, err := control.NewConn(fd, control.ConnOptions{})
	if err != nil {
		return err
	}
	client.idle = newIdleWatch(s.policy().IdleTimeout, func() { client.cancel(errIdle) })
	defer client.idle.stop()
	return control.Serve(client.ctx, conn, newBroker(client).handle)
}

// refuseDirect answers the first request with why, and closes the connection.
func refuseDirect(ctx context.Context, c *net.UnixConn, why error) {
	fd, err := takeFD(c)
	if err != nil {
		return
	}
	conn, err := control.NewConn(fd, control.ConnOptions{WriteTimeout: refusalTimeout})
	if err != nil {
		return
	}
	_ = control.Serve(ctx, conn, func(_ context.Context, m *control.Message) *control.Message {
		m.CloseFDs()
		reply := control.ErrorReply(m, why)
		reply.Last = true
		return reply
	})
}
