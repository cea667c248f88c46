package gpu

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// engine gives the device its work: whose turn it is (fair.go), what it answers
// (here), and what happens when it does not (watchdog.go).
//
// Nobody waits for a dispatcher: whoever adds work or frees a place in the
// device's FIFO hands out what can go, one at a time (pump). The lock is not held
// while a backend is called, because a backend may complete inside Submit.
//
//	running ──reset──► resetting ──► running
//	   └────────┬──────────┘
//	   DeviceGone, or a failed reset ──► lost (for good)
type engine struct {
	dev     *Device
	backend backend.Backend
	limits  backend.Limits
	wake    chan struct{} // capacity 1: runDevice should look
	strays  atomic.Uint64 // completions of no live job: unknown, doubled or late
	resets  atomic.Uint64

	endedAll bool // runDevice's: the loss was told

	mu sync.Mutex
	// +checklocks:mu
	state engineState
	// pumping is true while one goroutine hands out work; quiet is signalled when
	// it stops.
	// +checklocks:mu
	pumping bool
	quiet   sync.Cond
	// +checklocks:mu
	top level
	// slots holds the sent jobs by the low bits of their ids.
	// +checklocks:mu
	slots []*job
	// +checklocks:mu
	freeSlots []uint32
	// +checklocks:mu
	sequence uint64
	// oldest and newest are the ends of the sent jobs in the order of sending,
	// which is the order in which a FIFO runs them: the oldest is thought to be
	// running, since headSince (zero: runDevice has not seen it yet).
	// +checklocks:mu
	oldest, newest *job
	// +checklocks:mu
	headSince time.Time
	// +checklocks:mu
	held []pinned // of jobs that ended with the device, until the backend is closed
	// +checklocks:mu
	watching bool // runDevice looks again by itself, or is on its way
}

type engineState uint8

const (
	engineRunning engineState = iota
	engineResetting
	engineLost
)

var (
	lostOutcome  = outcome.Outcome{Kind: outcome.DeviceLost, Cause: outcome.Gone}
	hangOutcome  = outcome.Outcome{Kind: outcome.TimedOut, Cause: outcome.Hang}
	resetOutcome = outcome.Outcome{Kind: outcome.Innocent, Cause: outcome.Reset}
	errorOutcome = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
)

func newEngine(d *Device) *engine {
	lim := d.cfg.Backend.Info().Limits
	places := max(lim.MaxJobs, 1)
	e := &engine{dev: d, backend: d.cfg.Backend, limits: lim, wake: make(chan struct{}, 1)}
	e.quiet.L = &e.mu
	e.slots = make([]*job, 1<<bits.Len(uint(places-1)))
	for i := range places {
		e.freeSlots = append(e.freeSlots, uint32(places-1-i))
	}
	return e
}

// enqueue takes a list of ready jobs of one queue. They may end before it returns.
func (e *engine) enqueue(q *queue, head, tail *job) {
	e.mu.Lock()
	if e.state == engineLost {
		e.mu.Unlock()
		finishList(head, lostOutcome)
		return
	}
	for j := head; j != nil; j = j.next {
		j.state.Store(jobReady)
	}
	e.top.pushReady(q, head, tail)
	e.pumpLocked()
	e.mu.Unlock()
}

// finishList ends jobs that never reached the device.
func finishList(j *job, how outcome.Outcome) {
	for j != nil {
		next := j.next
		j.next = nil
		j.finish(how, 0)
		j = next
	}
}

// pump hands out what can go.
func (e *engine) pump() {
	e.mu.Lock()
	e.pumpLocked()
	e.mu.Unlock()
}

// pumpLocked releases the lock while it submits. One goroutine at a time does, so
// that jobs reach the device in the order in which they were chosen.
//
// +checklocks:e.mu
func (e *engine) pumpLocked() {
	if e.pumping {
		return // the other one looks again before it stops
	}
	e.pumping = true
	for e.state == engineRunning && len(e.freeSlots) > 0 {
		j := e.top.next()
		if j == nil {
			break
		}
		if how, yes := j.withdrawn(); yes {
			e.top.returned(j, 0)
			e.mu.Unlock()
			j.finish(how, 0)
			e.mu.Lock()
			continue
		}
		id := e.sendLocked(j)
		e.mu.Unlock()
		err := e.backend.Submit(&j.work)
		e.mu.Lock()
		e.submittedLocked(j, id, err)
	}
	e.pumping = false
	if e.state != engineRunning {
		e.quiet.Broadcast()
	}
}

