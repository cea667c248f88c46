package vulkan

import (
	"embed"
	"fmt"
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/program"
	"capgpu/program/instrument"
)

// kernels are this package's own, compiled from the .comp beside each (tools/kernels.sh).
//
//go:embed kernels/*.spv
var kernels embed.FS

// turn is one of the places for runs that are submitted and not waited for.
type turn struct {
	between uintptr // the command buffer before a run that is behind others

	// The run that is there now.
	list      *list
	recording *recording
	behind    bool // it was submitted with between
}

// voidBytes is the size of the memory that is bound where a binding has no bytes. An access
// there is recorded, and its index made 0.
const voidBytes = 64 << 10

// openTrap makes the trap buffer and what else lists are made with.
func (d *Device) openTrap() (err error) {
	pci := vk.CommandPoolCreateInfo{Head: vk.Head{SType: vk.TypeCommandPoolCreate}, Flags: vk.CommandPoolResetBuffers, Family: uint32(d.family)}
	if d.pool, err = d.kept("CommandPool", unsafe.Pointer(&pci)); err != nil {
		return err
	}
	if err = d.openClearing(); err != nil {
		return err
	}
	if d.trap, err = d.keptBlock(uint64(instrument.BufferBytes(maxSlots)), watchedMemory); err != nil {
		return fmt.Errorf("make the trap buffer: %w", err)
	}
	if d.void, err = d.keptBlock(voidBytes, watchedMemory); err != nil {
		return err
	}
	instrument.ArmHead(d.trap.mapped)
	clear(d.void.mapped)
	return nil
}

// openKernels compiles the kernels for bytes.
func (d *Device) openKernels() (err error) {
	if d.copier, err = d.kernel("copy", 2, 16); err != nil {
		return err
	}
	d.filler, err = d.kernel("fill", 1, 16)
	return err
}

// kernel compiles a kernel of this package.
func (d *Device) kernel(name string, bindings, pushBytes uint32) (*pipeline, error) {
	module, err := kernels.ReadFile("kernels/" + name + ".spv")
	if err != nil {
		return nil, err
	}
	p, err := d.compile(&wire.Pipeline{Module: module, Entry: "main", Bindings: bindings, PushBytes: pushBytes})
	if err == nil {
		d.undo = append(d.undo, func() { _ = p.Free() })
	}
	return p, err
}

// openTurns makes the timeline, and for each turn the command buffer that runs between.
func (d *Device) openTurns() (err error) {
	stype := vk.SemaphoreTypeCreateInfo{Head: vk.Head{SType: vk.TypeSemaphoreTypeCreateInfo}, Type: vk.SemaphoreTypeTimeline}
	sci := vk.SemaphoreCreateInfo{Head: vk.Head{SType: vk.TypeSemaphoreCreateInfo, Next: unsafe.Pointer(&stype)}}
	if d.timeline, err = d.kept("Semaphore", unsafe.Pointer(&sci)); err != nil {
		return err
	}

	between, err := d.kernel("between", 0, 4)
	if err != nil {
		return err
	}
	set, err := d.takeSet(1)
	if err != nil {
		return err
	}
	step, sets := []step{{pipe: between, grid: program.Dim3{X: 1, Y: 1, Z: 1}}}, []vk.Handle{set}
	d.writeSets(step, sets)
	for k := range d.turns {
		t := &d.turns[k]
		if t.between, err = d.newCommands(); err != nil {
			return err
		}
		if err := d.begin(t.between); err != nil {
			return err
		}
		step[0].push = words(uint32(k))
		d.barrier(t.between, vk.StageAllCommands, vk.AccessMemoryWrite, vk.StageAllCommands, vk.AccessMemoryRead|vk.AccessMemoryWrite)
		d.encode(t.between, step, sets) // the list begins with a barrier
		if err := d.Do("vkEndCommandBuffer", t.between); err != nil {
			return err
		}
	}
	return nil
}
