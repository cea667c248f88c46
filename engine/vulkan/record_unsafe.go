package vulkan

import (
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/gpuerr"
	"capgpu/program/instrument"
)

// list is a recorded list.
type list struct {
	d       *Device
	first   uint32 // the number of its first entry
	entries int
	steps   []step
	sets    []vk.Handle // of the steps
	// recordings are as many as runs of the list have been under way together. Device.mu
	// guards which of them are.
	recordings []*recording
}

// recording is a command buffer of a list, and the time stamps that it writes.
type recording struct {
	commands uintptr
	stamps   stamps
	under    bool // a run of it was submitted and not waited for
}

// Record implements host.Device.
func (d *Device) Record(entries []host.Entry) (host.List, error) {
	l, err := d.record(entries)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (d *Device) record(entries []host.Entry) (l *list, err error) {
	l = &list{d: d, entries: len(entries)}
	defer func() {
		if err != nil {
			_ = l.Free()
		}
	}()

	if l.first, err = d.slots.take(len(entries)); err != nil {
		l.entries = 0
		return l, err
	}
	if l.steps, err = d.plan(entries, l.first); err != nil {
		return l, err
	}
	if err = d.arm(entries, l.first); err != nil {
		return l, err
	}

	for i := range l.steps {
		set, err := d.takeSet(len(l.steps[i].bind) + 1)
		if err != nil {
			return l, d.failed("record a list", 0, err)
		}
		l.sets = append(l.sets, set)
	}
	d.writeSets(l.steps, l.sets)
	_, err = l.again()
	return l, err
}

// again makes a recording.
func (l *list) again() (*recording, error) {
	d, r := l.d, &recording{}
	if err := l.recordInto(r); err != nil {
		d.freeRecording(r)
		return nil, d.failed("record a list", 0, err)
	}
	l.recordings = append(l.recordings, r)
	return r, nil
}

// freeRecording keeps what a recording was made of for others.
func (d *Device) freeRecording(r *recording) {
	if r.commands != 0 {
		d.idle = append(d.idle, r.commands)
	}
	d.putStamps(r.stamps)
}

func (l *list) recordInto(r *recording) (err error) {
	d := l.d
	if r.stamps, err = d.takeStamps(); err != nil {
		return err
	}
	if r.commands, err = d.newCommands(); err != nil {
		return err
	}

	c := r.commands
	if err = d.begin(c); err != nil {
		return err
	}
	d.resetStamps(c, r.stamps)
	d.barrier(c, vk.StageAllCommands, vk.AccessMemoryWrite, vk.StageAllCommands, vk.AccessMemoryRead|vk.AccessMemoryWrite)
	d.stamp(c, r.stamps, 0)
	d.encode(c, l.steps, l.sets)
	d.stamp(c, r.stamps, 1)
	d.showStamps(c, r.stamps)
	d.barrier(c, vk.StageComputeShader|vk.StageTransfer, vk.AccessShaderWrite|vk.AccessTransferWrite, vk.StageHost, vk.AccessHostRead)
	return d.Do("vkEndCommandBuffer", c)
}

// Free implements host.List.
func (l *list) Free() error {
	d := l.d
	d.slots.put(l.first, l.entries)
	for i, set := range l.sets {
		d.putSet(len(l.steps[i].bind)+1, set)
	}
	for _, r := range l.recordings {
		d.freeRecording(r)
	}
	*l = list{d: d}
	return nil
}

// arm makes the slots of launches ready. They stay so: only an entry that ended early writes
// its slot, and Resume clears that.
func (d *Device) arm(entries []host.Entry, first uint32) error {
	var slot [wire.SlotBytes]byte // the trap buffer may be slow to write, and slower to read
	var lengths [wire.MaxBindings]uint64
	for i := range entries {
		e := &entries[i]
		if e.Op != wire.OpLaunch {
			continue
		}
		if len(e.Spans) > len(lengths) {
			return gpuerr.New(gpuerr.Internal, "record a list: entry %d has %d bindings", i, len(e.Spans))
		}
		for k := range e.Spans {
			lengths[k] = e.Spans[k].Length
		}
		if err := instrument.ArmSlot(slot[:], lengths[:len(e.Spans)], e.Rounds); err != nil {
			return gpuerr.New(gpuerr.Internal, "record a list: entry %d: %v", i, err)
		}
		copy(d.trap.mapped[instrument.SlotOff(int(first)+i):], slot[:])
	}
	return nil
}

// encode puts steps into a command buffer.
func (d *Device) encode(c uintptr, steps []step, sets []vk.Handle) {
	var bound *pipeline
	for i := range steps {
		s := &steps[i]
		if s.barrier {
			d.barrier(c, vk.StageComputeShader, vk.AccessShaderWrite, vk.StageComputeShader, vk.AccessShaderRead|vk.AccessShaderWrite)
		}
		if bound != s.pipe {
			bound = s.pipe
			d.calls.bindPipeline.Call(c, vk.BindPointCompute, uintptr(bound.handle))
		}
		d.calls.bindSets.Call(c, vk.BindPointCompute, uintptr(bound.layout), 0, 1, uintptr(unsafe.Pointer(&sets[i])), 0, 0)
		d.calls.push.Call(c, uintptr(bound.layout), vk.ShaderStageCompute, 0, uintptr(len(s.push)), uintptr(unsafe.Pointer(&s.push[0])))
		d.calls.dispatch.Call(c, uintptr(s.grid.X), uintptr(s.grid.Y), uintptr(s.grid.Z))
	}
}
