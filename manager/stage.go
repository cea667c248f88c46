package manager

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"capgpu/control"
	"capgpu/ledger"
)

// Stage is a manager without sockets and processes, for simulations: one function with its
// epochs, grants, back-off, faults and board, and the brokers of its tenants. Drivers are
// Actors of this process, and clients send requests by method calls. All the rest is the
// manager's own code, and works on virtual time.
type Stage struct {
	m *Manager
	d *device
}

// StageConfig configures a Stage.
type StageConfig struct {
	// Config needs a Policy, of which the first function is used, and an Audit log. Hardware
	// may be nil; it is used for faults only.
	Config
	Function Function // owned by the Stage from here on, also when NewStage fails
	Actors   func(Role) Actor
}

// NewStage starts supervising the function.
func NewStage(c StageConfig) (*Stage, error) {
	if c.Policy == nil || c.Audit == nil || c.Actors == nil {
		return nil, errors.Join(errors.New("StageConfig needs a Policy, an Audit log and Actors"), c.Function.Close())
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}

	c.setTimes()
	m := &Manager{cfg: c.Config, log: c.Log, audit: c.Audit, iommu: c.Audit, ledger: ledger.New("manager", ledger.NoLimits())}
	m.faults.unclear = newRateLimiter(faultBurst, faultInterval, time.Now())
	var err error
	if m.reconcile, err = newReconciler(m.audit, m.log, func() (kernelSource, error) { return nil, nil }, false); err != nil {
		return nil, errors.Join(err, c.Function.Close())
	}

	p := m.cfg.Policy.named()[0]
	d, err := newDevice(m, 0, p, c.Function, p.IOVAEntries)
	if err != nil {
		return nil, err
	}

	d.drivers.actors = c.Actors
	m.devices = []*device{d}
	for i := range m.cfg.Policy.Tenants {
		t, err := m.newTenant(&m.cfg.Policy.Tenants[i])
		if err != nil {
			return nil, errors.Join(err, d.release())
		}
		m.setServers(append(m.servers(), t))
	}

	if c.Hardware != nil {
		m.watchFaults()
		d.faults.watch = m.faults.watch
	}

	d.start()
	return &Stage{m: m, d: d}, nil
}

// Connect plays a client that has connected to the socket of a tenant and was admitted. It
// fails with gpuerr.Quota when the tenant has too many connections.
func (s *Stage) Connect(tenant string) (*StageConn, error) {
	for _, t := range s.m.servers() {
		if t.policy().Name != tenant {
			continue
		}
		charge, err := t.account.Reserve(ledger.Connections, 1)
		if err != nil {
			return nil, err
		}
		charge.Commit()
		conn, err := t.join(credentials{}, t.policy())
		if err != nil {
			charge.Release()
			return nil, err
		}
		conn.idle = newIdleWatch(t.policy().IdleTimeout, func() { conn.cancel(errIdle) })
		return &StageConn{handle: newBroker(conn).handle, conn: conn, charge: &charge}, nil
	}

	return nil, errors.New("the policy has no tenant " + tenant)
}

// StageConn is a connection of a client to its broker.
type StageConn struct {
	handle control.Handler
	conn   *connection
	charge *ledger.Receipt
}

// Ask answers a message as the broker does. The caller owns a descriptor of the reply.
func (c *StageConn) Ask(m *control.Message) *control.Message { return c.handle(c.conn.ctx, m) }

// Ended reports whether the client has hung up, or was idle for too long.
func (c *StageConn) Ended() bool { return c.conn.ctx.Err() != nil }

// Close ends waiting requests and the connection.
func (c *StageConn) Close() {
	c.conn.idle.stop()
	c.conn.tenant.leave(c.conn)
	c.charge.Release()
}

// Usage returns Manager.Usage.
func (s *Stage) Usage() []ledger.Entry { return s.m.Usage() }

// Check is Manager.Check.
func (s *Stage) Check() error { return s.m.Check() }

// Close does the same as Manager.Close, but closes no audit log. It returns an error if an
// account is not at zero.
func (s *Stage) Close(ctx context.Context) error {
	errs := []error{s.m.closeDevices(ctx), s.m.faults.watch.Close()}
	for _, t := range s.m.servers() {
		t.cancel(errStopping)
		errs = append(errs, t.account.Close())
	}
	errs = append(errs, s.m.ledger.Root().Zero(), s.m.ledger.Check(), s.m.reconcile.Close())
	return errors.Join(errs...)
}
