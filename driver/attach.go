package driver

import (
	"errors"

	"capgpu/control"
	"capgpu/gpu"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
)

// attach opens a session and serves it on the socket that came with the request.
func (d *driver) attach(m *control.Message) error {
	defer d.attaching.Add(-1)
	if d.attaching.Add(1) > maxAttaching {
		return gpuerr.New(gpuerr.Busy, "%d sessions are being opened already; try again", maxAttaching)
	}

	req, err := control.ParseAttachRequest(m.Body)
	if err != nil {
		return err
	}
	if err := d.beginSession(); err != nil {
		return err
	}

	crashpoint.Here("driver.attach.received")
	session, err := d.device.OpenSession(gpu.Attach{
		ID:           req.Session,
		Tenant:       req.Tenant,
		TenantLimits: limitsOf(req.TenantLimits),
		Limits:       limitsOf(req.SessionLimits),
		Facet:        gpu.Facet(req.Facet),
		Weight:       req.Weight,
		MaxDeadline:  deadlineOf(req.MaxDeadlineNanos),
		Programs:     req.Programs,
	})
	if err != nil {
		d.sessions.Done()
		return err
	}

	conn, err := control.NewConn(m.FDs[0], control.ConnOptions{})
	m.FDs = nil // the Conn owns it, also when NewConn failed
	if err != nil {
		d.sessions.Done()
		return errors.Join(err, session.Close())
	}

	crashpoint.Here("driver.attach.opened")
	go d.runSession(req.Session, req.Tenant, conn, session)
	return nil
}

// beginSession counts a session, unless the device is closing.
func (d *driver) beginSession() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return gpuerr.New(gpuerr.Busy, "the driver is shutting down; open the device again")
	}
	d.sessions.Add(1)
	return nil
}

func (d *driver) runSession(id uint64, tenant string, conn *control.Conn, s *gpu.Session) {
	defer d.sessions.Done()
	err := d.upgrade.hub.Serve(d.ctx, conn, s)
	d.log.Debug("session ended", "session", id, "tenant", tenant, "why", err)
}
