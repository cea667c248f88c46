package gpu

import (
	"time"

	"capgpu/gpu/records"
	"capgpu/outcome"
)

// RecoveryStep is where the device stands on the ladder (watch.go).
type RecoveryStep = outcome.RecoveryStep

// RecoveryState is what anybody may know of the ladder: it names no tenant or session.
type RecoveryState struct {
	Step      RecoveryStep // now
	Last      RecoveryStep // how far the last incident went
	Incidents uint64       // until now, with the one under way
}

// RecoveryStatus is RecoveryState for operators.
type RecoveryStatus struct {
	Step      RecoveryStep      `json:"step"`
	Incidents uint64            `json:"incidents"`
	Steps     map[string]uint64 `json:"steps"`          // how often each was taken
	StepNanos map[string]int64  `json:"stepNanos"`      // how long each has taken in all
	Last      *Incident         `json:"last,omitempty"` // nil: there was none
}

// Incident is once that work did not end, or faulted, and what was done about it.
type Incident struct {
	Step  RecoveryStep `json:"step"` // how far it went
	Cause string       `json:"cause"`
	At    time.Time    `json:"at"`
	// Late is how long after its deadline that of the work was seen to be missed.
	Late time.Duration `json:"late,omitempty"`
	// Tenant and Session had the work, if anybody had. Others are not told.
	Tenant  string `json:"tenant,omitempty"`
	Session uint64 `json:"session,omitempty"`
}

// recovery is where the device stands in the escalation. The reactor's.
type recovery struct {
	step      RecoveryStep
	incidents uint64
	counts    [outcome.NumRecoverySteps]uint64
	last      Incident
	changed   chan struct{} // capacity 1
	culprit   *job          // that the steps are about; none is left when it has ended
	since     time.Time     // when the step was taken
	took      [outcome.NumRecoverySteps]time.Duration
	whose     *tenant // of the last incident; nil: nobody's
	paces     map[*tenant]*records.Pace

	// mustReset is set from a fault until the device was reset: nothing is sent, and
	// nothing that was is ok.
	mustReset bool
	// fruitless is how often work of one session was ended, all of fruitlessOf, since
	// anything has come of the device (queueMayHelp).
	fruitless   int
	fruitlessOf *tenant
	// localLost are the groups of which the reset that is in progress cost the local memory.
	localLost []lostGroup
	// looksAt is when the reactor, asleep, looks again at the latest; zero: it need not.
	looksAt time.Time
}

// Each step has a record when it is over: the tenant, the step, its reason and how long it
// took. A tenant can
// cause thousands in a second (deadlines of its own that it lets pass), so of each tenant's
// stepBurst in a row are recorded, and then one in stepInterval, which counts the others.
const (
	stepBurst    = 16
	stepInterval = 5 * time.Second
)

// incident begins an incident, unless one is under way.
func (r *reactor) incident(j *job, cause string) {
	c := &r.recovery
	if c.step != outcome.RecoveryNone {
		return
	}
	c.incidents++
	c.whose = nil
	c.last = Incident{Cause: cause, At: time.Now()}
	if c.culprit = j; j != nil {
		c.whose = j.session().tenant
		c.last.Tenant, c.last.Session = c.whose.name, j.session().id
	}
}

// climb takes a step, or none: the incident is over.
func (r *reactor) climb(step RecoveryStep) {
	c := &r.recovery
	if c.step == step {
		return
	}
	now := time.Now()
	if c.step != outcome.RecoveryNone {
		took := now.Sub(c.since)
		c.took[c.step] += took
		r.recordStep(took, now)
	}
	c.since = now
	if c.step = step; step == outcome.RecoveryNone {
		c.culprit = nil
	} else {
		c.counts[step]++
		c.last.Step = step
	}
	nudge(c.changed)
}

// recordStep records the step that is over. The manager records what follows a respawn:
// the end of this driver, and the start of the next.
func (r *reactor) recordStep(took time.Duration, now time.Time) {
	c := &r.recovery
	p := c.paces[c.whose]
	if p == nil {
		if c.paces == nil {
			c.paces = map[*tenant]*records.Pace{}
		}
		p = records.NewPace(stepBurst, stepInterval, now)
		c.paces[c.whose] = p
	}
	if more, recorded := p.Enter(now); recorded {
		r.dev.auditEvent("recovery", c.whose, "session=%d step=%v cause=%q took=%v more=%d", c.last.Session, c.step, c.last.Cause, took, more)
	}
}

// Recovery is where the device stands in the escalation.
func (d *Device) Recovery() (st RecoveryState) {
	r := d.reactor
	r.mail.call(func() {
		st = RecoveryState{Step: r.recovery.step, Last: r.recovery.last.Step, Incidents: r.recovery.incidents}
	})
	return st
}

// RecoveryChanged has a token when Recovery may have changed since one was taken. It is
// for one receiver.
func (d *Device) RecoveryChanged() <-chan struct{} { return d.reactor.recovery.changed }

// status leaves out the tenant and session that had the work, unless that tenant asks,
// or the operator does (empty).
func (c *recovery) status(tenant string) RecoveryStatus {
	st := RecoveryStatus{Step: c.step, Incidents: c.incidents, Steps: map[string]uint64{}, StepNanos: map[string]int64{}}
	for step, n := range c.counts {
		if n > 0 {
			st.Steps[RecoveryStep(step).String()] = n
			st.StepNanos[RecoveryStep(step).String()] = c.took[step].Nanoseconds()
		}
	}
	if c.incidents > 0 {
		last := c.last
		if tenant != "" && tenant != last.Tenant {
			last.Tenant, last.Session = "", 0
		}
		st.Last = &last
	}
	return st
}
