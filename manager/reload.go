package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/ledger"
)

// A policy is read again while the manager runs. Its changes for tenants take effect at once,
// on open connections and sessions too, and only for the tenants concerned. Changes of other
// parts are named in the answer.
//
//	compare ─► sockets of new tenants ─► record ─► owner and mode of sockets ─► all tenants at once
//	   └─ on an error the policy is refused, and nothing changes ──┘                   │
//	                            connections end ◄─ drivers end sessions and get limits ┘
//
// From the moment the tenants are changed, no connection is admitted and no session opened
// under the earlier policy: a connection that is being admitted, and a session that is being
// opened, is checked again once it is known (join, settlePolicy).

// servers returns the served tenants, in the policy's order.
func (m *Manager) servers() []*tenantServer {
	m.served.mu.Lock()
	defer m.served.mu.Unlock()
	return slices.Clone(m.served.tenants)
}

// setServers sets the served tenants, and those that are still ending.
func (m *Manager) setServers(all []*tenantServer, leaving ...*tenantServer) {
	m.served.mu.Lock()
	defer m.served.mu.Unlock()
	m.served.tenants, m.served.leaving = all, leaving
}

func policiesOf(servers []*tenantServer) (all []*Tenant) {
	for _, s := range servers {
		all = append(all, s.policy())
	}
	return all
}

// reloading is a reload, or the plan of one.
type reloading struct {
	m       *Manager
	changes Changes
	rev     revision

	served         []*tenantServer // before it, in the order of rev.before
	all            []*tenantServer // after it, in the policy's order
	added, removed []*tenantServer
	changed        map[*tenantServer]*Tenant // their policies after it
}

// plan compares a policy with the one in force. The caller holds the turn (enterChange).
func (m *Manager) plan(next *Policy) (*reloading, error) {
	if err := next.checkHost(); err != nil {
		return nil, err
	}
	if err := m.checkRoom(next); err != nil {
		return nil, err
	}

	served := m.servers()
	r := &reloading{m: m, served: served, rev: revision{before: policiesOf(served)}, changed: map[*tenantServer]*Tenant{}}
	r.changes = Changes{Tenants: []TenantChange{}, Restart: append([]string{}, needRestart(m.cfg.Policy, next)...), Failed: []string{}}
	for i := range next.Tenants {
		t := &next.Tenants[i]
		at := slices.IndexFunc(served, func(s *tenantServer) bool { return s.policy().Name == t.Name })
		switch {
		case at < 0:
			r.changes.Tenants = append(r.changes.Tenants, TenantChange{Tenant: t.Name, Change: "added", Fields: []string{}})
		case len(fieldsOf(served[at].policy(), t)) == 0:
			t = served[at].policy() // the same pointer: nothing has changed
		default:
			r.changed[served[at]] = t
			r.changes.Tenants = append(r.changes.Tenants, TenantChange{Tenant: t.Name, Change: "changed", Fields: fieldsOf(served[at].policy(), t)})
		}
		r.rev.now = append(r.rev.now, t)
		if at >= 0 {
			r.all = append(r.all, served[at])
		} else {
			r.all = append(r.all, nil) // prepare makes it
		}
	}

	for _, s := range served {
		if named(r.rev.now, s.policy().Name) == nil {
			r.removed = append(r.removed, s)
			r.changes.Tenants = append(r.changes.Tenants, TenantChange{Tenant: s.policy().Name, Change: "removed", Fields: []string{}})
		}
	}

	r.count()
	return r, nil
}

// count counts the connections and sessions that would end now.
func (r *reloading) count() {
	for i, s := range r.served {
		before := r.rev.before[i]
		c := r.change(before.Name)
		if c == nil {
			continue
		}
		now := named(r.rev.now, before.Name)
		for _, conn := range s.all() {
			if now == nil || now.refuses(conn.who, before) != nil {
				c.Connections++
			}
		}
		for _, d := range r.m.devices {
			if s, _ := d.board.get(); s.link != nil {
				c.Sessions += s.link.sessions.count(c.Tenant, r.rev.refuse(d.name))
			}
		}
	}
}

// change returns the change of a tenant, or nil.
func (r *reloading) change(tenant string) *TenantChange {
	i := slices.IndexFunc(r.changes.Tenants, func(c TenantChange) bool { return c.Tenant == tenant })
	if i < 0 {
		return nil
	}
	return &r.changes.Tenants[i]
}

// enterChange waits for the turn to compare or change the policy. The context that it returns
// ends with ctx, and when the manager is closed.
func (m *Manager) enterChange(ctx context.Context) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(m.reload.ctx, func() { cancel(errStopping) })
	if err = m.reload.turn.enter(ctx); err == nil && ctx.Err() != nil {
		m.reload.turn.leave()
		err = context.Cause(ctx)
	}

	if err != nil {
		stop()
		cancel(nil)
		return nil, nil, err
	}

	return ctx, func() {
		m.reload.turn.leave()
		stop()
		cancel(nil)
	}, nil
}

// Plan returns the changes that Reload would make.
func (m *Manager) Plan(ctx context.Context, next *Policy) (Changes, error) {
	_, leave, err := m.enterChange(ctx)
	if err != nil {
		return Changes{}, err
	}
	defer leave()
	r, err := m.plan(next)
	if err != nil {
		return Changes{}, err
	}
	return r.changes, nil
}

