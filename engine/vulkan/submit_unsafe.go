package vulkan

import (
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program/instrument"
)

// runWord is a run's number as the device knows it: never 0, and later if the difference, as
// a signed number, is above 0.
func runWord(run uint64) uint32 { return uint32(2*run + 1) }

// Submit implements host.Device.
func (d *Device) Submit(hl host.List) error {
	l, ok := hl.(*list)
	if !ok || len(l.recordings) == 0 {
		return gpuerr.New(gpuerr.Internal, "submit a run: the list is not recorded")
	}
	r := d.idleOf(l)
	if r == nil {
		var err error
		if r, err = l.again(); err != nil {
			return err
		}
	}
	if err := d.submit(l, r); err != nil {
		return d.failed("submit a run", 0, err)
	}
	return nil
}

// idleOf is a recording of a list that no run has; nil if there is none.
func (d *Device) idleOf(l *list) *recording {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range l.recordings {
		if !r.under {
			return r
		}
	}
	return nil
}

func (d *Device) submit(l *list, r *recording) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.lost != nil:
		return d.lost
	case d.submitted-d.waited >= wire.MaxAhead:
		return gpuerr.New(gpuerr.Internal, "%d runs are under way", wire.MaxAhead)
	}

	run := d.submitted + 1
	k := int(run % wire.MaxAhead)
	t := &d.turns[k]
	t.list, t.recording, t.behind = l, r, d.submitted > d.waited || d.ended != 0
	r.stamps.clear()
	commands := []uintptr{t.between, r.commands}
	if t.behind {
		d.trap.store(runOff+4*k, runWord(run))
		d.trap.store(beforeOff+4*k, notYet)
	} else {
		commands = commands[1:]
		d.trap.store(stopOff, 0) // nothing runs that it was for
	}

	value := run
	timeline := vk.TimelineSubmitInfo{Head: vk.Head{SType: vk.TypeTimelineSubmitInfo}, Signals: 1, SignalValues: unsafe.Pointer(&value)}
	si := vk.SubmitInfo{
		Head:     vk.Head{SType: vk.TypeSubmitInfo, Next: unsafe.Pointer(&timeline)},
		Commands: uint32(len(commands)), Command: unsafe.Pointer(&commands[0]),
		Signals: 1, SignalHandle: unsafe.Pointer(&d.timeline),
	}
	if code := int32(d.calls.submit.Call(d.queue, 1, uintptr(unsafe.Pointer(&si)), 0)); code != vk.Success {
		return &vk.Result{Call: "vkQueueSubmit", Code: code}
	}
	d.submitted, r.under = run, true
	d.wake.Signal()
	return nil
}

// Stop implements host.Device. Loops look at the word until the next run, which was not
// submitted yet, takes it back.
func (d *Device) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.submitted > d.waited {
		d.trap.store(stopOff, runWord(d.submitted))
	}
}

// Resume implements host.Device.
func (d *Device) Resume() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.submitted > d.waited {
		return gpuerr.New(gpuerr.Internal, "resume: %d runs are under way", d.submitted-d.waited)
	}
	if d.ended != 0 {
		out := instrument.SlotOff(int(d.ended))
		clear(d.trap.mapped[out : out+instrument.RoundsOff])
		clear(d.void.mapped) // where an access outside may have written
	}
	d.ended = 0
	d.trap.store(firstOff, none)
	return nil
}
