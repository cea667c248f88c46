package gpu

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/internal/crashpoint"
	"capgpu/outcome"
)

// Complete implements backend.Sink.
func (r *reactor) Complete(c backend.Completion) { r.mail.completed(c) }

// DeviceGone implements backend.Sink.
func (r *reactor) DeviceGone(reason string) { r.lose(reason) }

// complete takes the device's word for one live job, once, and only if it makes sense.
// Where it is not enough, the job waits for an answer of the manager (settle.go), or for
// the reset after a fault.
func (r *reactor) complete(c backend.Completion) {
	j := r.sent.find(c.ID)
	if j == nil || j.flight.reported.yes || r.state == deviceLost {
		r.strays.Add(1)
		return
	}

	crashpoint.Here("driver.job.completed")
	r.recovery.fruitless = 0
	f := &j.flight
	how, lost := believe(c.Outcome, f.stopAs)

	if j.list != nil {
		j.launched = j.list.launchedBy(uint64(j.work.From) + uint64(c.Begun))
	}

	took := r.bounded(j, c.DeviceTime)
	switch {
	case f.faulted:
		how, lost = faultOutcome, false
	case f.broken && how.Cause != outcome.TrapCause && !lost:
		how = dependentOutcome
	case (r.traits.settles || r.recovery.mustReset) && (how == outcome.Success || how == errorOutcome):
		f.reported = reported{true, how, took}
		r.settle()
		return
	case how.Kind == outcome.TimedOut:
		took = max(took, f.ran) // it had that much, if the device measured or not
	}

	r.finishSent(j, how, took, lost)
}

// finishSent ends a job that the device is done with.
func (r *reactor) finishSent(j *job, how outcome.Outcome, took time.Duration, lost bool) {
	r.drop(j, took)
	r.endSent(j, how, took, lost)
}

// endSent ends a job that ran.
func (r *reactor) endSent(j *job, how outcome.Outcome, took time.Duration, lost bool) {
	if lost && j.pinned { // else it ran here, and that is over
		r.lent = append(r.lent, j.takePins())
	}

	if how.Cause == outcome.TrapCause {
		r.poison(j.session(), how)
	}

	if lost { // before anybody is told
		r.lose("the device said that it is lost")
	}

	j.finish(how, took)
}

// poison ends what a session has: nothing of it is sent after this.
func (r *reactor) poison(s *Session, how outcome.Outcome) (first bool) {
	first = s.setPoisoned(how)
	r.cancel(s, anyJob, poisonedOutcome)
	return first
}

// drop takes a sent job off the books.
func (r *reactor) drop(j *job, took time.Duration) {
	r.books++
	defer func() { r.books-- }()
	r.recent.add(j)
	j.flight.begun = r.sent.oldest == j

	if r.recovery.culprit == j && r.state == deviceRunning {
		r.climb(outcome.RecoveryNone)
	}

	r.sent.drop(j)
	r.share.returned(j, int64(took))
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
