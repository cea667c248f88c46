package manager

import (
	"context"
	"sync"
	"time"

	"capgpu/control"
	"capgpu/internal/sanitize"
	"capgpu/outcome"
)

// deviceState is the state of a device. The numbers are those of DeviceState in
// schema/capos.capnp.
//
//	         Ready                     the driver died or fell silent
//	starting ─────► ready(epoch) ───────────────────────► recovering
//	   │               ▲                                      │  back-off, next driver
//	   │ budget        └──────────────── Ready ───────────────┤
//	   │ spent                                                │ budget spent
//	   └──────────────────► wedged ◄──────────────────────────┘
//
// The death of a driver before its Ready changes only the cause, and counts against the
// budget; a later death costs time only. wedged is final: an operator removes the reason and
// starts device-manager again.
type deviceState uint32

const (
	starting deviceState = iota
	ready
	recovering
	wedged
)

var stateNames = [...]string{"starting", "ready", "recovering", "wedged"}

func (s deviceState) String() string { return stateNames[s] }

// stateBoard publishes a device's state to any number of waiters.
type stateBoard struct {
	mu sync.Mutex
	// +checklocks:mu
	now snapshot
	// +checklocks:mu
	changed chan struct{} // closed and replaced at each change
}

// escalation is a driver's level of recovery.
type escalation = control.RecoveryRequest

// snapshot is the state at one moment.
type snapshot struct {
	state       deviceState
	epoch       uint64 // of the last driver that was ready; 0: none yet
	cause       string // of recovering and wedged
	step        uint64 // counts changes, without those of the escalation
	escalations uint64 // counts changes of the escalation

	escalation escalation // as the ready driver reported it

	link        *driverLink // of the ready driver
	backend     string      // as the last ready driver named it
	memoryBytes uint64
	generation  uint64 // of the ready driver, within its epoch, from 1
	suspended   bool   // by an operator: the ready driver, whichever it is, runs no work
	shortage    string // the resource that the ready driver has run out of; empty: none
}

func newStateBoard() *stateBoard { return &stateBoard{changed: make(chan struct{})} }

// get returns the current state, and a channel that is closed at the next change.
func (b *stateBoard) get() (snapshot, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.changed
}

// update changes the state.
func (b *stateBoard) update(change func(*snapshot)) snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.now)
	b.now.step++
	close(b.changed)
	b.changed = make(chan struct{})
	return b.now
}

// suspend publishes that an operator has suspended or resumed the device, for waiters that
// ask for steps.
func (b *stateBoard) suspend(yes bool) {
	b.update(func(s *snapshot) {
		s.suspended = yes
		s.escalations++
	})
}

// suspendAbsent is suspend for a device without a ready driver that will get one. It reports
// whether that is so, and whether the state has changed. The next driver learns of it before
// it is ready.
func (b *stateBoard) suspendAbsent(yes bool) (absent, changed bool) {
	b.update(func(s *snapshot) {
		absent = s.state == starting || s.state == recovering
		if changed = absent && s.suspended != yes; changed {
			s.suspended = yes
			s.escalations++
		}
	})
	return absent, changed
}

// readyIf makes the device ready with a driver that is frozen or not, if the operator still
// wants it so.
func (b *stateBoard) readyIf(frozen bool, change func(*snapshot)) (done bool) {
	b.update(func(s *snapshot) {
		if done = s.suspended == frozen; done {
			change(s)
		}
	})
	return done
}

// escalate publishes the level of recovery of a link's driver, if that is the ready one and the
// level has changed.
func (b *stateBoard) escalate(l *driverLink, at escalation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at.Incidents += l.incidents
	if b.now.link != l || b.now.escalation == at {
		return
	}
	b.now.escalation = at
	b.now.escalations++
	close(b.changed)
	b.changed = make(chan struct{})
}

// short publishes which resource a link's driver has run out of, if it is the ready one. It
// reports whether that has changed.
func (b *stateBoard) short(l *driverLink, what string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now.link != l || b.now.shortage == what {
		return false
	}
	b.now.shortage = what
	return true
}

// succeed publishes that a driver continues the work of the ready one. The new driver is at
// the lowest level of recovery, whatever the other reported, and the epoch's count of
// incidents continues.
func (b *stateBoard) succeed(next *driverLink) snapshot {
	return b.update(func(s *snapshot) {
		next.incidents = s.escalation.Incidents
		if s.escalation.Step != uint32(outcome.RecoveryNone) {
			s.escalation.Step = uint32(outcome.RecoveryNone)
			s.escalations++
		}
		s.link, s.shortage = next, ""
		s.generation++
	})
}

// recovery returns the device's level of recovery: the lower levels are the driver's, as it
// reports them, the last two the manager's.
func (s *snapshot) recovery() outcome.RecoveryStep {
	switch s.state {
	case recovering:
		return outcome.Respawn
	case wedged:
		return outcome.WedgedStep
	}
	return outcome.RecoveryStep(s.escalation.Step)
}

// reported remembers, for one tenant socket, what NextState has reported. The epoch alone does
// not show whether the client has seen the recovering that follows it, and to report it again
// and again would make the client's loop spin.
type reported struct {
	mu sync.Mutex
	// +checklocks:mu
	epoch uint64
	// +checklocks:mu
	step uint64
	// +checklocks:mu
	rung uint64
	// +checklocks:mu
	any bool
}

// isNews: with steps, changes of the level of recovery count, too.
func (t *reported) isNews(s snapshot, epoch uint64, steps bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if steps && t.rung != s.escalations {
		return true
	}
	if s.state == ready && s.epoch == epoch {
		return false
	}
	return !t.any || t.epoch != epoch || t.step != s.step
}

// report notes that a reply with s is sent; the client's next request will name s.epoch.
func (t *reported) report(s snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.any, t.epoch, t.step, t.rung = true, s.epoch, s.step, s.escalations
}

// next waits until the state is news to the client, the timeout ends (Changed is false), or
// ctx ends.
func (b *stateBoard) next(ctx context.Context, t *reported, epoch uint64, steps bool, timeout time.Duration) (control.NextStateReply, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		s, changed := b.get()
		news := t.isNews(s, epoch, steps)
		reply := control.NextStateReply{
			Epoch: s.epoch, State: uint32(s.state), Changed: news, Cause: s.cause,
			Recovery: uint32(s.recovery()), LastRecovery: s.escalation.Last, Incidents: s.escalation.Incidents, Suspended: s.suspended,
		}
		if news {
			t.report(s)
			return reply, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return reply, nil
		case <-ctx.Done():
			return reply, context.Cause(ctx)
		}
	}
}

// clipped sanitizes s and cuts it to the length of a string of the wire.
func clipped(s string) string {
	s = sanitize.Text(s)
	if len(s) <= control.MaxStringBytes {
		return s
	}
	cut := control.MaxStringBytes - len("…")
	for cut > 0 && s[cut]&0xc0 == 0x80 {
		cut--
	}
	return s[:cut] + "…"
}
