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
	e.beginResetLocked()
	e.mu.Unlock()
	e.dev.auditEvent("reset", culprit.tenant, "session=%d outcome=%q after=%v", culprit.id, stoppedAs, time.Since(since))
	if !struck {
		e.dev.strike(culprit, "did not stop", "")
	}
	e.reset(guilty)
}

// resetFaulted takes the device back after it reached for what it was not granted.
// Called by runDevice.
func (e *engine) resetFaulted() {
	e.mu.Lock()
	if e.state != engineRunning || !e.mustReset {
		e.mu.Unlock()
		return
	}
	e.beginResetLocked()
	e.mu.Unlock()
	e.dev.auditEvent("reset", nil, "cause=%q", outcome.IOMMUFault)
	e.reset(0)
}

// +checklocks:e.mu
func (e *engine) beginResetLocked() {
	e.state = engineResetting
	for e.pumping { // a Submit on its way must not arrive after the reset
		e.quiet.Wait()
	}
	e.resets.Add(1)
}

// reset ends what the device has: guilty, if it is not 0, and what faulted as such,
// what was stopped before as that, what was done as ok if there was no fault, and the
// rest as innocent.
func (e *engine) reset(guilty backend.JobID) {
	// With the patience before, the whole ladder fits the bound.
	ctx, stop := context.WithTimeout(context.Background(), e.dev.cfg.HangBound/2)
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
	type ending struct {
		j    *job
		how  outcome.Outcome
		took time.Duration
	}
	var endings []ending
	e.mu.Lock()
	if e.state != engineResetting { // lost meanwhile
		e.mu.Unlock()
		return
	}
	ran := time.Duration(0)
	if !e.headSince.IsZero() {
		ran = now.Sub(e.headSince)
	}
	for e.oldest != nil {
		j := e.oldest
		x := ending{j: j, how: resetOutcome}
		switch {
		case j.faulted:
			x.how, x.took = faultOutcome, ran
		case j.said && e.mustReset: // the fault may have been its own
		case j.said && settled.believes(j):
			x.how, x.took = j.saidHow, j.saidTime
		case j.said:
			x.how = errorOutcome
		case j.stopAs.Kind != outcome.Pending: // stopped before: that is how it ended
			x.how = j.stopAs
		}
		if j.work.ID == guilty {
			x.took = ran
		}
		e.dropLocked(j, x.took)
		endings = append(endings, x)
	}
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
