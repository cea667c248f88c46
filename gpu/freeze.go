package gpu

import (
	"context"
	"time"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// A device that is frozen begins nothing: what its queues had in the device has ended, and
// the reactor looks at their rings no more. Everything else is as it was, so that it can be
// told to a successor (snapshot.go), or go on:
//
//	going ──Freeze──► stopping ──(nothing moves)──► held ──Thaw──► going
//	                     └──(not in time, or lost)──Thaw──► going
//
// A queue stops between two entries. It may still have what the core itself holds, which
// no time changes: a wait for a fence, and entries that were taken and not
// begun.

// freeze is one stop of a device. The reactor's.
type freeze struct {
	// held says that nothing moves, and that a wait which is over stays where it is.
	held bool
	// moved says that something had to all the same: a queue or the device was closed.
	moved bool
}

// frozenPoll is how often Freeze looks whether all has come to rest.
const frozenPoll = 2 * time.Millisecond

var errFrozenLong = gpuerr.New(gpuerr.Busy, "work on the device, or a close, did not end in time; nothing was changed, try again")

// Freeze stops the device and returns when nothing of it moves, or fails when that is not
// so before ctx ends: then everything goes on. The caller makes no calls that change
// anything, and opens no sessions, until Thaw.
func (d *Device) Freeze(ctx context.Context) error {
	r, free := d.reactor, false
	r.mail.call(func() {
		if free = r.freeze == nil; free {
			r.freeze = &freeze{}
		}
	})

	if !free {
		return gpuerr.New(gpuerr.Busy, "the device is stopped already")
	}

	d.records.Hurry() // everybody waits now
	tick := time.NewTicker(frozenPoll)
	defer tick.Stop()

	for {
		var still bool
		var moving []*Session
		r.mail.call(func() {
			if still = r.hold(); !still {
				moving = r.moving()
			}
		})

		if still {
			return nil
		}
		select {
		case <-tick.C:
		case <-d.lost:
			d.Thaw()
			return d.Err()
		case <-ctx.Done():
			d.Thaw()
			return blockedBy(errFrozenLong, moving)
		}
	}
}

// hold reports whether nothing moves, and has it stay so.
func (r *reactor) hold() bool {
	d := r.dev
	still := d.records.Idle() && r.rests() && r.freeze != nil
	for _, s := range d.sessionList() {
		still = still && s.node.Live()
		for _, q := range s.queues {
			still = still && q.mayStop()
		}
	}

	d.reclaim.mu.Lock()
	still = still && len(d.reclaim.busy) == 0
	d.reclaim.mu.Unlock()

	if still {
		r.freeze.held = true
	}
	return still
}

// rests reports whether the device has nothing to do, and is not being reset.
func (r *reactor) rests() bool {
	return r.state == deviceRunning && !r.recovery.mustReset && r.sent.n == 0 && len(r.share.flows) == 0 && len(r.ended) == 0
}

// frozen reports whether nothing may move.
func (r *reactor) frozen() bool { return r.freeze != nil && r.freeze.held }

// mayStop reports whether all that the queue has is what the core itself holds.
func (q *queue) mayStop() bool {
	w := q.intake.waiting
	return q.drain == nil && (q.head == q.tail || w != nil && q.head+1 == q.tail && q.jobs[q.head%uint64(len(q.jobs))] == w)
}

// Thaw ends a Freeze, or what Restore has left: everything goes on where it stopped.
func (d *Device) Thaw() {
	r := d.reactor
	r.mail.call(func() {
		if r.freeze == nil {
			return
		}
		r.freeze = nil
		for _, s := range d.sessionList() {
			for _, q := range s.queues {
				q.look()
				r.activate(q)
			}
		}
	})
}

// Frozen reports whether the device is stopped, and not merely about to be.
func (d *Device) Frozen() (yes bool) {
	r := d.reactor
	r.mail.call(func() { yes = r.frozen() && !r.freeze.moved })
	return yes
}

// leftEntries are entries of a queue for its successor.
func (q *queue) leftEntries() []ring.Taken {
	if !q.left() {
		return nil
	}
	return q.intake.batch.Entries[q.intake.begun:]
}
