package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"capgpu/control"
	"capgpu/gpuerr"
)

// A driver with sessions follows a change of the policy. The manager knows the connection and
// the rights of each session, and asks the driver to end those that the policy no longer
// allows. A driver that does not do so in time is ended with all its sessions, because rights
// that the policy took away must not stay.

// disallows returns why a session on a device, opened under the policy before, must not
// continue under the policy now (nil: the tenant is gone), or nil.
func disallows(o *openSession, device string, before, now *Tenant) error {
	switch {
	case now == nil:
		return errRemoved(o.tenant)
	case !now.mayUse(device):
		return gpuerr.New(gpuerr.Denied, "the policy does not give device %s to tenant %q any more", device, o.tenant)
	case o.facet > now.Facet:
		return gpuerr.New(gpuerr.Busy, "the policy does not allow the facet %s any more, but %s: open the device again", facetNames[o.facet], facetNames[now.Facet])
	case o.facet > 0 && len(now.Programs) > 0 && (len(o.programs) == 0 || slices.ContainsFunc(o.programs, func(p string) bool { return !slices.Contains(now.Programs, p) })):
		return gpuerr.New(gpuerr.Busy, "the policy allows fewer built-in programs than before: open the device again")
	}
	return now.refuses(o.by.who, before)
}

// revision is a change of the policy for one device.
type revision struct {
	before, now []*Tenant // all tenants of the policy, also those that may not use the device
}

func named(tenants []*Tenant, name string) *Tenant {
	for _, t := range tenants {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// refuse returns a function that says why a session of the device ends, or nil.
func (r *revision) refuse(device string) func(*openSession) error {
	return func(o *openSession) error {
		before := named(r.before, o.tenant)
		if before == nil {
			return nil // opened under the new policy
		}
		return disallows(o, device, before, named(r.now, o.tenant))
	}
}

// usersOf returns the tenants that may use a device.
func usersOf(tenants []*Tenant, device string) (users []*Tenant) {
	for _, t := range tenants {
		if t.mayUse(device) {
			users = append(users, t)
		}
	}
	return users
}

// revise makes the driver of a device, if there is one, follow a change of the policy. It
// returns how many sessions of each tenant had to end, once no work of them runs or their
// driver is given up. The error says why that is not so.
func (d *device) revise(ctx context.Context, r *revision) (ended map[string]int, err error) {
	// While a request to the driver is counted here, no upgrade is under way. The other
	// requests end within their own bounds, so this does not wait for long.
	if err := d.requests.turns.enter(ctx); err != nil {
		return nil, err
	}

	defer d.requests.turns.leave()
	s, _ := d.board.get()
	if s.link == nil {
		return nil, nil // the next driver gets the limits before it is ready, and has no session
	}

	l, before, now := s.link, usersOf(r.before, d.name), usersOf(r.now, d.name)
	ended = map[string]int{}
	var errs []error
	left := gone(before, now)
	for tenant, sessions := range l.sessions.markEnding(r.refuse(d.name)) {
		ended[tenant] = len(sessions)
		if !slices.Contains(left, tenant) {
			errs = append(errs, d.endSessions(ctx, l, tenant, sessions))
		}
	}

	for _, tenant := range left {
		errs = append(errs, d.endTenant(ctx, l, tenant))
	}

	told := d.tellTenants(ctx, l, changed(before, now), d.cfg.PingTimeout)
	return ended, errors.Join(append(errs, told)...)
}

// catchUp is revise for a driver that has just become ready and knows the tenants before: it
// has no session of theirs.
func (d *device) catchUp(ctx context.Context, l *driverLink, before []*Tenant) error {
	now := d.tenants()
	errs := []error{d.tellTenants(ctx, l, changed(before, now), d.cfg.PingTimeout)}
	for _, tenant := range gone(before, now) {
		errs = append(errs, d.endTenant(ctx, l, tenant))
	}
	return errors.Join(errs...)
}

// endSessions makes a driver end sessions of a tenant that were marked (markEnding). Those
// with the same reason end together.
func (d *device) endSessions(ctx context.Context, l *driverLink, tenant string, sessions []uint64) error {
	byReason := map[string][]uint64{}
	for _, id := range sessions {
		if cause := l.sessions.endCause(id); cause != nil { // else its end was recorded just now
			reason := clipped(gpuerr.From(cause).Msg)
			byReason[reason] = append(byReason[reason], id)
		}
	}

	for reason, ids := range byReason {
		for some := range slices.Chunk(ids, control.MaxEndSessions) {
			if err := d.askToEnd(ctx, l, control.EndSessionsRequest{Tenant: tenant, Reason: reason, Sessions: some}); err != nil {
				return err
			}
		}
	}

	return nil
}

// endTenant makes a driver end and forget a tenant.
func (d *device) endTenant(ctx context.Context, l *driverLink, tenant string) error {
	reason := fmt.Sprintf("the policy does not give device %s to tenant %q any more", d.name, tenant)
	return d.askToEnd(ctx, l, control.EndSessionsRequest{Tenant: tenant, All: true, Reason: reason})
}

// endPatience is how many PingTimeouts a driver may take to end sessions. Work that does not
// stop ends as if it hung.
const endPatience = 2

// askToEnd returns when the sessions have ended, or their driver has. A driver that does not
// obey is ended, unless ctx has ended: then all drivers are.
func (d *device) askToEnd(ctx context.Context, l *driverLink, req control.EndSessionsRequest) error {
	patience := endPatience * d.cfg.PingTimeout
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	_, err := l.call(call, control.TypeEndSessions, req.AppendTo(nil), nil)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, gpuerr.Disconnected), errors.Is(err, gpuerr.Closed):
		return nil // its sessions have ended with it
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("the driver did not end sessions that the policy has taken away within %v", time.Since(began).Round(time.Millisecond))
	default:
		err = fmt.Errorf("the driver refused to end sessions that the policy has taken away: %w", err)
	}

	l.failure.report(err)
	return gpuerr.New(gpuerr.Busy, "device %s: %v; it is replaced, and all of its sessions end", d.name, err)
}

// settlePolicy checks a session that was opened while the policy may have changed; the driver
// got the rights of t with it. It returns why the session must end, or nil when it may stay
// and the driver has the tenant's current rights.
func (d *device) settlePolicy(ctx context.Context, l *driverLink, id uint64, o openSession, t *Tenant) error {
	for before := t; ; {
		now := o.by.tenant.policy()
		err := l.sessions.endCause(id)
		switch {
		case err != nil:
		case o.by.tenant.removed.Load():
			err = errRemoved(t.Name)
		case now == before:
			return nil
		default:
			err = disallows(&o, d.name, t, now)
		}
		if err != nil {
			return err
		}
		if err := d.sendTenant(ctx, l, now); err != nil {
			return gpuerr.New(gpuerr.Busy, "the policy changed while the session was opened: open the device again")
		}
		before = now
	}
}
