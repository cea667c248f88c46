package manager

import (
	"context"
	"sync"
	"time"

	"capgpu/control"
	"capgpu/internal/sanitize"
	"capgpu/outcome"
)

// deviceState is where a device stands. The numbers are those of DeviceState in
// schema/capos.capnp.
//
//	         Ready                     the driver died or fell silent
//	starting ─────► ready(epoch) ───────────────────────► recovering
//	   │               ▲                                      │  back-off, next driver
//	   │ budget        └──────────────── Ready ───────────────┤
//	   │ spent                                                │ budget spent
//	   └──────────────────► wedged ◄──────────────────────────┘
//
// A driver that dies before its Ready changes no state, only the cause, and
// spends the budget; one that dies later costs time only. wedged
// is final: an operator removes the reason and starts device-manager again.
type deviceState uint32

const (
	starting deviceState = iota
	ready
	recovering
	wedged
)

var stateNames = [...]string{"starting", "ready", "recovering", "wedged"}

func (s deviceState) String() string { return stateNames[s] }

// stateBoard shows a device's state to any number of waiters.
type stateBoard struct {
	mu sync.Mutex
	// +checklocks:mu
	now snapshot
	// +checklocks:mu
	changed chan struct{} // closed, and replaced, by each change
}

// ladder is where a driver stands on the ladder of recovery.
type ladder = control.RecoveryRequest

// snapshot is the state at one moment.
type snapshot struct {
	state deviceState
	epoch uint64 // of the last driver that was ready; 0: none yet
	cause string // of recovering and wedged
	step  uint64 // counts changes, without those of the ladder
	rung  uint64 // counts changes of the ladder

	ladder ladder // as the ready driver told it

	link        *driverLink // of the ready driver
	backend     string      // as the last ready driver called it
	memoryBytes uint64
	generation  uint64 // of the ready driver, within its epoch, from 1
	suspended   bool   // an operator has said so: whichever driver is ready stands still
	shortage    string // what the ready driver has run out of; empty: nothing
}

func newStateBoard() *stateBoard { return &stateBoard{changed: make(chan struct{})} }

// get is the state now, and a channel that is closed when it is another.
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

// suspend shows that an operator has suspended the device, or resumed it: news to who
// asks for steps.
func (b *stateBoard) suspend(yes bool) {
	b.update(func(s *snapshot) {
		s.suspended = yes
		s.rung++
	})
}

// suspendAbsent is suspend of a device that has no ready driver and will have one. It
// reports whether that is so, and whether that is news. The next driver
// hears of it before it is ready.
func (b *stateBoard) suspendAbsent(yes bool) (absent, changed bool) {
	b.update(func(s *snapshot) {
		absent = s.state == starting || s.state == recovering
		if changed = absent && s.suspended != yes; changed {
			s.suspended = yes
			s.rung++
		}
	})
	return absent, changed
}

// readyIf is update to ready, of a driver that stands still or does not, if that is what
// the operator wants now.
func (b *stateBoard) readyIf(frozen bool, change func(*snapshot)) (done bool) {
	b.update(func(s *snapshot) {
		if done = s.suspended == frozen; done {
			change(s)
		}
	})
	return done
}

// climb shows where the driver of a link stands on the ladder, if it is the one that
// is ready and that is news.
func (b *stateBoard) climb(l *driverLink, at ladder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at.Incidents += l.incidents
	if b.now.link != l || b.now.ladder == at {
		return
	}
	b.now.ladder = at
	b.now.rung++
	close(b.changed)
	b.changed = make(chan struct{})
}

// short shows what the driver of a link has run out of, if it is the one that is ready. It
// reports whether that is news.
func (b *stateBoard) short(l *driverLink, what string) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.now.link != l || b.now.shortage == what {
		return false
	}
	b.now.shortage = what
	return true
}

// succeed shows that a driver goes on with what the ready one had: nothing is wrong then,
// whether or not the other has come to say so, and the epoch's incidents count on.
func (b *stateBoard) succeed(next *driverLink) snapshot {
	return b.update(func(s *snapshot) {
		next.incidents = s.ladder.Incidents
		if s.ladder.Step != uint32(outcome.RecoveryNone) {
			s.ladder.Step = uint32(outcome.RecoveryNone)
			s.rung++
		}
		s.link, s.shortage = next, ""
		s.generation++
	})
}

// recovery is the step of the ladder that the device is on: the first ones are its
// driver's, as far as it tells, the last two the manager's own.
func (s *snapshot) recovery() outcome.RecoveryStep {
	switch s.state {
	case recovering:
		return outcome.Respawn
	case wedged:
		return outcome.WedgedStep
	}
	return outcome.RecoveryStep(s.ladder.Step)
}

// told remembers, for one tenant socket, what NextState has already told: the
// epoch alone does not say whether the asker has seen the recovering that
// follows it, and telling it again and again would make its loop spin.
type told struct {
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

// isNews: with steps, also where the device stands on the ladder.
func (t *told) isNews(s snapshot, epoch uint64, steps bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if steps && t.rung != s.rung {
		return true
	}
	if s.state == ready && s.epoch == epoch {
		return false
	}
	return !t.any || t.epoch != epoch || t.step != s.step
}

// tell says that a reply with s goes out; the asker's next epoch will be s.epoch.
func (t *told) tell(s snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.any, t.epoch, t.step, t.rung = true, s.epoch, s.step, s.rung
}

// next waits until the state is news to the asker, the time is up (Changed is
// false), or ctx ends.
func (b *stateBoard) next(ctx context.Context, t *told, epoch uint64, steps bool, timeout time.Duration) (control.NextStateReply, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		s, changed := b.get()
		news := t.isNews(s, epoch, steps)
		reply := control.NextStateReply{
			Epoch: s.epoch, State: uint32(s.state), Changed: news, Cause: s.cause,
			Recovery: uint32(s.recovery()), LastRecovery: s.ladder.Last, Incidents: s.ladder.Incidents, Suspended: s.suspended,
		}
		if news {
			t.tell(s)
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

// clipped makes s plain, and fit a str of the wire.
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
