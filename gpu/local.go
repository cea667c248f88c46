package gpu

import (
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
)

// LocalLost implements backend.LocalSink.
func (r *reactor) LocalLost(group uint32, why string) {
	r.mail.post(func() {
		if r.state == deviceResetting {
			// The jobs that the reset ends have their outcomes first.
			r.recovery.localLost = append(r.recovery.localLost, lostGroup{group, why})
			return
		}
		r.loseLocal(lostGroup{group, why})
	})
}

// lostGroup is a group of contexts with local memory that is lost.
type lostGroup struct {
	group uint32
	why   string
}

// loseAllLocal is the end of a reset that cost local memory.
func (r *reactor) loseAllLocal() {
	lost := r.recovery.localLost
	r.recovery.localLost = nil
	for _, g := range lost {
		r.loseLocal(g)
	}
}

// loseLocal ends the sessions of a group that have buffers in local memory: what they held
// is gone, and nothing that reads it may end ok. Their work ends deviceLost before anything
// else is sent. Sessions without such buffers go on.
func (r *reactor) loseLocal(g lostGroup) {
	if r.state == deviceLost {
		return
	}

	d := r.dev
	err := gpuerr.New(gpuerr.DeviceLost, "reason=memoryLost: what the device's own memory held is lost (%.200s); open a session again", g.why)
	var lost []*Session
	for _, s := range d.sessionList() {
		if s.tenant.group != g.group || !s.node.Live() || !s.hasLocal() {
			continue
		}

		lost = append(lost, s)
		d.auditEvent("session.memoryLost", s.tenant, "session=%d cause=%.64q", s.id, g.why)
		s.lose()
	}

	if len(lost) > 0 {
		r.closing.Go(func() { d.cut(lost, err) })
	}
}

// hasLocal reports whether a buffer of the session lies in local memory.
func (s *Session) hasLocal() (yes bool) {
	handles.Each(s.handles, func(b *buffer) { yes = yes || !b.mapped() })
	return yes
}
