package manager

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/control"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/internal/shm"
)

// describe returns the device as the tenant sees it.
func (d *device) describe(t *Tenant) control.DeviceInfo {
	s, _ := d.board.get()
	memory := s.memoryBytes
	if memory == 0 {
		memory = d.policy.MemoryBytes
	}
	info := d.function.Identity()
	if s.state != ready {
		s.shortage = ""
	}
	return control.DeviceInfo{
		Index: d.index, State: uint32(s.state), Epoch: s.epoch, MemoryBytes: memory, PCIAddress: info.PCIAddress,
		VendorID: info.VendorID, DeviceID: info.DeviceID, Facet: t.Facet, Name: d.name, Backend: s.backend, Recovery: uint32(s.recovery()), Generation: uint32(s.generation), Suspended: s.suspended, Shortage: s.shortage,
	}
}

// live returns the driver that takes sessions now, or an error that says why there is none.
func (d *device) live() (*driverLink, error) {
	s, _ := d.board.get()
	switch s.state {
	case ready:
		if s.suspended {
			return nil, gpuerr.New(gpuerr.Busy, "device %s is suspended by its operator; open it again when it is resumed", d.name)
		}
		select {
		case <-s.link.caller.Done():
			// The driver has ended; the supervision is about to see it.
			return nil, gpuerr.New(gpuerr.Busy, "the driver of %s was lost just now; wait for the device's next state and open it again", d.name)
		default:
			return s.link, nil
		}
	case wedged:
		return nil, gpuerr.New(gpuerr.DeviceLost, "device %s: %s", d.name, s.cause)
	case recovering:
		return nil, gpuerr.New(gpuerr.Busy, "device %s is recovering (%s); wait for its next state and open it again", d.name, s.cause)
	default:
		return nil, gpuerr.New(gpuerr.Busy, "device %s is starting; wait for its next state and open it then", d.name)
	}
}

// attach opens a session for a connection's tenant and returns the client's end of its
// control socket. The connection is busy until the session ends.
func (d *device) attach(ctx context.Context, by *connection) (epoch uint64, fd int, err error) {
	t := by.tenant.policy()
	l, err := d.live()
	if err != nil {
		return 0, -1, err
	}

	id := d.requests.sessions.Add(1)
	who := openSession{tenant: t.Name, by: by, facet: t.Facet, programs: t.Programs}
	l.sessions.ask(id, func() error {
		_, err := d.logs.shares.append(t.Name, t.Name, "session.attach", fmt.Sprintf("%s epoch=%d session=%d facet=%s", d.name, l.epoch, id, facetNames[t.Facet]))
		return counted(err)
	})
	unwritable := false
	defer func() {
		if err != nil {
			l.sessions.end(id)
		}
		if err != nil && !unwritable {
			d.recordRefused(t.Name, fmt.Sprintf("%s epoch=%d session=%d cause=%q", d.name, l.epoch, id, clipped(err.Error())))
		}
	}()

	ours, theirs, err := shm.Socketpair()
	if err != nil {
		return 0, -1, err
	}

	defer unix.Close(theirs) // sent, or not needed
	req := control.AttachRequest{
		Session: id, Tenant: t.Name, Facet: t.Facet, Weight: t.Weight,
		MaxDeadlineNanos: uint64(t.MaxDeadline), TenantLimits: wireLimits(t.Limits), Programs: t.Programs,
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	if _, err := l.call(ctx, control.TypeAttach, req.AppendTo(nil), []int{theirs}); err != nil {
		unix.Close(ours)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			err = d.unanswered()
		case errors.Is(err, gpuerr.Disconnected), errors.Is(err, gpuerr.Closed):
			if _, gone := d.live(); errors.Is(gone, gpuerr.DeviceLost) {
				return 0, -1, gone
			}
			err = gpuerr.New(gpuerr.Busy, "the driver of %s was lost while it opened the session; wait for the device's next state and open it again", d.name)
		}
		return 0, -1, err
	}

	crashpoint.Here("manager.attach.sent")

	// The session is recorded or counted before the client has it.
	if err := l.sessions.attach(id, who); err != nil {
		unix.Close(ours)
		if _, gone := d.live(); errors.Is(gone, gpuerr.DeviceLost) {
			return 0, -1, gone
		}
		if unwritable = !errors.Is(err, errAttachLost) && !errors.Is(err, errTooManyOpen); unwritable {
			err = gpuerr.New(gpuerr.IO, "the audit log cannot be written, so no session is opened: %v", err)
		}
		return 0, -1, err
	}

	crashpoint.Here("manager.attach.recorded")
	if err := d.settlePolicy(ctx, l, id, who, t); err != nil {
		unix.Close(ours) // and this ends the session
		return 0, -1, err
	}

	return l.epoch, ours, nil
}

// recordRefused records an attach that failed, at a limited rate: a failed attach costs the
// client nothing.
func (d *device) recordRefused(tenant, detail string) {
	d.recorded("session.refused", counted(d.logs.shares.appendPaced(tenant, tenant, "session.refused", detail)))
}

// unanswered is the error for a client when the driver does not answer and may be replaced.
func (d *device) unanswered() error {
	return gpuerr.New(gpuerr.Busy, "the driver of %s did not answer for %v; try again", d.name, d.cfg.PingTimeout)
}

// status returns the driver's account of a tenant. The manager does not read it.
func (d *device) status(ctx context.Context, tenant string) ([]byte, error) {
	l, err := d.live()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, d.cfg.PingTimeout)
	defer cancel()
	m, err := l.call(ctx, control.TypeDriverStatus, control.DriverStatusRequest{Tenant: tenant}.AppendTo(nil), nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, d.unanswered()
	case err != nil:
		return nil, err
	}

	m.CloseFDs()
	return m.Body, nil
}
