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
	d        *Device
	commands uintptr
	first    uint32 // the number of its first entry
	entries  int
	sets     []takenSet
}

type takenSet struct {
	n      int // of its buffers
	handle vk.Handle
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
	steps, err := d.plan(entries, l.first)
	if err != nil {
		return l, err
	}
	if err = d.arm(entries, l.first); err != nil {
		return l, err
	}

	handles := make([]vk.Handle, len(steps))
	for i := range steps {
		n := len(steps[i].bind) + 1
		if handles[i], err = d.takeSet(n); err != nil {
			return l, d.failed("record a list", 0, err)
		}
		l.sets = append(l.sets, takenSet{n, handles[i]})
	}
	d.writeSets(steps, handles)

	if l.commands, err = d.newCommands(); err != nil {
		return l, d.failed("record a list", 0, err)
	}
	if err = d.begin(l.commands, true); err != nil {
		return l, d.failed("record a list", 0, err)
	}
	d.encode(l.commands, steps, handles)
	if err = d.Do("vkEndCommandBuffer", l.commands); err != nil {
		return l, d.failed("record a list", 0, err)
	}
	return l, nil
}

// Free implements host.List.
func (l *list) Free() error {
	d := l.d
	d.slots.put(l.first, l.entries)
	for _, s := range l.sets {
		d.putSet(s.n, s.handle)
	}
	if l.commands != 0 {
		d.idle = append(d.idle, l.commands)
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
