package mock

import (
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// runEngine is the device: it runs the queued jobs one at a time and in order.
func (d *Device) runEngine() {
	for {
		s := d.takeNext()
		if s == nil {
			return
		}
		d.deliverLate()
		began, preempted := time.Now(), d.Preempted()
		result := d.executeOrFail(s)
		if !d.finish(s, result, s.ran+time.Since(began)-(d.Preempted()-preempted)) {
			return
		}
	}
}

// executeOrFail is execute, where a bug is the end of the device.
func (d *Device) executeOrFail(s *slot) (r result) {
	defer func() {
		if p := recover(); p != nil {
			sayBug(p)
			r = result{gone: true}
		}
	}()
	return d.execute(s)
}

// takeNext waits for a job. It returns nil when the device is closed.
func (d *Device) takeNext() *slot {
	for idle := false; ; idle = true {
		d.mu.Lock()
		if idle {
			d.preemption.paid = max(d.preemption.paid, d.now()) // to nobody
		}
		if len(d.released) > 0 {
			for _, c := range d.released {
				d.kernels.forget(c)
			}
			d.released = nil
		}
		if d.state == live && len(d.queue) > 0 {
			s := d.queue[0]
			d.queue = d.queue[:copy(d.queue, d.queue[1:])]
			if d.overLocked(s) {
				d.mu.Unlock()
				continue
			}
			d.running = s
			d.attendLocked()
			d.log.begin(s.entry, time.Since(d.started))
			d.mu.Unlock()
			return s
		}
		d.mu.Unlock()
		select {
		case <-d.work:
		case <-d.done:
			return nil
		}
	}
}

// overLocked reports whether a job that was taken from the queue is never begun, which the
// attendant then says.
//
// +checklocks:d.mu
func (d *Device) overLocked(s *slot) bool {
	if !s.job.Context.Over(s.job.Round) {
		return false
	}
	d.cancelled = append(d.cancelled, s)
	signal(d.attend)
	return true
}

// result is what became of a job on the device.
type result struct {
	outcome  outcome.Outcome
	begun    uint32 // entries of a list
	written  uint64
	stray    uint64 // IOVA of an access that the IOMMU refused
	digest   [32]byte
	wasReset bool // the device was reset under it: no completion
	gone     bool // the device left the bus: no completion, ever
}

// finish ends the running job, or the short one that preempts it, and tells the sink. It
// returns false when the engine has nothing more to do.
func (d *Device) finish(s *slot, r result, deviceTime time.Duration) bool {
	d.mu.Lock()
	if s.stop.Load() >= stopContext {
		r.wasReset = true
	}
	c := backend.Completion{ID: s.id, Outcome: r.outcome, DeviceTime: deviceTime, Begun: r.begun}
	if r.outcome.Cause == outcome.TrapCause && !r.wasReset {
		s.job.Context.Trap()
	}
	if r.outcome.Kind != outcome.OK && !r.wasReset {
		s.job.Context.Fail(s.job.Round)
	}
	d.log.end(s.entry, r, time.Since(d.started))
	fault := s.fault.Kind
	if d.running == s {
		d.running = nil
	} else {
		d.preemption.job = nil
	}
	d.releaseLocked(s)
	if r.wasReset || d.state != live {
		d.settleLocked()
		d.mu.Unlock()
		return true
	}
	if r.gone {
		d.vanishLocked()
		d.mu.Unlock()
		return false
	}
	told, repeat := d.faults.tamper(fault, c)
	ring := d.faults.ring
	d.delivering++
	d.mu.Unlock()
	for range repeat {
		d.sink.Complete(told)
	}
	if fault == FaultWrongWritePointer {
		for _, stale := range ring {
			d.sink.Complete(stale)
		}
	}
	d.delivered()
	return true
}

// delivered ends a call of the sink.
func (d *Device) delivered() {
	d.mu.Lock()
	d.delivering--
	d.settleLocked()
	d.mu.Unlock()
}

// deliverLate hands out what lateCompletion faults withheld until after a reset.
func (d *Device) deliverLate() {
	d.mu.Lock()
	if len(d.faults.late) == 0 {
		d.mu.Unlock()
		return
	}
	late := d.faults.late
	d.faults.late = nil
	d.delivering++
	d.mu.Unlock()
	for _, c := range late {
		d.sink.Complete(c)
	}
	d.delivered()
}

// vanishLocked takes the device off the bus. The attendant tells the sink, after
// the completions that it may be delivering.
//
// +checklocks:d.mu
func (d *Device) vanishLocked() {
	d.state = gone
	if d.running != nil { // a short job was the end of the device
		d.running.askToStop(stopReset)
	}
	for _, list := range [...]*[]*slot{&d.queue, &d.cancelled} {
		for _, s := range *list {
			d.log.close(s.entry, EndedGone, time.Since(d.started))
			d.releaseLocked(s)
		}
		*list = (*list)[:0]
	}
	signal(d.attend)
	d.settleLocked()
}

// runAttendant completes queued jobs that were cancelled, and tells the sink when
// the device is gone.
func (d *Device) runAttendant() {
	for {
		select {
		case <-d.attend:
		case <-d.done:
			return
		}
		for d.attendOnce() {
		}
	}
}

// attendOnce does one piece of the attendant's work, if there is any.
func (d *Device) attendOnce() bool {
	d.mu.Lock()
	switch {
	case d.state == gone && !d.faults.goneTold:
		d.faults.goneTold = true
		d.delivering++
		d.mu.Unlock()
		d.sink.DeviceGone("the mock device reads as all ones")
		d.delivered()
		return true
	case len(d.cancelled) > 0:
		s := d.cancelled[0]
		d.cancelled = d.cancelled[:copy(d.cancelled, d.cancelled[1:])]
		c := backend.Completion{ID: s.id, Outcome: cancelled, DeviceTime: s.ran, Begun: s.had}
		ended := CancelledInQueue
		if s.had > 0 { // entries of a list that was put back
			ended = Stopped
			s.job.Context.Fail(s.job.Round)
		}
		d.log.close(s.entry, ended, time.Since(d.started))
		d.releaseLocked(s)
		d.delivering++
		d.mu.Unlock()
		d.sink.Complete(c)
		d.delivered()
		return true
	}
	d.mu.Unlock()
	return false
}
