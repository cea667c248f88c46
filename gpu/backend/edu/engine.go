package edu

import (
	"log/slog"
	"runtime/debug"
	"time"

	"capgpu/gpu/backend"
	"capgpu/outcome"
)

// runEngine runs the queued jobs one at a time and in order.
func (d *Device) runEngine() {
	for {
		t := d.takeNext()
		if t == nil {
			return
		}
		began := time.Now()
		how := d.executeOrFail(t)
		d.finish(t, how, time.Since(began))
	}
}

// takeNext waits for a job. It returns nil when there will be none.
func (d *Device) takeNext() *task {
	for {
		if t := d.next(); t != nil {
			return t
		}
		select {
		case <-d.work:
		case <-d.gone:
			return nil
		case <-d.ctx.Done():
			return nil
		}
	}
}

// next is the job that has the turn, nil if there is none. A job is never begun after its
// round is over.
func (d *Device) next() *task {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.running == nil && d.state == live && len(d.queue) > 0 {
		t := d.queue[0]
		d.queue = d.queue[1:]
		if t.job.Context.Over(t.job.Round) {
			d.cancelled = append(d.cancelled, t)
			signal(d.attend)
		} else {
			d.running = t
		}
	}
	return d.running
}

// executeOrFail is execute, where a bug is the end of the device: nobody knows what it
// still does.
func (d *Device) executeOrFail(t *task) (how outcome.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			slog.Error("the driver of the edu device has a bug", "panic", p, "stack", string(debug.Stack()))
			d.vanish("its driver has a bug: %v", p)
			// It may be at work on the job's memory, which is not given back before.
			d.await(regCommand, commandRun, transferPatience)
		}
	}()
	return d.execute(t)
}

// execute runs a job to its end. The device is idle then, or gone.
func (d *Device) execute(t *task) outcome.Outcome {
	switch t.job.Op {
	case backend.OpCopy:
		return d.copy(t, t.job.Spans[0], t.job.Spans[1])
	case backend.OpFill:
		return d.fill(t, t.job.Spans[0], t.job.Pattern)
	default: // OpLaunch
		return d.launch(t)
	}
}

var (
	cancelled   = outcome.Outcome{Kind: outcome.Cancelled}
	deviceError = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.DeviceError}
	tooMuch     = outcome.Outcome{Kind: outcome.Failed, Cause: outcome.LaunchLimit}
	vanished    = outcome.Outcome{Kind: outcome.DeviceLost, Cause: outcome.Gone}
)

func trapped(t outcome.Trap) outcome.Outcome {
	return outcome.Outcome{Kind: outcome.Failed, Cause: outcome.TrapCause, Trap: t}
}

// finish ends the running job and tells the sink, unless it was reset or the device is
// gone.
func (d *Device) finish(t *task, how outcome.Outcome, deviceTime time.Duration) {
	d.mu.Lock()
	d.running = nil
	if t.stop.Load() == stopReset || d.state != live || how == vanished {
		d.settleLocked()
		d.mu.Unlock()
		return
	}
	if how.Cause == outcome.TrapCause {
		t.job.Context.Trap()
	}
	if how.Kind != outcome.OK {
		t.job.Context.Fail(t.job.Round)
	}
	d.delivering++
	d.mu.Unlock()
	d.deliver(backend.Completion{ID: t.id, Outcome: how, DeviceTime: deviceTime})
}

// deliver makes a call of the sink that is counted as one in progress.
func (d *Device) deliver(c backend.Completion) {
	d.sinkMu.Lock()
	if d.sink != nil {
		d.sink.Complete(c)
	}
	d.sinkMu.Unlock()
	d.delivered()
}

func (d *Device) delivered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delivering--
	d.settleLocked()
}

// runAttendant completes queued jobs that were cancelled, and tells the sink when the
// device is gone.
func (d *Device) runAttendant() {
	for {
		select {
		case <-d.attend:
		case <-d.ctx.Done():
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
	case d.state == gone:
		why := d.why
		d.delivering++
		d.mu.Unlock()
		d.sinkMu.Lock()
		if sink := d.sink; sink != nil {
			d.sink = nil // it hears no more
			sink.DeviceGone(why)
		}
		d.sinkMu.Unlock()
		d.delivered()
		return false
	case len(d.cancelled) > 0:
		t := d.cancelled[0]
		d.cancelled = d.cancelled[1:]
		d.delivering++
		d.mu.Unlock()
		d.deliver(backend.Completion{ID: t.id, Outcome: cancelled})
		return true
	}
	d.mu.Unlock()
	return false
}
