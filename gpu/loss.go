package gpu

import (
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// lose declares the device lost, for good. It does not block: runDevice does
// what follows.
func (e *engine) lose(reason string) {
	err := gpuerr.New(gpuerr.DeviceLost, "%.200s; wait for its successor and open it again", reason)
	e.mu.Lock()
	if e.state == engineLost {
		e.mu.Unlock()
		return
	}
	e.state = engineLost
	e.dev.setLost(err) // whoever sees the state may tell of it, and who is told finds it so
	e.incidentLocked(nil, reason)
	e.climbLocked(outcome.Respawn)
	e.mu.Unlock()
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
		e.dropLocked(j, lostOutcome, 0)
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
