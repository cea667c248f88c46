package gpu

import (
	"slices"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/internal/crashpoint"
	"capgpu/outcome"
	"capgpu/ring"
)

// job is one entry taken from a ring, until its completion is in the ring. Jobs
// belong to their queue, which makes each once and uses it again.
//
//	free ──take──► held ──(device work)──► ready ──► sent ──Completed──► ended ──retire──► free
//	                 └──(the core's own work, or refused)──────────────────► ended
//
// All of it is the reactor's.
type job struct {
	queue *queue
	next  *job // in the list that it is in
	state jobState
	op    ring.Op
	pos   uint64 // of the entry in its ring, and its
	user  uint64 // user data
	work  backend.Job

	uses   // device work
	target // a signal, a wait
	ended  // valid once the state is ended

	charged bool          // in flight
	budget  time.Duration // all the time it has
	stall   time.Duration // the time it has to get on; at most budget, and less only where progress is seen
	short   short         // what the backend says of it
	flight  flight        // while the device has it
}

// uses is what the device could touch for a job, each part pinned while the device has it.
type uses struct {
	pinned  bool
	program *program
	buffers []*buffer
	list    *list  // of a replay: what is in it is not pinned
	frame   *frame // what the patches of a replay were applied to; nil: there are none
	inline  []byte // backing of work.Inline
	lent    bool   // the device was lost with it and may still read work: it is not used again
}

// target is the point of a fence that a signal reaches, or a wait waits for.
type target struct {
	fence     *fence
	value     uint64
	orderOnly bool            // of a wait: it goes on however the point ended
	atLeast   outcome.Outcome // of a signal: what its point ends with if its work was ok
}

// ended is how a job ended.
type ended struct {
	how        outcome.Outcome
	deviceTime time.Duration
	code       gpuerr.Code // of a refusal, with available
	available  uint64
	launched   uint32 // launches of a replay that were begun
	discarded  bool   // its client had what it published before a moment end
	failed     bool   // it counts among the session's failures (failure.go)
}

type jobState uint8

const (
	jobFree jobState = iota
	jobHeld
	jobReady
	jobSent
	jobEnded
)

func (j *job) session() *Session { return j.queue.session }

// isWork reports whether a job is for the device.
func (j *job) isWork() bool {
	switch j.op {
	case ring.OpLaunch, ring.OpCopy, ring.OpFill, ring.OpReplay:
		return true
	}
	return false
}

func (j *job) usesBuffer(b *buffer) bool { return slices.Contains(j.buffers, b) }

// withdrawn reports whether the job must not run any more, and how it ends:
// something that it uses is being closed, or its session is poisoned. The reactor
// looks when it is about to send the job. A caller that closes an object closes its pins
// first, and then has the reactor cancel: a job that is not found there is found here.
func (j *job) withdrawn() (how outcome.Outcome, yes bool) {
	if j.program != nil && j.program.pins.closed() || j.list != nil && j.list.pins.closed() {
		return revokedOutcome, true
	}
	for _, b := range j.buffers {
		if b.pins.closed() {
			return revokedOutcome, true
		}
	}
	if j.session().poison.Load() != nil {
		return poisonedOutcome, true
	}
	return outcome.Outcome{}, false
}

// pin has closes of what the job uses wait for it. False: something of that is closing.
func (j *job) pin() bool {
	var have pinned
	ok := j.list == nil || j.list.pins.pin()
	if ok {
		have.list = j.list
		ok = j.program == nil || j.program.pins.pin()
	}
	if ok {
		have.program = j.program
	}
	for i := 0; ok && i < len(j.buffers); i++ {
		if ok = j.buffers[i].pins.pin(); ok {
			have.buffers = j.buffers[:i+1]
		}
	}
	if j.pinned = ok; !ok {
		have.unpin()
	}
	return ok
}

// pinned is what the device could touch for a job, with its pins.
type pinned struct {
	buffers []*buffer
	program *program
	list    *list
	frame   *frame
}

func (p pinned) unpin() {
	for _, b := range p.buffers {
		b.pins.unpin()
	}
	if p.program != nil {
		p.program.pins.unpin()
	}
	if p.frame != nil { // before the list can be forgotten
		p.list.putFrame(p.frame)
	}
	if p.list != nil {
		p.list.pins.unpin()
	}
}

// takePins leaves it to the caller to unpin: the job ends, and the device may not
// have let go of its memory, nor of the job.
func (j *job) takePins() pinned {
	p := pinned{slices.Clone(j.buffers), j.program, j.list, j.frame}
	clear(j.buffers)
	j.buffers, j.program, j.list, j.frame = j.buffers[:0], nil, nil, nil
	j.pinned, j.lent = false, true
	return p
}

// letGo lets go of everything that the device could touch.
func (j *job) letGo() {
	switch {
	case j.pinned:
		j.pinned = false
		pinned{j.buffers, j.program, j.list, j.frame}.unpin()
	case j.frame != nil:
		j.list.putFrame(j.frame)
	}
	clear(j.buffers)
	j.buffers, j.program, j.list, j.frame = j.buffers[:0], nil, nil, nil
	if j.lent {
		return
	}
	clear(j.work.Spans)
	j.work.Program, j.work.List, j.work.Recording = nil, nil, 0
}

// discharge ends the charge of being in flight.
func (j *job) discharge() {
	if j.charged {
		j.charged = false
		j.queue.lease.Give(1)
	}
}

// finish ends device work, once, when the device cannot touch the job's memory any more.
func (j *job) finish(how outcome.Outcome, deviceTime time.Duration) {
	j.letGo()
	if deviceTime > 0 {
		// The work is done: being over the limit shows at the next submission.
		_ = j.queue.meter.Spend(uint64(deviceTime))
	}
	crashpoint.Here("driver.job.unpinned")
	j.deviceTime = j.flight.had + deviceTime
	j.end(how)
}

// end ends a job.
func (j *job) end(how outcome.Outcome) {
	j.how, j.state = how, jobEnded
	if how.Kind != outcome.OK && j.isWork() {
		j.fail()
	}
	j.queue.look()
}

// refuse ends a job that was not begun: it is charged nothing.
func (j *job) refuse(code gpuerr.Code) {
	j.discharge()
	if !j.session().node.Live() { // what it names may be gone only because of that
		j.end(revokedOutcome)
		return
	}
	j.code = code
	how := outcome.Outcome{Kind: outcome.Failed}
	if code == gpuerr.LaunchLimit {
		how.Cause = outcome.LaunchLimit
	}
	j.end(how)
}

// refuseFor is refuse with the operands of an error.
func (j *job) refuseFor(err error) {
	e := gpuerr.From(err)
	j.available = e.Available
	j.refuse(e.Code)
}
