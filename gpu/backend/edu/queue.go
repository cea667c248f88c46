package edu

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// task is a job that the device has.
type task struct {
	job  *backend.Job
	id   backend.JobID
	stop atomic.Uint32 // how it is to be stopped; only grows
}

const (
	stopNone uint32 = iota
	stopCancel
	stopReset
)

// askToStop tells the engine to leave the job after the transfer that runs. The caller
// holds Device.mu.
func (t *task) askToStop(how uint32) {
	if t.stop.Load() < how {
		t.stop.Store(how)
	}
}

// Start implements backend.Backend.
func (d *Device) Start(sink backend.Sink) error {
	if sink == nil {
		return gpuerr.New(gpuerr.Invalid, "sink is nil")
	}
	d.sinkMu.Lock()
	defer d.sinkMu.Unlock()
	if err := d.begin(); err != nil {
		return err
	}
	d.sink = sink
	d.wg.Go(d.runEngine)
	d.wg.Go(d.runAttendant)
	d.wg.Go(d.runInterrupts)
	d.wg.Go(d.runWatch)
	return nil
}

// begin makes the device live.
func (d *Device) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case created:
		d.state = live
		return nil
	case over:
		return gpuerr.New(gpuerr.Closed, "the device was closed")
	}
	return gpuerr.New(gpuerr.Invalid, "Start is called once")
}

// Submit implements backend.Backend.
func (d *Device) Submit(job *backend.Job) error {
	if err := checkJob(job, &d.info.Limits); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	outstanding := len(d.queue) + len(d.cancelled)
	if d.running != nil {
		outstanding++
	}
	switch {
	case d.state == created:
		return gpuerr.New(gpuerr.Invalid, "Submit before Start")
	case d.state == gone:
		return gpuerr.New(gpuerr.DeviceLost, "%s", d.why)
	case d.state == over:
		return gpuerr.New(gpuerr.Closed, "the device was closed")
	case d.resetting > 0:
		return gpuerr.New(gpuerr.Busy, "the device is being reset; try again")
	case outstanding >= maxJobs:
		return gpuerr.New(gpuerr.QueueFull, "all %d places of the device's queue are taken; wait for a completion", maxJobs)
	case d.hasLocked(job.ID):
		return gpuerr.New(gpuerr.Invalid, "job %d is already outstanding", job.ID)
	}
	d.queue = append(d.queue, &task{job: job, id: job.ID})
	signal(d.work)
	return nil
}

// +checklocks:d.mu
func (d *Device) hasLocked(id backend.JobID) bool {
	if d.running != nil && d.running.id == id {
		return true
	}
	found := false
	for _, list := range [...][]*task{d.queue, d.cancelled} {
		for _, t := range list {
			found = found || t.id == id
		}
	}
	return found
}

// Cancel implements backend.Backend.
func (d *Device) Cancel(id backend.JobID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running != nil && d.running.id == id {
		d.running.askToStop(stopCancel)
		return
	}
	i := slices.IndexFunc(d.queue, func(t *task) bool { return t.id == id })
	if i < 0 {
		return
	}
	d.cancelled = append(d.cancelled, d.queue[i])
	d.queue = slices.Delete(d.queue, i, i+1)
	signal(d.attend)
}

// Reset implements backend.Backend. The device has no reset of its own: what runs is
// waited for, and when ctx ends first the error is gpuerr.Busy, nothing is guaranteed,
// and only a reset of the whole function helps.
func (d *Device) Reset(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case created:
		return nil
	case over:
		return gpuerr.New(gpuerr.Closed, "the device was closed")
	}
	if err := d.abortLocked(ctx); err != nil {
		return err
	}
	if d.state == gone {
		return gpuerr.New(gpuerr.DeviceLost, "%s", d.why)
	}
	return nil
}

// abortLocked drops what waits, stops what runs, and waits until device and sink are
// quiet. Submit is refused meanwhile. d.mu is released while it waits.
//
// +checklocks:d.mu
func (d *Device) abortLocked(ctx context.Context) error {
	d.resetting++
	d.queue, d.cancelled = nil, nil
	if d.running != nil {
		d.running.askToStop(stopReset)
	}
	var err error
	for err == nil && (d.running != nil || d.delivering > 0) {
		if d.quiet == nil {
			d.quiet = make(chan struct{})
		}
		quiet := d.quiet
		d.mu.Unlock()
		select {
		case <-quiet:
		case <-ctx.Done():
			err = gpuerr.New(gpuerr.Busy, "the device has not stopped yet: %v", ctx.Err())
		}
		d.mu.Lock()
	}
	d.resetting--
	return err
}

// settleLocked wakes the goroutines that wait for the device to be quiet.
//
// +checklocks:d.mu
func (d *Device) settleLocked() {
	if d.quiet != nil && d.running == nil && d.delivering == 0 {
		close(d.quiet)
		d.quiet = nil
	}
}

// Close implements backend.Backend. It is idempotent, and every call returns only when
// nothing of the device runs any more. While a transfer runs it does not: nobody but
// the manager can stop that, and its memory must not be anyone else's before.
func (d *Device) Close() error {
	d.mu.Lock()
	first := !d.closing
	d.closing = true
	if first {
		unstarted := d.state == created
		d.state = over
		if !unstarted {
			// Cannot fail: the context never ends.
			_ = d.abortLocked(context.Background())
		}
	}
	d.mu.Unlock()
	if !first {
		<-d.closed
		return d.closeErr
	}
	d.end()
	d.wg.Wait()
	err := d.scratch.Free()
	if errors.Is(err, gpuerr.Revoked) { // the manager has taken it back
		err = nil
	}
	d.closeErr = err
	close(d.closed)
	return err
}