// sendLocked gives a job its id and its place.
//
// +checklocks:e.mu
func (e *engine) sendLocked(j *job) backend.JobID {
	i := e.freeSlots[len(e.freeSlots)-1]
	e.freeSlots = e.freeSlots[:len(e.freeSlots)-1]
	e.sequence++
	j.work.ID = backend.JobID(e.sequence*uint64(len(e.slots)) + uint64(i))
	e.slots[i] = j
	j.state.Store(jobSent)
	j.submitted, j.stopAs = false, outcome.Outcome{}
	j.older, j.newer = e.newest, nil
	if e.newest == nil {
		e.oldest = j
		e.headChangedLocked()
	} else {
		e.newest.newer = j
	}
	e.newest = j
	return j.work.ID
}

// submittedLocked follows a call of Submit. The job may have ended meanwhile and
// be in other use: only its id tells. It may release the lock.
//
// +checklocks:e.mu
func (e *engine) submittedLocked(j *job, id backend.JobID, err error) {
	if !e.liveLocked(j, id) {
		return
	}
	switch {
	case err != nil: // not taken: the device will not touch it
		how := errorOutcome
		if gpuerr.CodeOf(err) == gpuerr.DeviceLost {
			how = lostOutcome
		}
		e.dropLocked(j, 0)
		e.mu.Unlock()
		j.finish(how, 0)
		e.mu.Lock()
	case j.stopAs.Kind != outcome.Pending: // stopped while it was on its way
		j.submitted = true
		e.mu.Unlock()
		e.backend.Cancel(id)
		e.mu.Lock()
	default:
		j.submitted = true
	}
}

// +checklocks:e.mu
func (e *engine) liveLocked(j *job, id backend.JobID) bool {
	return e.slots[uint64(id)&uint64(len(e.slots)-1)] == j && j.work.ID == id
}

// dropLocked takes a sent job off the books.
//
// +checklocks:e.mu
func (e *engine) dropLocked(j *job, deviceTime time.Duration) {
	i := uint32(uint64(j.work.ID) & uint64(len(e.slots)-1))
	e.slots[i] = nil
	e.freeSlots = append(e.freeSlots, i)
	if j.newer != nil {
		j.newer.older = j.older
	} else {
		e.newest = j.older
	}
	if j.older != nil {
		j.older.newer = j.newer
	} else if e.oldest = j.newer; e.oldest != nil {
		e.headChangedLocked()
	}
	j.older, j.newer = nil, nil
	e.top.returned(j, int64(deviceTime))
}

// headChangedLocked follows a change of the job that is now thought to run. Its
// clock starts when runDevice first sees it: at once if that slept, else at its
// next tick. So the data path reads no clock.
//
// +checklocks:e.mu
func (e *engine) headChangedLocked() {
	e.headSince = time.Time{}
	if !e.watching {
		e.watching = true
		nudge(e.wake)
	}
}

// Complete implements backend.Sink. The device's word is taken for one live job,
// once, and only if it makes sense.
func (e *engine) Complete(c backend.Completion) {
	e.mu.Lock()
	j := e.slots[uint64(c.ID)&uint64(len(e.slots)-1)]
	if j == nil || j.work.ID != c.ID || e.state == engineLost {
		e.mu.Unlock()
		e.strays.Add(1)
		return
	}
	how, lost := believe(c.Outcome, j.stopAs)
	// No job runs longer than that without being stopped, whatever the device says.
	deviceTime := min(max(c.DeviceTime, 0), j.budget+e.dev.cfg.HangBound)
	if how.Kind == outcome.TimedOut {
		deviceTime = max(deviceTime, j.budget) // it had that much, if the device measured or not
	}
	e.dropLocked(j, deviceTime)
	if lost {
		e.held = append(e.held, j.takePins())
	}
	more := !e.pumping && len(e.top.flows) > 0
	s, trapped := j.queue.session, how.Cause == outcome.TrapCause
	if trapped {
		s.setPoisoned(how) // under the lock: nothing of it is sent after this
	}
	e.mu.Unlock()
	if trapped {
		e.cancel(s, func(*job) bool { return true }, poisonedOutcome)
	}
	j.finish(how, deviceTime)
	if lost {
		e.lose("the device said that it is lost")
	} else if more {
		e.pump()
	}
}

