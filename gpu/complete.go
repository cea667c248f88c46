package gpu

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/internal/crashpoint"
	"capgpu/outcome"
)

// Complete implements backend.Sink. The device's word is taken for one live job,
// once, and only if it makes sense. Where it is not enough, the job waits for
// runSettle (settle.go), or for the reset after a fault.
func (e *engine) Complete(c backend.Completion) {
	e.mu.Lock()
	j := e.slots[uint64(c.ID)&uint64(len(e.slots)-1)]
	if j == nil || j.work.ID != c.ID || j.said || e.state == engineLost {
		e.mu.Unlock()
		e.strays.Add(1)
		return
	}
	crashpoint.Here("driver.job.completed")
	e.fruitless = 0
	how, lost := believe(c.Outcome, j.stopAs)
	if c.Outcome == dependentOutcome && j.work.Needs != 0 {
		how, lost = dependentOutcome, false
	}
	if j.list != nil {
		j.launched = j.list.launchedBy(uint64(c.Begun))
	}
	// No job runs longer than that without being stopped, whatever the device says.
	deviceTime := min(max(c.DeviceTime, 0), j.budget+e.dev.cfg.HangBound)
	switch {
	case j.faulted:
		how, lost = faultOutcome, false
	case how == outcome.Success && j.broken: // it was not to run
		how = errorOutcome
	case how == outcome.Success && j.work.Needs != 0 && e.slots[uint64(j.work.Needs)&uint64(len(e.slots)-1)].is(j.work.Needs):
		// The device owes the completion of what this one needs: its fate is this one's.
		j.said, j.saidHow, j.saidTime = true, how, deviceTime
		e.mu.Unlock()
		return
	case (e.settles || e.mustReset) && (how == outcome.Success || how == errorOutcome):
		j.said, j.saidHow, j.saidTime = true, how, deviceTime
		e.mu.Unlock()
		nudge(e.settleWake)
		return
	case how.Kind == outcome.TimedOut:
		deviceTime = max(deviceTime, j.ran) // it had that much, if the device measured or not
	}
	e.endLocked(j, how, deviceTime, lost)
}

// endLocked ends a job that the device is done with. It releases the lock.
//
// +checklocksrelease:e.mu
func (e *engine) endLocked(j *job, how outcome.Outcome, deviceTime time.Duration, lost bool) {
	e.dropLocked(j, how, deviceTime)
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
	if lost { // before anybody is told
		e.lose("the device said that it is lost")
	}
	j.finish(how, deviceTime)
	e.endSaid()
	if more && !lost {
		e.pump()
	}
}

// endSaid ends jobs that waited for the end of what they need, and have it.
func (e *engine) endSaid() {
	if !e.needs {
		return
	}
	e.mu.Lock()
	for j := e.oldest; j != nil && e.state == engineRunning && !e.mustReset; j = j.newer {
		if !j.said || e.slots[uint64(j.work.Needs)&uint64(len(e.slots)-1)].is(j.work.Needs) {
			continue
		}
		how := j.saidHow
		if j.broken {
			how = dependentOutcome
		}
		e.endLocked(j, how, j.saidTime, false) // and whoever waits for that
		return
	}
	e.mu.Unlock()
}

// is reports whether it is the live job of that id.
func (j *job) is(id backend.JobID) bool { return j != nil && j.work.ID == id }

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