// Reload makes another policy effective, as far as it concerns tenants. New tenants are
// served. The sockets, sessions and connections of removed tenants end. If a tenant loses
// rights, only the sessions and connections that used them end. Reload returns when all that
// is done, or when the manager is closed or ctx ends; Failed then names the changes that have
// not taken effect. After an error nothing has changed.
func (m *Manager) Reload(ctx context.Context, next *Policy) (Changes, error) {
	ctx, leave, err := m.enterChange(ctx)
	if err != nil {
		return Changes{}, err
	}

	defer leave()
	r, err := m.plan(next)
	if err != nil {
		return Changes{}, err
	}
	if !r.changes.Any() {
		return r.changes, nil
	}
	if err := r.prepare(); err != nil {
		return Changes{}, err
	}

	crashpoint.Here("manager.reload.prepared")
	r.commit()
	crashpoint.Here("manager.reload.committed")
	r.follow(ctx)
	return r.changes, nil
}

// prepare does all steps that can fail, or undoes them.
func (r *reloading) prepare() (err error) {
	m := r.m
	var undo []func() error
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()

	for i, s := range r.all {
		if s != nil {
			continue
		}
		t := r.rev.now[i]
		if s, err = m.newTenantServer(t); err != nil {
			return fmt.Errorf("open the sockets of tenant %q: %w", t.Name, err)
		}
		undo = append(undo, func() error { return s.Close(newGrace(closeGrace)) })
		r.added = append(r.added, s)
		r.all[i] = s
	}

	if err = r.record(); err != nil {
		return err
	}

	for s, t := range r.changed {
		before := s.policy()
		if before.SocketMode == t.SocketMode && before.SocketUID == t.SocketUID && before.SocketGID == t.SocketGID {
			continue
		}
		undo = append(undo, func() error { return s.reown(t, before) })
		if err = s.reown(before, t); err != nil {
			_, e := m.audit.Append("policy.refused", "", fmt.Sprintf("cause=%q", clipped(err.Error())))
			return errors.Join(err, e)
		}
	}

	return nil
}

// record records the changes before they are made.
func (r *reloading) record() error {
	if _, err := r.m.audit.Append("policy.reload", "", fmt.Sprintf("tenants=%d added=%d removed=%d changed=%d restart=%q",
		len(r.rev.now), len(r.added), len(r.removed), len(r.changed), strings.Join(r.changes.Restart, " "))); err != nil {
		return gpuerr.New(gpuerr.IO, "the audit log cannot be written, so the policy stays: %v", err)
	}
	for _, c := range r.changes.Tenants {
		if _, err := r.m.audit.Append("policy.tenant", c.Tenant, fmt.Sprintf("change=%s fields=%q sessions=%d connections=%d",
			c.Change, strings.Join(c.Fields, " "), c.Sessions, c.Connections)); err != nil {
			return gpuerr.New(gpuerr.IO, "the audit log cannot be written, so the policy stays: %v", err)
		}
	}
	return nil
}

// reown gives the sockets of a tenant the owner and mode of another policy. In between they
// admit only users that both policies admit.
func (s *tenantServer) reown(before, now *Tenant) error {
	uid, gid := now.socketOwner()
	for _, path := range []string{s.m.dir.socketPath(now.Name), s.m.dir.capnpSocketPath(now.Name)} {
		err := os.Chmod(path, before.SocketMode&now.SocketMode)
		if err == nil {
			err = os.Lchown(path, uid, gid)
		}
		if err == nil {
			err = os.Chmod(path, now.SocketMode)
		}
		if err != nil {
			return fmt.Errorf("change the owner and the mode of the sockets of tenant %q: %w", now.Name, err)
		}
	}
	return nil
}

// socketOwner returns the owner of the sockets.
func (t *Tenant) socketOwner() (uid, gid int) {
	if uid, gid = t.SocketUID, t.SocketGID; uid < 0 {
		uid = os.Geteuid()
	}
	if gid < 0 {
		gid = os.Getegid()
	}
	return uid, gid
}

// commit puts the policy in force: no connection is admitted and no session opened under the
// earlier one. Connections that have to end get that answer from now on.
func (r *reloading) commit() {
	for _, s := range r.removed {
		s.removed.Store(true)
		if err := s.refuse(); err != nil {
			r.fail("remove the sockets of tenant %q: %v", s.policy().Name, err)
		}
	}

	for s, t := range r.changed {
		s.tenant.Store(t)
		s.account.SetLimit(ledger.Connections, t.MaxConnections)
	}

	r.m.setServers(r.all, r.removed...)
	for i, s := range r.served {
		if c := r.change(r.rev.before[i].Name); c != nil {
			c.Connections = s.deny(r.rev.before[i])
		}
	}
}

// deny refuses further requests of connections that the policy no longer admits, and counts
// them.
func (s *tenantServer) deny(before *Tenant) (denied int) {
	for _, c := range s.all() {
		if err := s.refuses(c, before, s.policy()); err != nil {
			c.denied.Store(gpuerr.From(err))
			denied++
		}
	}
	return denied
}