// believe makes the device's word an outcome. stopAs says how the core stopped
// the job, if it did.
func believe(said, stopAs outcome.Outcome) (how outcome.Outcome, lost bool) {
	if !said.Valid() {
		return errorOutcome, false
	}
	switch said.Kind {
	case outcome.OK:
		return outcome.Success, false
	case outcome.Failed:
		if said.Cause == outcome.TrapCause && said.Trap.Kind != outcome.NoTrap {
			return said, false
		}
		if said.Cause == outcome.LaunchLimit { // it takes more than the device has
			return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}, false
		}
	case outcome.Cancelled:
		if stopAs.Kind != outcome.Pending {
			return stopAs, false
		}
	case outcome.DeviceLost:
		return lostOutcome, true
	}
	return errorOutcome, false
}

// DeviceGone implements backend.Sink.
func (e *engine) DeviceGone(reason string) { e.lose(reason) }

// cancel stops the jobs of a session that match: those that wait end at once,
// those the device has are cancelled there. It does not wait for them.
func (e *engine) cancel(s *Session, match func(*job) bool, how outcome.Outcome) {
	var toCancel []backend.JobID
	var ended *job
	now := time.Now()
	e.mu.Lock()
	for j := e.oldest; j != nil; j = j.newer {
		if j.queue.session == s && j.stopAs.Kind == outcome.Pending && match(j) {
			j.stopAs, j.stoppedAt = how, now
			if j.submitted {
				toCancel = append(toCancel, j.work.ID)
			}
		}
	}
	for _, q := range s.flow.readyQueues() {
		ended = e.unreadyLocked(q, match, ended)
	}
	e.mu.Unlock()
	for _, id := range toCancel {
		e.backend.Cancel(id)
	}
	finishList(ended, how)
	nudge(e.wake)
}

// unreadyLocked takes matching jobs off a queue's ready list and puts them in
// front of rest.
//
// +checklocks:e.mu
func (e *engine) unreadyLocked(q *queue, match func(*job) bool, rest *job) *job {
	if q.readyHead == nil {
		return rest
	}
	var head, tail *job
	for j := q.readyHead; j != nil; {
		next := j.next
		if j.next = nil; match(j) {
			j.next, rest = rest, j
		} else if tail == nil {
			head, tail = j, j
		} else {
			tail.next, tail = j, j
		}
		j = next
	}
	q.readyHead, q.readyTail = head, tail
	if head == nil {
		q.leaveCircle(q.session.flow)
		e.top.update(q.session.flow)
	}
	return rest
}

// setWeight changes a tenant's share.
func (e *engine) setWeight(f *flow, weight uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f.weight = int64(max(weight, 1))
}

// check verifies that the books about the device agree with each other.
func (e *engine) check() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	listed, slotted := 0, 0
	for j := e.oldest; j != nil; j = j.newer {
		listed++
		if !e.liveLocked(j, j.work.ID) {
			return gpuerr.New(gpuerr.Internal, "job %d is listed as sent and has no slot", j.work.ID)
		}
	}
	for _, j := range e.slots {
		if j != nil {
			slotted++
		}
	}
	if places := max(e.limits.MaxJobs, 1); listed != slotted || slotted+len(e.freeSlots) != places {
		return gpuerr.New(gpuerr.Internal, "%d jobs listed, %d in slots, %d slots free of %d", listed, slotted, len(e.freeSlots), places)
	}
	return nil
}
