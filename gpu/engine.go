package gpu

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// engine gives the device its work (here): whose turn it is (fair.go), what the
// device answers (complete.go), whether that can be believed (settle.go), what
// happens when it does not (watchdog.go), and when it reaches for what it was not
// granted (fault.go).
//
// A bug of the backend that shows in one of its methods costs the device (bug.go):
// everything ends as deviceLost. A bug of the engine itself ends the process: what
// its books say could not be trusted, and the driver is better replaced.
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

	faults atomic.Uint64 // refused by the IOMMU

	progresser backend.Progresser      // nil: the backend is none
	resetter   backend.ContextResetter // nil: the backend is none
	needs      bool                    // backend.Info.Needs, and an OK is known at once
	settles    bool                    // an OK is told after Config.Settle
	verifies   bool                    // backend.Info.Verifies
	settleWake chan struct{}           // capacity 1: runSettle should look
	unsettled  atomic.Bool             // nobody records faults: Config.Settle is not asked

	pollers    atomic.Int32 // queues that look at their rings before they sleep,
	maxPollers int32        // and how many may
	alarm      *alarm

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
	// running, since headSince.
	// +checklocks:mu
	oldest *job
	// +checklocks:mu
	newest *job
	// +checklocks:mu
	headSince time.Time
	// progress is the backend's count, last seen to grow at progressAt.
	// +checklocks:mu
	progress uint64
	// +checklocks:mu
	progressAt time.Time
	// looksAt is when runDevice, asleep, looks again at the latest, and stills how often that
	// was much too late for the oldest job (standstill.go).
	// +checklocks:mu
	looksAt time.Time
	// +checklocks:mu
	stills int
	// +checklocks:mu
	ladder climbing
	// fruitless is how often work of one session was ended, all of fruitlessOf, since
	// anything has come of the device (queueMayHelpLocked).
	// +checklocks:mu
	fruitless int
	// +checklocks:mu
	fruitlessOf *tenant
	// mustReset is set from a fault until the device was reset: nothing is sent, and
	// nothing that was is ok.
	// +checklocks:mu
	mustReset bool
	// +checklocks:mu
	recent recentJobs
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
	faultOutcome = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.IOMMUFault}
)

func newEngine(d *Device) *engine {
	info := d.cfg.Backend.Info()
	lim := info.Limits
	places := max(lim.MaxJobs, 1)
	e := &engine{dev: d, limits: lim, wake: make(chan struct{}, 1), settleWake: make(chan struct{}, 1)}
	e.alarm = newAlarm(d.cfg.Rings == nil && exactAlarms)
	e.ladder.changed = make(chan struct{}, 1)
	e.backend = &guardedBackend{Backend: d.cfg.Backend, engine: e}
	e.progresser, _ = d.cfg.Backend.(backend.Progresser)
	e.settles, e.verifies = info.DMA && d.cfg.Settle != nil, info.Verifies
	e.resetter, _ = d.cfg.Backend.(backend.ContextResetter)
	e.needs = info.Needs && !e.settles
	e.top.heeds = e.needs
	// One processor is left, if there is another: a runtime whose processors all have something to run
	// seldom looks for goroutines that a pipe or a socket is to wake.
	e.maxPollers = int32(max(1, runtime.GOMAXPROCS(0)-1))
	if d.cfg.Rings != nil {
		e.maxPollers = 0
	}
	e.recent.keep = info.DMA
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
	for e.state == engineRunning && !e.mustReset && len(e.freeSlots) > 0 {
		j := e.top.next()
		if j == nil {
			break
		}
		if how, yes := j.withdrawn(); yes {
			e.top.returned(j, 0)
			j.spoil()
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
	if e.settles {
		j.sent = time.Now()
	}
	j.state.Store(jobSent)
	j.submitted, j.stopAs, j.said, j.faulted, j.guilty, j.ran = false, outcome.Outcome{}, false, false, false, 0
	j.work.Needs, j.broken = 0, false
	if e.needs {
		j.work.Needs = e.neededLocked(j)
	}
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

// neededLocked is the job that the device has and whose result one reads that is about
// to be sent; 0: there is none. The device has at most maxSent of a session.
//
// +checklocks:e.mu
func (e *engine) neededLocked(j *job) backend.JobID {
	for o := e.newest; o != nil; o = o.older {
		if o.queue.session == j.queue.session && j.needs(o) {
			return o.work.ID
		}
	}
	return 0
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
		e.dropLocked(j, how, 0)
		e.mu.Unlock()
		if how == lostOutcome { // before anybody is told
			e.lose("the device said that it is lost")
		}
		j.finish(how, 0)
		e.endSaid()
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

// dropLocked takes a sent job off the books, and what it was to write as spoiled if it
// does not end ok.
//
// +checklocks:e.mu
func (e *engine) dropLocked(j *job, how outcome.Outcome, deviceTime time.Duration) {
	e.recent.add(j)
	if how.Kind != outcome.OK && how.Cause != outcome.TrapCause {
		j.spoil()
		for k := j.newer; k != nil; k = k.newer {
			k.broken = k.broken || k.work.Needs == j.work.ID
		}
	}
	if e.ladder.culprit == j && e.state == engineRunning {
		e.climbLocked(outcome.RecoveryNone)
	}
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

// headChangedLocked follows a change of the job that is now thought to run.
//
// +checklocks:e.mu
func (e *engine) headChangedLocked() {
	e.headSince = time.Now()
	e.progressAt, e.stills = e.headSince, 0
	if !e.watching {
		e.watching = true
		e.sleepsLocked(0)
		nudge(e.wake)
	}
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
