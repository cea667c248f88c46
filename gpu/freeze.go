package gpu

import (
	"context"
	"sync"
	"time"

	"capgpu/gpuerr"
	"capgpu/ring"
)

// A device that is frozen begins nothing: its queues have let what they had in the device
// end, and look at their rings no more. Everything else is as it was, so that it can be
// told to a successor (export.go), or go on:
//
//	going ──Freeze──► stopping ──(all queues parked)──► held ──Thaw──► going
//	                     └──(not in time, or lost)──Thaw──► going
//
// A queue parks between two entries. What it may still have then is what the core itself
// holds, which no time changes: a wait for a fence, and entries that it has taken and not
// begun.

// freeze is one stop of a device.
type freeze struct {
	arrived chan struct{} // capacity 1: a queue has parked
	thawed  chan struct{} // closed when all go on
	start   []*queue      // that were taken over and have not gone yet

	mu sync.Mutex
	// +checklocks:mu
	parked map[*queue]struct{}
	// held says that no parked queue moves, whatever wakes it.
	// +checklocks:mu
	held bool
	// moved says that one had to all the same: it, or the device, was closed.
	// +checklocks:mu
	moved bool
}

// frozenPoll is how often Freeze looks for what does not tell it.
const frozenPoll = 2 * time.Millisecond

var errFrozenLong = gpuerr.New(gpuerr.Busy, "work on the device, or a close, did not end in time; nothing was changed, try again")

// Freeze stops the device and returns when nothing of it moves, or fails when that is not
// so before ctx ends: then everything goes on. The caller makes no calls that change
// anything, and opens no sessions, until Thaw.
func (d *Device) Freeze(ctx context.Context) error {
	f := &freeze{arrived: make(chan struct{}, 1), thawed: make(chan struct{}), parked: map[*queue]struct{}{}}
	if !d.freezing.CompareAndSwap(nil, f) {
		return gpuerr.New(gpuerr.Busy, "the device is stopped already")
	}
	for _, s := range d.sessionList() {
		each(s.handles, func(q *queue) {
			q.rouse()
			nudge(q.wake)
		})
	}
	nudge(d.records.hurry) // everybody waits now
	tick := time.NewTicker(frozenPoll)
	defer tick.Stop()
	for !d.hold(f) {
		select {
		case <-f.arrived:
		case <-tick.C:
		case <-d.lost:
			d.Thaw()
			return d.Err()
		case <-ctx.Done():
			moving := d.moving(f)
			d.Thaw()
			return obstructedBy(errFrozenLong, moving)
		}
	}
	return nil
}

// hold reports whether nothing moves, and has it stay so.
func (d *Device) hold(f *freeze) bool {
	sessions := d.sessionList()
	f.mu.Lock()
	defer f.mu.Unlock()
	still := d.records.idle()
	parked := f.parked
	for _, s := range sessions {
		still = still && s.node.Live()
		each(s.handles, func(q *queue) {
			_, yes := parked[q]
			still = still && yes
		})
	}
	d.reclaim.mu.Lock()
	still = still && len(d.reclaim.busy) == 0
	d.reclaim.mu.Unlock()
	f.held = still && d.engine.rests()
	return f.held
}

// rests reports whether the device has nothing to do, and is not being reset.
func (e *engine) rests() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state == engineRunning && !e.pumping && !e.mustReset && e.oldest == nil && len(e.top.flows) == 0
}

// Thaw ends a Freeze, or what Import has left: everything goes on where it stopped.
func (d *Device) Thaw() {
	f := d.freezing.Load()
	if f == nil || !d.freezing.CompareAndSwap(f, nil) {
		return
	}
	f.mu.Lock()
	f.held = false
	f.mu.Unlock()
	close(f.thawed)
	for _, q := range f.start {
		go q.runQueue()
	}
}

// Frozen reports whether the device is stopped, and not merely about to be.
func (d *Device) Frozen() bool {
	f := d.freezing.Load()
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held && !f.moved
}

// park is a round of serve of a queue that is to stop: what is in the device ends, and
// nothing is begun. It returns when there may be something else to do.
func (q *queue) park(f *freeze) {
	q.disarm()
	q.retire()
	q.flush()
	q.sleeping.Swap(true)
	defer q.sleeping.Store(false)
	if q.headEnded() {
		return
	}
	gone, lost := q.node.Done(), q.session.dev.lost
	if !q.mayPark() {
		select {
		case <-q.wake:
		case <-gone:
		case <-lost:
		case <-f.thawed:
		case ended := <-q.cancels:
			q.cancelled(ended)
		}
		return
	}
	f.mu.Lock()
	f.parked[q] = struct{}{}
	f.mu.Unlock()
	nudge(f.arrived)
	for {
		forced := false
		select {
		case <-q.wake:
		case <-gone:
			forced = true
		case <-lost:
			forced = true
		case <-f.thawed:
		}
		if f.leave(q, forced) {
			return
		}
	}
}

// leave reports whether a queue may move again.
func (f *freeze) leave(q *queue, forced bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held && !forced {
		return false
	}
	f.moved = f.moved || f.held
	delete(f.parked, q)
	return true
}

// mayPark reports whether all that the queue has is what the core itself holds.
func (q *queue) mayPark() bool {
	if len(q.cancels) > 0 {
		return false
	}
	return q.head == q.tail || q.waiting != nil && q.head+1 == q.tail && q.jobs[q.head%uint64(len(q.jobs))] == q.waiting
}

// left entries of a queue, for its successor.
func (q *queue) leftEntries() []ring.Taken { return q.batch.Entries[q.begun:] }
