package gpu

import (
	"capgpu/gpu/handles"
	"capgpu/gpuerr"
	"capgpu/outcome"
)

// lose declares the device lost, for good. Any goroutine may call it; it does not wait. From
// here on nothing is sent and the loss is known, before anybody is told of work that it
// ended; the reactor does what follows.
func (r *reactor) lose(reason string) {
	err := gpuerr.New(gpuerr.DeviceLost, "%.200s; wait for its successor and open it again", reason)
	if r.dev.setLost(err) {
		r.mail.post(func() { r.lost(reason) })
	}
}

// lost is the reactor's part of lose.
func (r *reactor) lost(reason string) {
	r.state = deviceLost
	r.incident(nil, reason)
	r.climb(outcome.Respawn)
	r.endAll()
}

// lostWithDevice is the last drain of a queue that has lost its device, or its memory there.
func lostWithDevice() drain {
	return drain{how: lostOutcome, last: true, code: gpuerr.DeviceLost}
}

// lose ends the work and the fences of a session that has lost the device, or its memory
// there. The reactor calls it.
func (s *Session) lose() {
	handles.Each(s.handles, func(f *fence) { f.die(lostOutcome) })
	for _, q := range s.queues {
		q.beginDrain(lostWithDevice(), true)
	}
}

// endAll ends what a lost device leaves behind.
func (r *reactor) endAll() {
	if r.lossTold {
		return
	}
	r.lossTold = true
	d := r.dev
	d.log.Error("device lost", "cause", d.Err())
	d.auditEvent("device.lost", nil, "%v", d.Err())
	var endings []ending
	for j := r.sent.oldest; j != nil; j = r.sent.oldest {
		r.drop(j, 0)
		r.lent = append(r.lent, j.takePins())
		endings = append(endings, ending{j, lostOutcome, 0})
	}
	finishEndings(endings)
	for _, s := range d.sessionList() {
		s.lose()
	}
	lent := r.lent
	r.closing.Go(func() { d.letGo(lent) })
}

// letGo unpins what the device was given when it was lost: nobody has said that it
// stopped, so its memory stays mapped and is nobody else's until the backend is
// closed. If that never ends it is the process's end that takes the memory back.
func (d *Device) letGo(lent []pinned) {
	_ = d.closeBackend() // Device.Close has the error, too
	for _, p := range lent {
		p.unpin()
	}
	d.reactor.mail.post(func() { d.reactor.lent = nil })
}
