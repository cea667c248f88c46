package gpu

import (
	"fmt"
	"time"

	"capgpu/gpu/handles"
	"capgpu/gpu/snapshot"
	"capgpu/gpu/strikes"
	"capgpu/gpuerr"
	"capgpu/internal/revoke"
	"capgpu/ledger"
	"capgpu/outcome"
)

// This part of what a driver has told (restore.go) is tenants, with what they have spent and
// what they are guilty of, sessions, and the tables of their handles.

func spendAll(a *ledger.Account, spent []Spent) error {
	for _, s := range spent {
		if err := a.Spend(s.Class, s.Amount); err != nil && gpuerr.CodeOf(err) != gpuerr.Quota {
			return err
		}
	}
	return nil
}

func (im *restorer) tenant(ti *TenantSnapshot) error {
	t, err := im.dev.tenantOf(ti.Name, ledger.NoLimits(), ti.Weight)
	if err != nil {
		return err
	}
	im.dev.reactor.setWeight(t.flow, ti.Weight)
	t.longest.Store(int64(max(ti.MaxDeadline, 0)))
	t.strikes.Restore(ti.Strikes)
	if ti.BannedUntil != nil {
		until := strikes.Steady(*ti.BannedUntil)
		t.bannedUntil.Store(&until)
	}
	return spendAll(t.account, ti.Spent)
}

// session makes a session with all that it has.
func (im *restorer) session(si *SessionSnapshot) error {
	d := im.dev
	d.mu.Lock()
	t := d.tenants[si.Tenant]
	d.mu.Unlock()
	parent := im.sessions[si.Parent]
	switch {
	case t == nil || (si.Parent != 0) != (parent != nil) || im.sessions[si.ID] != nil || si.ID == 0 || si.ID > im.img.LastSession,
		si.Facet >= numFacets, len(si.Ended) > int(outcome.DeviceLost)+1, (si.Branch != 0) != (im.branches[si.Branch] != nil):
		return snapshot.Malformed("session %d below %d of %.64q", si.ID, si.Parent, si.Tenant)
	}
	s := &Session{
		dev: d, tenant: t, loading: newLine(),
		kin:    kin{id: si.ID, attach: si.Attach, parent: parent, branch: im.branches[si.Branch], opened: time.Now().Add(-max(si.Age, 0))},
		rights: rights{si.Facet, si.Deadline, si.Fair, si.Longest, si.Programs, si.Listed, si.Check},
	}
	payer, above := t.account, t.node
	if parent != nil {
		s.depth, payer, above = parent.depth+1, parent.account, parent.node
	}
	s.launches.Store(si.Launches)
	s.strikes.Store(si.Strikes)
	s.traps.Store(si.Traps)
	for i, n := range si.Ended {
		s.ended[i].Store(n)
	}
	if si.Poison.Kind != outcome.Pending {
		s.setPoisoned(si.Poison)
	}
	if si.Trapped {
		s.context.Trap()
	}
	if err := im.join(s, payer, above); err != nil {
		return err
	}
	im.sessions[s.id] = s
	if err := spendAll(s.account, si.Spent); err != nil {
		return err
	}
	var err error
	if s.handles, err = handles.Restore(si.Snapshot); err != nil {
		return err
	}
	for _, step := range []func(*Session, *SessionSnapshot) error{im.memory, im.fences, im.programs, im.lists, im.rings} {
		if err := step(s, si); err != nil {
			return err
		}
	}
	return s.handles.CheckFree()
}

// join charges a session and puts it into the tree, as Session.open does.
func (im *restorer) join(s *Session, payer *ledger.Account, above *revoke.Node) (err error) {
	d := im.dev
	if err = s.chargeTo(payer); err != nil {
		return err
	}
	s.handles = handles.New()
	s.flow = newFlow(s.tenant.flow, 1)
	name := fmt.Sprintf("session %d", s.id)
	if s.account, err = payer.Child(name, ledger.NoLimits()); err != nil {
		return err
	}
	if s.node, err = above.NewChild(name, revoke.Ops{Urgent: true, Quiesce: s.quiesce, Scrub: s.scrub, Release: s.release}); err != nil {
		return err
	}
	s.beginMemory()
	s.commit()
	d.mu.Lock()
	d.sessions[s.id] = s
	d.mu.Unlock()
	return nil
}

// charged charges what an object of the session was charged, for good.
func (s *Session) charged(c ledger.Class, n uint64) (ledger.Receipt, error) {
	r, err := s.account.Reserve(c, n)
	if err == nil {
		r.Commit()
	}
	return r, err
}
