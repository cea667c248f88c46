package gpu

import (
	"errors"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
)

// The policy can change while sessions are open. The numbers that it gives a tenant hold
// for open sessions as well, at once; the device-manager, which knows the policy, ends the
// sessions that it allows no longer, and a tenant that it has no more is forgotten:
//
//	known ──EndTenant──► leaving ──(its last session is reclaimed)──► forgotten
//	  ▲                     │
//	  └──────SetTenant──────┘

// TenantPolicy is what the policy gives all sessions of a tenant together.
type TenantPolicy struct {
	Limits      ledger.Limits
	Weight      uint32        // in the fair share; 0 means 1
	MaxDeadline time.Duration // of a submission; 0: the device's
}

// SetTenant changes what a tenant has, in open sessions, too. Limits below what is in use
// block new charges only; a deadline that is longer than that of an open session changes
// nothing for that one; what was submitted keeps its own. A tenant that was never seen is
// known from here on, so that its budget can be told before it has a session.
func (d *Device) SetTenant(name string, p TenantPolicy) error {
	t, err := d.tenantOf(name, p.Limits, p.Weight)
	if err != nil {
		return err
	}
	d.reactor.setWeight(t.flow, p.Weight)
	if p.MaxDeadline <= 0 {
		p.MaxDeadline = d.cfg.MaxDeadline
	}
	t.longest.Store(int64(p.MaxDeadline))
	d.auditEvent("tenant.limits", nil, "tenant=%.64s %s", t.name, limitsText(p.Limits)) // not the tenant's doing, nor its bytes
	return nil
}

// tenantOf returns the tenant, made when it is first seen, and with these limits. One that
// was leaving stays.
func (d *Device) tenantOf(name string, limits ledger.Limits, weight uint32) (*tenant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tenants[name]; t != nil {
		t.leaving = nil
	}
	return d.tenantLocked(name, limits, weight)
}

// +checklocks:d.mu
func (d *Device) tenantLocked(name string, limits ledger.Limits, weight uint32) (*tenant, error) {
	t := d.tenants[name]
	if t == nil {
		d.lastGroup++
		t = &tenant{name: name, group: d.lastGroup, flow: newFlow(nil, weight), loading: newLine(), wanted: make(chan struct{}, 1)}
		var err error
		if t.account, err = d.ledger.Root().Child("tenant "+name, limits); err != nil {
			return nil, err
		}
		if t.node, err = d.root.NewChild("tenant "+name, revoke.Ops{Urgent: true}); err != nil {
			return nil, errors.Join(err, t.account.Close())
		}
		d.tenants[name] = t
		return t, nil
	}
	setLimits(t.account, limits)
	return t, nil
}

// openerOf is tenantOf for an OpenSession, of which so many are under way then. A tenant
// that is leaving opens none. The caller calls openEnded.
func (d *Device) openerOf(a *Attach) (t *tenant, opening int32, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tenants[a.Tenant]; t != nil && t.leaving != nil {
		return nil, 0, t.leaving
	}
	if t, err = d.tenantLocked(a.Tenant, a.TenantLimits, a.Weight); err != nil {
		return nil, 0, err
	}
	return t, t.openers.Add(1), nil
}

func (d *Device) openEnded(t *tenant) {
	if t.openers.Add(-1) == 0 {
		d.forget(t)
	}
}

// EndSessions ends those of a tenant's sessions that were attached under these numbers,
// with all that was restricted from them. It returns how many when nothing of them runs
// any more, which is within the hang bound. All that they had is reclaimed behind that.
func (d *Device) EndSessions(tenant string, attached []uint64, cause error) (ended int) {
	named := map[uint64]bool{}
	for _, id := range attached {
		named[id] = id != 0 // which are the restricted ones
	}
	var all []*Session
	for _, s := range d.sessionList() {
		if s.tenant.name == tenant && named[s.attach] && s.node.Live() {
			all = append(all, s)
		}
	}
	return d.cut(all, cause)
}

// EndTenant ends all sessions of a tenant, as EndSessions does, and forgets the tenant when
// nothing of it is left: its strikes, its ban and what it has spent, too.
func (d *Device) EndTenant(name string, cause error) (ended int) {
	d.mu.Lock()
	t := d.tenants[name]
	if t != nil {
		t.leaving = cause
	}
	d.mu.Unlock()
	if t == nil {
		return 0
	}
	var all []*Session
	for _, s := range d.sessionList() {
		if s.tenant == t && s.parent == nil && s.node.Live() {
			all = append(all, s)
		}
	}
	ended = d.cut(all, cause)
	d.forget(t)
	return ended
}

// cut ends sessions, side by side.
func (d *Device) cut(sessions []*Session, cause error) (ended int) {
	var cutting sync.WaitGroup
	for _, s := range sessions {
		cutting.Go(func() {
			_ = s.node.Cut(cause, func(rest *revoke.Rest) { d.reclaim.add(s, rest) })
		})
	}
	cutting.Wait()
	return len(sessions)
}

// forget forgets a tenant that is leaving, if nothing of it is left.
func (d *Device) forget(t *tenant) {
	if !d.removeLeft(t) {
		return
	}
	// Nothing is below it, so this waits for nobody.
	if err := errors.Join(t.node.Close(gpuerr.New(gpuerr.Revoked, "tenant %.64q is gone", t.name)), t.account.Close()); err != nil {
		d.log.Error("a tenant leaves with charges", "tenant", t.name, "error", err)
	}
}

func (d *Device) removeLeft(t *tenant) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.leaving == nil || d.tenants[t.name] != t || t.openers.Load() > 0 {
		return false
	}
	for _, s := range d.sessions {
		if s.tenant == t {
			return false
		}
	}
	delete(d.tenants, t.name)
	return true
}
