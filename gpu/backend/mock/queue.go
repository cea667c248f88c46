package mock

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"capgpu/gpu/backend"
	"capgpu/gpuerr"
)

// slot is one place of the device's queue. Slots are made once and used again.
type slot struct {
	dev     *Device
	job     *backend.Job
	id      backend.JobID
	ordinal uint64 // jobs submitted to this device, from 1
	fault   Fault  // zero: none
	entry   logRef

	// For preemption (preempt.go):
	short   bool          // it may preempt others
	ready   ready         // what Prepare said of it, if it is no list
	had     uint32        // entries of a list that have run, all ok, before it was put back
	written uint64        // by these
	ran     time.Duration // until it was put back
	attend  atomic.Uint32 // not 0: while it runs it is to be preempted, or to be stopped

	stop    atomic.Uint32 // how the job is to be stopped; only grows while it is in use
	stopped chan struct{} // capacity 1: look at stop; a token may be of an earlier job
}

const (
	stopNone uint32 = iota
	stopCancel
	stopContext
	stopReset
	stopClose
)

// askToStop tells the engine to leave the job. The caller holds Device.mu.
func (s *slot) askToStop(how uint32) {
	if s.stop.Load() < how {
		s.stop.Store(how)
		s.attend.Store(1)
		signal(s.stopped)
	}
}

// signal leaves a token in a channel of capacity 1.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Start implements backend.Backend.
func (d *Device) Start(sink backend.Sink) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.state == closed:
		return gpuerr.New(gpuerr.Closed, "the device was closed")
	case d.state != created:
		return gpuerr.New(gpuerr.Invalid, "Start is called once")
	case sink == nil:
		return gpuerr.New(gpuerr.Invalid, "sink is nil")
	}
	d.sink, d.started, d.state = sink, time.Now(), live
	d.wg.Go(d.runEngine)
	d.wg.Go(d.runAttendant)
	d.crew.start(&d.wg)
	return nil
}

// Submit implements backend.Backend.
func (d *Device) Submit(job *backend.Job) error {
	if err := checkJob(job); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.acceptsLocked(job.ID); err != nil {
		return err
	}
	s := d.free[len(d.free)-1]
	d.free = d.free[:len(d.free)-1]
	d.faults.jobs++
	s.job, s.id, s.ordinal = job, job.ID, d.faults.jobs
	s.fault = d.faults.pick(job)
	s.entry = d.log.open(s.id, s.ordinal, job, s.fault.Kind)
	if d.running != nil || len(d.queue) > 0 {
		s.short = d.isShort(s)
	}
	d.queue = append(d.queue, s)
	d.attendLocked()
	signal(d.work)
	return nil
}

// acceptsLocked says why a job cannot be taken now.
//
// +checklocks:d.mu
func (d *Device) acceptsLocked(id backend.JobID) error {
	switch {
	case d.state == created:
		return gpuerr.New(gpuerr.Invalid, "Submit before Start")
	case d.state == gone:
		return gpuerr.New(gpuerr.DeviceLost, "the device no longer answers")
	case d.state == closed:
		return gpuerr.New(gpuerr.Closed, "the device was closed")
	case d.resetting > 0:
		return gpuerr.New(gpuerr.Busy, "the device is being reset; try again")
	case len(d.free) == 0:
		return gpuerr.New(gpuerr.QueueFull, "all %d places of the device's queue are taken; wait for a completion", maxJobs)
	case d.findLocked(id) != nil:
		return gpuerr.New(gpuerr.Invalid, "job %d is already outstanding", id)
	}
	return nil
}

// findLocked returns the outstanding job of this id.
//
// +checklocks:d.mu
func (d *Device) findLocked(id backend.JobID) *slot {
	for _, s := range [...]*slot{d.running, d.preemption.job} {
		if s != nil && s.id == id {
			return s
		}
	}
	for _, list := range [...][]*slot{d.queue, d.cancelled} {
		for _, s := range list {
			if s.id == id {
				return s
			}
		}
	}
	return nil
}

// Cancel implements backend.Backend.
func (d *Device) Cancel(id backend.JobID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range [...]*slot{d.running, d.preemption.job} {
		if s != nil && s.id == id {
			s.askToStop(stopCancel)
			return
		}
	}
	i := slices.IndexFunc(d.queue, func(s *slot) bool { return s.id == id })
	if i < 0 {
		return
	}
	s := d.queue[i]
	d.queue = slices.Delete(d.queue, i, i+1)
	d.cancelled = append(d.cancelled, s)
	signal(d.attend)
	d.attendLocked() // what waited behind it may be short
}

// Reset implements backend.Backend. When ctx ends first the error is
// gpuerr.Busy, nothing is guaranteed yet, and Reset may be called again.
func (d *Device) Reset(ctx context.Context) error {
	if err := d.reset(ctx); err != nil {
		return err
	}
	d.loseLocal(0, true)
	return nil
}

func (d *Device) reset(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case created:
		return nil
	case closed:
		return gpuerr.New(gpuerr.Closed, "the device was closed")
	}
	if err := d.abortLocked(ctx, stopReset); err != nil {
		return err
	}
	if d.state == gone {
		return gpuerr.New(gpuerr.DeviceLost, "the device no longer answers, not even to a reset")
	}
	return nil
}

// abortLocked drops what waits, stops what runs, and waits until the device and
// the sink are quiet. Submit is refused meanwhile. d.mu is released while it waits.
//
// +checklocks:d.mu
// +checklocksignore: it cannot follow the way out of the select
func (d *Device) abortLocked(ctx context.Context, how uint32) error {
	d.resetting++
	defer func() { d.resetting-- }()
	for _, list := range [...]*[]*slot{&d.queue, &d.cancelled} {
		for _, s := range *list {
			d.log.close(s.entry, EndedByReset, time.Since(d.started))
			d.releaseLocked(s)
		}
		*list = (*list)[:0]
	}
	for _, s := range [...]*slot{d.running, d.preemption.job} {
		if s != nil {
			s.askToStop(how)
		}
	}
	d.faults.reset()
	return d.awaitLocked(ctx, func(*backend.Context) bool { return true })
}

// releaseLocked makes a slot free for the next job.
//
// +checklocks:d.mu
func (d *Device) releaseLocked(s *slot) {
	s.job, s.id, s.fault = nil, 0, Fault{}
	if s.ready.job != nil { // no view of memory that the core may unmap now
		s.ready.reset(nil)
	}
	s.short, s.had, s.written, s.ran = false, 0, 0, 0
	s.stop.Store(stopNone)
	s.attend.Store(0)
	d.free = append(d.free, s)
}

// settleLocked wakes the goroutines that wait for something to be over: they look again.
//
// +checklocks:d.mu
func (d *Device) settleLocked() {
	if d.quiet != nil {
		close(d.quiet)
		d.quiet = nil
	}
}

// Close implements backend.Backend. It is idempotent, and every call returns
// only when nothing of the device runs any more.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.state != closed {
		d.state = closed
		close(d.done)
		// Cannot fail: the context never ends, and every job obeys a reset.
		_ = d.abortLocked(context.Background(), stopClose)
		d.crew.close()
	}
	d.mu.Unlock()
	d.wg.Wait()
	return nil
}
