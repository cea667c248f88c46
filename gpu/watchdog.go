package gpu

import (
	"context"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// The ladder, smallest step first:
//
//	deadline missed ──► Cancel ──(still there after cancelPatience)──► Reset ──(fails)──► lost
//	timedOut                                                           guilty: as stopped    all: deviceLost
//	                                                                   others: innocent
//
// A deadline counts from when the device could have started the job: from when
// it was first seen as the oldest one sent. That is late by at most watchTick, and
// never early. The same goes for a job that its owner cancelled: the device's
// patience begins when the job is the oldest.

// cancelPatience is how long a cancelled job may take to end: what the device
// promises (backend.Limits.CancelBound: 200 ms in all where the host's CPU does the
// work), with room for a busy host, and at most a quarter of the hang bound.
func (e *engine) cancelPatience() time.Duration {
	patience := 2 * e.limits.CancelBound
	if patience <= 0 {
		patience = 20 * time.Millisecond
	}
	return min(patience, e.dev.cfg.HangBound/4)
}

// runDevice watches over the device until quit is closed. It alone resets, and
// it alone ends work when the device is lost.
func (e *engine) runDevice(quit <-chan struct{}) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := e.watch()
		if next <= 0 {
			continue
		}
		timer.Reset(next)
		select {
		case <-e.wake:
		case <-timer.C:
		case <-quit:
			e.watch() // a loss of the last moment is told, too
			return
		}
	}
}

// watchTick is how often a busy device is looked at.
const watchTick = 2 * time.Millisecond

// idleWatch is how long runDevice sleeps when there is nothing to watch; it is
// woken when there is.
const idleWatch = time.Hour

// watch takes one step of the ladder if one is due, and says when to look again;
// zero means at once.
func (e *engine) watch() time.Duration {
	now := time.Now()
	e.mu.Lock()
	if e.state == engineLost {
		e.mu.Unlock()
		e.endAll()
		return idleWatch
	}
	j := e.oldest
	if j == nil {
		e.watching = false
		e.mu.Unlock()
		return idleWatch
	}
	e.watching = true
	if e.headSince.IsZero() {
		e.headSince = now
	}
	since, patience := e.headSince, j.budget
	stopped := j.stopAs.Kind != outcome.Pending
	if stopped {
		patience = e.cancelPatience()
		if j.stoppedAt.After(since) {
			since = j.stoppedAt
		}
	}
	due := since.Add(patience)
	if due.After(now) {
		e.mu.Unlock()
		return min(due.Sub(now), watchTick)
	}
	id, submitted, s, budget := j.work.ID, j.submitted, j.queue.session, j.budget
	if stopped {
		e.mu.Unlock()
		e.reset(id, since)
		return 0
	}
	j.stopAs, j.stoppedAt = hangOutcome, now
	e.mu.Unlock()
	if submitted {
		e.backend.Cancel(id)
	}
	if budget >= s.fair {
		s.dev.strike(s, "deadline missed")
	}
	return 0
}

// reset takes the device back from a job that does not stop. Called by runDevice.
func (e *engine) reset(guilty backend.JobID, since time.Time) {
	e.mu.Lock()
	if e.state != engineRunning || e.oldest == nil || e.oldest.work.ID != guilty {
		e.mu.Unlock() // it ended just now
		return
	}
	culprit, stoppedAs, budget := e.oldest.queue.session, e.oldest.stopAs, e.oldest.budget
	e.state = engineResetting
	for e.pumping { // a Submit on its way must not arrive after the reset
		e.quiet.Wait()
	}
	e.mu.Unlock()
	e.resets.Add(1)
	e.dev.auditEvent("reset", culprit.tenant, "session=%d outcome=%q after=%v", culprit.id, stoppedAs, time.Since(since))
	if stoppedAs.Kind != outcome.TimedOut || budget < culprit.fair { // else it has its strike
		e.dev.strike(culprit, "did not stop")
	}
	// With the patience before, the whole ladder fits the bound.
	ctx, stop := context.WithTimeout(context.Background(), e.dev.cfg.HangBound/2)
	err := e.backend.Reset(ctx)
	stop()
	if err != nil {
		e.lose("the device could not be reset: " + err.Error())
		return
	}
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
	ran := now.Sub(e.headSince)
	for e.oldest != nil {
		j := e.oldest
		x := ending{j: j, how: resetOutcome}
		if j.work.ID == guilty {
			x.took = ran
		}
		if j.stopAs.Kind != outcome.Pending { // stopped before: that is how it ended
			x.how = j.stopAs
		}
		e.dropLocked(j, x.took)
		endings = append(endings, x)
	}
	e.state = engineRunning
	e.mu.Unlock()
	for _, x := range endings {
		x.j.finish(x.how, x.took)
	}
	e.pump()
}

// lose declares the device lost, for good. It does not block: runDevice does
// what follows.
func (e *engine) lose(reason string) {
	e.mu.Lock()
	if e.state == engineLost {
		e.mu.Unlock()
		return
	}
	e.state = engineLost
	e.mu.Unlock()
	e.dev.setLost(gpuerr.New(gpuerr.DeviceLost, "%.200s; wait for its successor and open it again", reason))
	nudge(e.wake)
}

// endAll ends what a lost device leaves behind. Called by runDevice.
func (e *engine) endAll() {
	first := !e.endedAll
	if first {
		e.endedAll = true
		e.dev.log.Error("device lost", "cause", e.dev.Err())
		e.dev.auditEvent("device.lost", nil, "%v", e.dev.Err())
	}
	sessions := e.dev.sessionList()
	var ended *job
	e.mu.Lock()
	for e.pumping {
		e.quiet.Wait()
	}
	for e.oldest != nil {
		j := e.oldest
		e.dropLocked(j, 0)
		e.held = append(e.held, j.takePins())
		j.next, ended = ended, j
	}
	for _, s := range sessions {
		for _, q := range s.flow.readyQueues() {
			ended = e.unreadyLocked(q, func(*job) bool { return true }, ended)
		}
	}
	e.mu.Unlock()
	finishList(ended, lostOutcome)
	for _, s := range sessions {
		each(s.handles, func(f *fence) { f.die(lostOutcome) })
	}
	if first {
		e.dev.wg.Go(e.letGo)
	}
}

// letGo unpins what the device was given when it was lost: nobody has said that it
// stopped, so its memory stays mapped and is nobody else's until the backend is
// closed. If that never ends it is the process's end that takes the memory back.
func (e *engine) letGo() {
	_ = e.dev.closeBackend() // Device.Close has the error, too
	e.mu.Lock()
	held := e.held
	e.held = nil
	e.mu.Unlock()
	for _, p := range held {
		p.unpin()
	}
}
