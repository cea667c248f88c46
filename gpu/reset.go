package gpu

import (
	"context"
	"time"

	"capgpu/gpu/backend"
	"capgpu/internal/crashpoint"
	"capgpu/outcome"
)

// resetStuck takes the device back from a job that does not stop. Called by
// runDevice.
func (e *engine) resetStuck(guilty backend.JobID, since time.Time) {
	e.mu.Lock()
	j := e.oldest
	if e.state != engineRunning || j == nil || j.work.ID != guilty {
		e.mu.Unlock() // it ended just now
		return
	}
	culprit, stoppedAs, struck := j.queue.session, j.stopAs, j.guilty
	e.incidentLocked(j, "did not stop")
	queueFirst := e.queueMayHelpLocked(culprit)
	e.beginResetLocked()
	e.mu.Unlock()
	e.dev.auditEvent("reset", culprit.tenant, "session=%d outcome=%q after=%v", culprit.id, stoppedAs, time.Since(since))
	if !struck {
		e.dev.strike(culprit, "did not stop", "")
	}
	if queueFirst && e.resetContext(culprit, guilty, since) {
		return
	}
	e.reset(guilty, since)
}

// resetFaulted takes the device back after it reached for what it was not granted.
// Called by runDevice.
func (e *engine) resetFaulted() {
	e.mu.Lock()
	if e.state != engineRunning || !e.mustReset {
		e.mu.Unlock()
		return
	}
	e.incidentLocked(nil, outcome.IOMMUFault.String())
	e.beginResetLocked()
	e.mu.Unlock()
	e.dev.auditEvent("reset", nil, "cause=%q", outcome.IOMMUFault)
	e.reset(0, time.Now())
}

// +checklocks:e.mu
func (e *engine) beginResetLocked() {
	e.state = engineResetting
	for e.pumping { // a Submit on its way must not arrive after the reset
		e.quiet.Wait()
	}
}

// ending is how a job ends with a reset.
type ending struct {
	j    *job
	how  outcome.Outcome
	took time.Duration
}

// resetContext ends what the device has of one session, and nothing else. False means
// that the device has to be reset.
func (e *engine) resetContext(s *Session, guilty backend.JobID, since time.Time) bool {
	e.mu.Lock()
	e.climbLocked(outcome.QueueReset)
	e.mu.Unlock()
	bound := e.dev.cfg.HangBound
	until := time.Now().Add(e.cancelPatience())
	if last := since.Add(3 * bound / 8); last.Before(until) {
		until = last
	}
	ctx, stop := context.WithDeadline(context.Background(), until)
	err := e.tryResetContext(ctx, &s.context)
	stop()
	if err != nil {
		e.dev.log.Warn("the work of one session could not be ended alone", "session", s.id, "err", err)
		return false
	}
	now := time.Now()
	var endings []ending
	e.mu.Lock()
	switch {
	case e.state != engineResetting: // lost meanwhile
		e.mu.Unlock()
		return true
	case e.mustReset:
		e.mu.Unlock()
		return false
	}
	for j := e.oldest; j != nil; {
		next := j.newer
		if j.queue.session == s && (!j.said || j.broken) { // else the device was done with it
			endings = append(endings, e.endByResetLocked(j, guilty, now))
		}
		j = next
	}
	e.climbLocked(outcome.RecoveryNone)
	e.state, e.fruitless, e.fruitlessOf = engineRunning, e.fruitless+1, s.tenant
	e.mu.Unlock()
	for _, x := range endings {
		x.j.finish(x.how, x.took)
	}
	nudge(e.settleWake) // what was said meanwhile waits for it
	e.endSaid()
	e.pump()
	return true
}

// tryResetContext calls the backend. A bug of it is the loss of the device.
func (e *engine) tryResetContext(ctx context.Context, c *backend.Context) (err error) {
	defer (&guardedBackend{e.backend, e}).caught("ResetContext", &err)
	return e.resetter.ResetContext(ctx, c)
}

// endByResetLocked takes a job off the books that was not done when the device forgot it:
// as it was stopped, if it was; as dependent, if what it needs did not end ok; else it was
// merely there.
//
// +checklocks:e.mu
func (e *engine) endByResetLocked(j *job, guilty backend.JobID, now time.Time) ending {
	x := ending{j: j, how: resetOutcome}
	switch {
	case j.stopAs.Kind != outcome.Pending:
		x.how = j.stopAs
	case j.queue.session.poison.Load() != nil: // Fault has yet to cancel it
		x.how = poisonedOutcome
	case j.broken:
		x.how = dependentOutcome
	}
	if j.work.ID == guilty {
		x.took = now.Sub(e.headSince)
	}
	e.dropLocked(j, x.how, x.took)
	return x
}

// reset ends what the device has: guilty, if it is not 0, and what faulted as such,
// what was stopped before as that, what was done as ok if there was no fault, and the
// rest as innocent, or as dependent on what is not ok. It began at since.
func (e *engine) reset(guilty backend.JobID, since time.Time) {
	e.mu.Lock()
	e.climbLocked(outcome.FunctionReset)
	e.mu.Unlock()
	e.resets.Add(1)
	ctx, stop := context.WithDeadline(context.Background(), since.Add(3*e.dev.cfg.HangBound/4))
	crashpoint.Here("driver.reset.begun")
	err := e.backend.Reset(ctx)
	stop()
	if err != nil {
		e.lose("the device could not be reset: " + err.Error())
		return
	}
	crashpoint.Here("driver.reset.done")
	settled := e.settleForReset()
	now := time.Now()
	var endings []ending
	e.mu.Lock()
	if e.state != engineResetting { // lost meanwhile
		e.mu.Unlock()
		return
	}
	ran := now.Sub(e.headSince) // of the oldest
	for e.oldest != nil {
		j := e.oldest
		how, took := outcome.Outcome{}, time.Duration(0)
		switch {
		case j.faulted:
			how, took = faultOutcome, ran
		case j.said && e.mustReset: // the fault may have been its own
			how = resetOutcome
		case j.said && !j.broken && settled.believes(j):
			how, took = j.saidHow, j.saidTime
		case j.said && !j.broken:
			how = errorOutcome
		default:
			endings = append(endings, e.endByResetLocked(j, guilty, now))
			continue
		}
		e.dropLocked(j, how, took)
		endings = append(endings, ending{j, how, took})
	}
	e.climbLocked(outcome.RecoveryNone)
	e.fruitless = 0
	e.state, e.mustReset = engineRunning, false
	e.mu.Unlock()
	for _, x := range endings {
		x.j.finish(x.how, x.took)
	}
	e.pump()
}

// settleForReset settles what was said before the reset, and has the faults of what
// was reset away come before anything else is sent.
func (e *engine) settleForReset() settlement { return e.settle(e.dev.cfg.HangBound / 4) }
