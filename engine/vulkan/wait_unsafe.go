package vulkan

import (
	"fmt"
	"time"
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/program/instrument"
)

// spinTime is how long Wait looks at the semaphore before it sleeps.
const spinTime = 50 * time.Microsecond

// Wait implements host.Device.
func (d *Device) Wait() (wire.Result, error) {
	run, err := d.oldest()
	if err != nil {
		return wire.Result{}, err
	}
	t := &d.turns[run%wire.MaxAhead]
	if err := d.await(run, t.recording.stamps); err != nil {
		return wire.Result{}, d.lose(err)
	}
	took, err := d.deviceTime(t.recording.stamps)
	if err != nil {
		return wire.Result{}, d.lose(err)
	}

	d.mu.Lock()
	r, err := d.verdictLocked(run)
	if err == nil {
		d.waited, t.recording.under = run, false
	}
	d.mu.Unlock()
	if err != nil {
		return wire.Result{}, d.lose(err)
	}
	r.DeviceTime = took
	return r, nil
}

// oldest waits until a run is under way, and is the oldest one's number.
func (d *Device) oldest() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.submitted == d.waited && !d.closed && d.lost == nil {
		d.wake.Wait()
	}
	switch {
	case d.closed:
		return 0, host.ErrClosed
	case d.lost != nil:
		return 0, d.lost
	}
	return d.waited + 1, nil
}

// await returns when a run has ended. Its last time stamp shows that first: to ask for the
// timeline over and over gets in the way of some drivers.
func (d *Device) await(run uint64, s stamps) error {
	for began := time.Now(); time.Since(began) < spinTime; {
		if !s.written() {
			continue
		}
		if ended, err := d.hasEnded(run); ended || err != nil {
			return err
		}
	}

	value := run
	const forever = vk.WholeSize
	wi := vk.SemaphoreWaitInfo{Head: vk.Head{SType: vk.TypeSemaphoreWaitInfo}, Count: 1, Semaphores: unsafe.Pointer(&d.timeline), Values: unsafe.Pointer(&value)}
	if err := d.Do("vkWaitSemaphores", d.Dev, uintptr(unsafe.Pointer(&wi)), forever); err != nil {
		return err
	}
	ended, err := d.hasEnded(run)
	if err == nil && !ended {
		err = fmt.Errorf("the wait for run %d ended before it", run)
	}
	return err
}

// hasEnded reports whether the timeline is at a run, or behind it. A lost device may show any
// number.
func (d *Device) hasEnded(run uint64) (bool, error) {
	var now uint64
	if code := int32(d.calls.counter.Call(d.Dev, uintptr(d.timeline), uintptr(unsafe.Pointer(&now)))); code != vk.Success {
		return false, &vk.Result{Call: "vkGetSemaphoreCounterValue", Code: code}
	}
	if now > run+wire.MaxAhead {
		return false, fmt.Errorf("the timeline is at %d, and run %d was the oldest", now, run)
	}
	return now >= run, nil
}

// verdictLocked says how a run ended, which has ended.
//
// The word first may be a later run's already. That run found it, wrote it to before, and
// changed it afterwards; so if before is not written behind the look at first, first is this
// run's.
//
// +checklocks:d.mu
func (d *Device) verdictLocked(run uint64) (wire.Result, error) {
	k := int(run % wire.MaxAhead)
	t := &d.turns[k]
	l := t.list
	if t.behind {
		switch found := d.trap.load(beforeOff + 4*k); found {
		case none:
		case notYet:
			return wire.Result{}, fmt.Errorf("run %d has ended and never begun", run)
		default:
			return wire.Result{Skipped: true}, nil
		}
	}

	first := d.trap.load(firstOff)
	if first != none && run < d.submitted {
		next := beforeOff + 4*int((run+1)%wire.MaxAhead)
		found := d.trap.load(next)
		if found == notYet && first == all {
			if err := d.await(run+1, d.turns[(run+1)%wire.MaxAhead].recording.stamps); err != nil { // it is skipped
				return wire.Result{}, err
			}
			found = d.trap.load(next)
		}
		if found != notYet {
			first = found
		}
	}

	switch {
	case first == none:
		return wire.Result{Begun: uint32(l.entries)}, nil
	case first < l.first || first >= l.first+uint32(l.entries):
		return wire.Result{}, fmt.Errorf("entry %d ended early, and the run had the entries from %d to %d", first, l.first, l.first+uint32(l.entries)-1)
	}
	r := wire.Result{Begun: first - l.first + 1, Early: true}
	copy(r.Slot[:], d.trap.mapped[instrument.SlotOff(int(first)):])
	d.ended = first
	return r, nil
}
