package gpu

import (
	"slices"
	"sync/atomic"
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
//	free ──take──► held ──(device work)──► ready ──► sent ──Complete──► ended ──retire──► free
//	                 └──(the core's own work, or refused)──────────────► ended
//
// The queue's goroutine owns a job that is free, held or ended, the engine (under
// engine.mu) one that is ready or sent. ended is published by state, last of all.
type job struct {
	queue    *queue
	state    atomic.Uint32
	work     backend.Job
	op       ring.Op
	userData uint64 // of its entry
	fence    *fence // signal, wait
	value    uint64
	// orderOnly: of a wait, it goes on however the point ended
	orderOnly bool
	atLeast   outcome.Outcome // of a signal: what its point ends with if its work was ok
	// how and deviceTime are valid once ended; code and available with a refusal.
	how        outcome.Outcome
	deviceTime time.Duration
	code       gpuerr.Code
	available  uint64
	charged    bool   // in flight
	launched   uint32 // launches of a replay that were begun

	pos     uint64 // of the entry in its ring
	spoiled *spoil // it did not end ok, and its completion is not published
	list    *list  // of a replay, pinned: what is in it is not
	program *program
	buffers []*buffer     // pinned
	frame   *frame        // what the patches of a replay were applied to; nil: there are none
	inline  []byte        // backing of work.Inline
	budget  time.Duration // all the time it has
	stall   time.Duration // the time it has to get on; at most budget, and less only where progress is seen
	unended bool          // the device was lost with it and may still read work: it is not used again

	// The engine's.
	next      *job // in the queue's ready list
	older     *job // sent before this one, and the next after
	newer     *job
	estimate  int64           // charged to the flow when it was sent
	sent      time.Time       // where OKs are settled
	submitted bool            // Submit has returned: Cancel will find it
	stopAs    outcome.Outcome // the outcome if it does not end by itself; pending: nobody stopped it
	stoppedAt time.Time
	guilty    bool          // missing the deadline was a strike
	ran       time.Duration // until it was stopped for a missed deadline
	said      bool          // the device reported its end, which is not settled yet (settle.go):
	saidHow   outcome.Outcome
	saidTime  time.Duration
	faulted   bool // it ends failed (iommuFault), whatever the device says
	broken    bool // what it needs (work.Needs) did not end ok
}

// States of a job.
const (
	jobFree uint32 = iota
	jobHeld
	jobReady
	jobSent
	jobEnded
)

func (j *job) usesBuffer(b *buffer) bool {
	for _, used := range j.buffers {
		if used == b {
			return true
		}
	}
	return false
}

// withdrawn reports whether the job must not run any more, and how it ends:
// something that it uses is being closed, its session is poisoned, or what it reads is
// spoiled. The engine
// looks when it is about to send the job, under its lock: whoever closes first
// closes the pins, or poisons, and then takes that lock to cancel, so a job that is
// not found there is found here.
func (j *job) withdrawn() (how outcome.Outcome, yes bool) {
	if j.program != nil && j.program.pins.closed() || j.list != nil && j.list.pins.closed() {
		return revokedOutcome, true
	}
	for _, b := range j.buffers {
		if b.pins.closed() {
			return revokedOutcome, true
		}
	}
	if j.queue.session.poison.Load() != nil {
		return poisonedOutcome, true
	}
	if j.queue.session.spoils.hits(j) {
		return dependentOutcome, true
	}
	return outcome.Outcome{}, false
}

// pinned is what the device could touch for a job.
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
	p.leaveList()
}

// takePins leaves it to the caller to unpin: the job ends, and the device may not
// have let go of its memory, nor of the job.
func (j *job) takePins() pinned {
	p := pinned{slices.Clone(j.buffers), j.program, j.list, j.frame}
	clear(j.buffers)
	j.buffers, j.program, j.list, j.frame, j.unended = j.buffers[:0], nil, nil, nil, true
	return p
}

// unpin lets go of everything that the device could touch.
func (j *job) unpin() {
	pinned{j.buffers, j.program, j.list, j.frame}.unpin()
	clear(j.buffers)
	j.buffers, j.program, j.list, j.frame = j.buffers[:0], nil, nil, nil
	if j.unended {
		return
	}
	for i := range j.work.Spans {
		j.work.Spans[i] = backend.Span{}
	}
	j.work.Program, j.work.List = nil, nil
}

// discharge ends the charge of being in flight.
func (j *job) discharge() {
	if j.charged {
		j.charged = false
		j.queue.lease.Give(1)
	}
}

// finish ends device work: the engine calls it once per job, without its lock,
// when the device cannot touch the job's memory any more. The job is the queue's
// again when it returns.
func (j *job) finish(how outcome.Outcome, deviceTime time.Duration) {
	q := j.queue
	j.unpin()
	if deviceTime > 0 {
		// The work is done: being over the limit shows at the next submission.
		_ = q.meter.Spend(uint64(deviceTime))
	}
	crashpoint.Here("driver.job.unpinned")
	j.how, j.deviceTime = how, deviceTime
	j.state.Swap(jobEnded)
	q.kick()
}
