package refmodel

import (
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// Queue is the in-order work of a session.
type Queue struct {
	session  *Session
	group    outcome.Outcome // the worst of what the next signal covers
	skipping bool            // a wait was refused, or its point did not end ok
	held     *Entry          // the wait that holds the queue
	scratch  work
}

// Completion is the 32 bytes of an answer, as four words.
type Completion [4]uint64

// NewQueue is empty.
func NewQueue(s *Session) *Queue { return &Queue{session: s, group: outcome.Success} }

var dependency = outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Dependency}

// Do says how an entry is completed. holds says that it is a wait for a point that nobody
// has reached: what comes behind it is not looked at before Release.
func (q *Queue) Do(e *Entry, arena []uint64) (c Completion, holds bool) {
	how, code, nanos, holds := q.do(e, arena)
	if holds {
		return c, true
	}
	if e.op() != OpSignal || code != gpuerr.None {
		q.group = outcome.Worse(q.group, how)
	}
	return completion(e, how, code, nanos), false
}

func completion(e *Entry, how outcome.Outcome, code gpuerr.Code, nanos uint64) Completion {
	return Completion{e.userData(), uint64(how.Kind) | uint64(how.Cause)<<8 | uint64(code)<<32, nanos, 0}
}

func refused(code gpuerr.Code) outcome.Outcome {
	if code == gpuerr.LaunchLimit {
		return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}
	}
	return outcome.Outcome{Kind: outcome.Failed}
}

// do goes through the checks in the order of docs/wire.md.
func (q *Queue) do(e *Entry, arena []uint64) (how outcome.Outcome, code gpuerr.Code, nanos uint64, holds bool) {
	s := q.session
	args, code := form(e, arena)
	if code != gpuerr.None {
		q.skipping = q.skipping || e.op() == OpWait
		s.failed = s.failed || e.isWork()
		return refused(code), code, 0, false
	}
	switch e.op() {
	case OpNop:
		return outcome.Success, gpuerr.None, 0, false
	case OpSignal:
		how, code := q.signal(e)
		return how, code, 0, false
	case OpWait:
		return q.wait(e)
	}
	how, code, nanos = q.work(e, args)
	s.failed = s.failed || how.Kind != outcome.OK && how != dependency
	return how, code, nanos, false
}

// work does a launch, a copy, a fill or a replay.
func (q *Queue) work(e *Entry, args []uint64) (how outcome.Outcome, code gpuerr.Code, nanos uint64) {
	s := q.session
	if e.op() == OpLaunch && s.Facet == 0 {
		return refused(gpuerr.Unimplemented), gpuerr.Unimplemented, 0
	}
	if q.skipping {
		return dependency, gpuerr.None, 0
	}
	if s.Spent {
		return refused(gpuerr.Quota), gpuerr.Quota, 0 // 0 is what is available
	}
	var f Fingerprint
	if e.op() == OpReplay {
		f, code = s.replay(e, args)
	} else if code = s.resolve(&q.scratch, e, args); code == gpuerr.None {
		f = q.scratch.fingerprint()
	}
	switch {
	case code != gpuerr.None:
		return refused(code), code, 0
	case s.Poisoned:
		return outcome.Outcome{Kind: outcome.Cancelled, Cause: outcome.Poisoned}, gpuerr.None, 0
	case s.failed:
		return dependency, gpuerr.None, 0
	}
	s.Jobs++
	s.DeviceNanos += f.Nanos()
	if s.Fails != nil && s.Fails(uint64(f)) {
		return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}, gpuerr.None, 0
	}
	return outcome.Success, gpuerr.None, f.Nanos()
}

// signal reaches a point with the worst outcome of what it covers.
func (q *Queue) signal(e *Entry) (outcome.Outcome, gpuerr.Code) {
	f, known := find[Fence](q.session, e.object())
	if !known {
		return refused(gpuerr.Stale), gpuerr.Stale
	}
	if e.a() <= f.last {
		return refused(gpuerr.Invalid), gpuerr.Invalid
	}
	how := q.group
	f.reach(e.a(), how)
	q.group, q.skipping = outcome.Success, false
	return how, gpuerr.None
}

func (q *Queue) wait(e *Entry) (how outcome.Outcome, code gpuerr.Code, nanos uint64, holds bool) {
	if q.skipping {
		return dependency, gpuerr.None, 0, false
	}
	f, known := find[Fence](q.session, e.object())
	if !known {
		q.skipping = true
		return refused(gpuerr.Stale), gpuerr.Stale, 0, false
	}
	if e.a() > f.last {
		q.held = e
		return how, gpuerr.None, 0, true
	}
	if f.at(e.a()).Kind != outcome.OK && e.flags() != orderOnly {
		q.skipping = true
		return dependency, gpuerr.None, 0, false
	}
	return outcome.Success, gpuerr.None, 0, false
}

// Publish says that all completions until now were published before what comes next was:
// what comes next runs, whatever failed before.
func (s *Session) Publish() { s.failed = false }

// Release says that the client itself has signalled what the queue is held by, and how
// the wait is completed.
func (q *Queue) Release() (fence, value uint64, c Completion) {
	e := q.held
	q.held = nil
	f, _ := find[Fence](q.session, e.object())
	f.reach(e.a(), outcome.Success)
	return e.object(), e.a(), completion(e, outcome.Success, gpuerr.None, 0)
}
