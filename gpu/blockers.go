package gpu

import (
	"time"

	"capgpu/gpuerr"
)

// Things that one tenant has can keep the device from being stopped, or from being told to
// a successor, for everybody. The core then names the sessions in the way, so that an
// impatient operator can have these ended, and nobody else's (Preempt).

// Blocked is why the device was not stopped or not told, and the sessions that caused it.
type Blocked struct {
	err      error
	sessions []uint64
}

func (o *Blocked) Error() string { return o.err.Error() }
func (o *Blocked) Unwrap() error { return o.err }

// Blockers are the sessions that were in the way.
func (o *Blocked) Blockers() []uint64 { return o.sessions }

// NewBlocked is an error that says so of these sessions.
func NewBlocked(err error, sessions []uint64) *Blocked { return &Blocked{err, sessions} }

func blockedBy(err error, sessions []*Session) error {
	var ids []uint64
	for _, s := range sessions {
		ids = append(ids, s.id)
	}
	return NewBlocked(err, ids)
}

// moving are the sessions of which something moves although the device is to stop. If that
// is work in the device, they are those of its tenant: work behind it is not in the way of
// itself.
func (r *reactor) moving() (all []*Session) {
	first := r.atWork()
	for _, s := range r.dev.sessionList() {
		if !s.node.Live() || first != nil && s.tenant != first {
			continue
		}
		for _, q := range s.queues {
			if !q.mayStop() {
				all = append(all, s)
				break
			}
		}
	}
	return all
}

// atWork is the tenant with the work that has been in the device for the longest; nil if
// there is none.
func (r *reactor) atWork() *tenant {
	if r.sent.oldest == nil {
		return nil
	}
	return r.sent.oldest.session().tenant
}

// weighed adds up what sessions have of something, of which all together may have most.
type weighed struct {
	most, sum uint64
	of        map[*tenant]uint64
	sessions  []*Session
}

func (w *weighed) add(s *Session, n uint64) {
	if n == 0 {
		return
	}
	if w.of == nil {
		w.of = map[*tenant]uint64{}
	}
	w.sum += n
	w.of[s.tenant] += n
	w.sessions = append(w.sessions, s)
}

// heaviest are the sessions, of those that were weighed, of the tenant that has the most;
// nil: all together have no more than they may.
func (w *weighed) heaviest() (all []*Session) {
	if w.sum <= w.most {
		return nil
	}
	worst := w.sessions[0].tenant
	for _, s := range w.sessions {
		if w.of[s.tenant] > w.of[worst] {
			worst = s.tenant
		}
	}
	for _, s := range w.sessions {
		if s.tenant == worst {
			all = append(all, s)
		}
	}
	return all
}

// errPreempted is why a session has ended that was in the way of an upgrade.
var errPreempted = gpuerr.New(gpuerr.Revoked, "reason=upgrade: the operator has the driver replaced, and what this session had under way would not end in time; open the device again")

// Preempt ends sessions that are in the way of an upgrade, with all that was restricted
// from them: of those that are named, the ones of the tenant that has the most of them. It
// returns how many when nothing of them runs any more, which is within the hang bound.
func (d *Device) Preempt(named []uint64) (ended int) {
	w := weighed{}
	for _, id := range named {
		if s := d.Session(id); s != nil && s.node.Live() {
			w.add(s, 1)
		}
	}
	obstructing := w.heaviest()
	for _, s := range obstructing {
		d.auditEvent("session.preempt", s.tenant, "session=%d", s.id)
	}
	return d.cut(obstructing, errPreempted)
}

// maxReload is how long the programs of all sessions may have taken to load that a
// successor has to load again while nothing moves.
const maxReload = 3 * time.Second
