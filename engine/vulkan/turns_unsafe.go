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
	alone, behind uintptr // begin, for a run with none before it, and for one with some
	end           uintptr

	// Of the run that is there now.
	list  *list
	ahead bool // it was submitted behind others, with between
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

// openTurns records the begin and the end of runs, for each turn.
func (d *Device) openTurns() (err error) {
	qci := vk.QueryPoolCreateInfo{Head: vk.Head{SType: vk.TypeQueryPoolCreateInfo}, Type: vk.QueryTypeTimestamp, Count: 2 * wire.MaxAhead}
	if d.stamps, err = d.kept("QueryPool", unsafe.Pointer(&qci)); err != nil {
		return err
	}
	stype := vk.SemaphoreTypeCreateInfo{Head: vk.Head{SType: vk.TypeSemaphoreTypeCreateInfo}, Type: vk.SemaphoreTypeTimeline}
	sci := vk.SemaphoreCreateInfo{Head: vk.Head{SType: vk.TypeSemaphoreCreateInfo, Next: unsafe.Pointer(&stype)}}
	if d.timeline, err = d.kept("Semaphore", unsafe.Pointer(&sci)); err != nil {
		return err
	}

	between, err := d.kernel("between", 0, 4)
	if err != nil {
		return err
	}
	for k := range d.turns {
		if err := d.openTurn(k, between); err != nil {
			return err
		}
	}
	return nil
}

func (d *Device) openTurn(k int, between *pipeline) (err error) {
	step := []step{{pipe: between, push: words(uint32(k)), grid: program.Dim3{X: 1, Y: 1, Z: 1}}}
	set, err := d.takeSet(1)
	if err != nil {
		return err
	}
	sets := []vk.Handle{set}
	d.writeSets(step, sets)

	t := &d.turns[k]
	for _, b := range []struct {
		commands *uintptr
		behind   bool
	}{{&t.alone, false}, {&t.behind, true}} {
		if *b.commands, err = d.newCommands(); err != nil {
			return err
		}
		c := *b.commands
		if err := d.begin(c, false); err != nil {
			return err
		}
		if _, err := d.Call("vkCmdResetQueryPool", c, uintptr(d.stamps), uintptr(2*k), 2); err != nil {
			return err
		}
		const every = vk.AccessMemoryRead | vk.AccessMemoryWrite
		d.barrier(c, vk.StageAllCommands, vk.AccessMemoryWrite, vk.StageAllCommands, every)
		if err := d.stamp(c, 2*k); err != nil {
			return err
		}
		if b.behind {
			d.encode(c, step, sets)
			d.barrier(c, vk.StageComputeShader, vk.AccessShaderWrite, vk.StageComputeShader, vk.AccessShaderRead|vk.AccessShaderWrite)
		}
		if err := d.Do("vkEndCommandBuffer", c); err != nil {
			return err
		}
	}

	if t.end, err = d.newCommands(); err != nil {
		return err
	}
	if err := d.begin(t.end, false); err != nil {
		return err
	}
	d.barrier(t.end, vk.StageComputeShader, vk.AccessShaderWrite, vk.StageHost, vk.AccessHostRead)
	if err := d.stamp(t.end, 2*k+1); err != nil {
		return err
	}
	return d.Do("vkEndCommandBuffer", t.end)
}

// stamp writes a time stamp when all before it has ended.
func (d *Device) stamp(c uintptr, query int) error {
	_, err := d.Call("vkCmdWriteTimestamp", c, vk.StageBottomOfPipe, uintptr(d.stamps), uintptr(query))
	return err
}
