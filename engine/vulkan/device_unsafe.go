package vulkan

import (
	"sync"
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/wire"
)

// Device is an open device; see the package comment.
type Device struct {
	*vk.Loader
	facts
	physical        uintptr
	memory          vk.MemoryProperties
	queue, clearing uintptr // the same one, where the family has no second
	calls           calls
	undo            []func() // for Close, last first

	trap  block   // the trap buffer
	void  block   // bound where a binding has no bytes
	spare *memory // for copies that overlap; made by the first one

	pool    vk.Handle // of command buffers
	idle    []uintptr // command buffers
	clear   clearing
	layouts [wire.MaxBindings + 2]vk.Handle // of descriptor sets, by the number of bindings
	sets    [wire.MaxBindings + 2][]vk.Handle
	slots   slots
	copier  *pipeline
	filler  *pipeline

	stamps   []stamps // that no recording has
	timeline vk.Handle
	turns    [wire.MaxAhead]turn

	mu   sync.Mutex
	wake *sync.Cond // a run was submitted, or the device closed or lost
	// +checklocks:mu
	submitted uint64 // the last run's number; they count from 1
	// +checklocks:mu
	waited uint64 // the last run that Wait has told
	// +checklocks:mu
	ended uint32 // the entry that ended early, until Resume; 0: none
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	lost error
}

// calls are the functions of the hot paths.
type calls struct {
	bindPipeline, bindSets, push, dispatch, barrier vk.Proc
	resetQueries, writeStamp, copyQueries           vk.Proc
	submit, counter                                 vk.Proc
}

func newDevice() *Device {
	d := &Device{slots: newSlots(1, maxSlots)}
	d.wake = sync.NewCond(&d.mu)
	return d
}

// Describe implements host.Device.
func (d *Device) Describe() wire.Device { return d.facts.Device }

// Close implements host.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	d.closed = true
	d.wake.Broadcast()
	d.mu.Unlock()
	d.undoAll()
	return nil
}

func (d *Device) undoAll() {
	for i := len(d.undo) - 1; i >= 0; i-- {
		d.undo[i]()
	}
	d.undo = nil
}

// create calls a vkCreate… that makes one object of the device.
func (d *Device) create(what string, info unsafe.Pointer) (vk.Handle, error) {
	var h vk.Handle
	if err := d.Do("vkCreate"+what, d.Dev, uintptr(info), 0, uintptr(unsafe.Pointer(&h))); err != nil {
		return 0, err
	}
	return h, nil
}

// destroy calls a vkDestroy… or vkFree…; of no object it does nothing.
func (d *Device) destroy(call string, h vk.Handle) {
	if h != 0 {
		_, _ = d.Call(call, d.Dev, uintptr(h), 0) // found ahead
	}
}

// kept makes an object that lives as long as the device.
func (d *Device) kept(what string, info unsafe.Pointer) (vk.Handle, error) {
	h, err := d.create(what, info)
	if err == nil {
		d.undo = append(d.undo, func() { d.destroy("vkDestroy"+what, h) })
	}
	return h, err
}

// newCommands is a command buffer.
func (d *Device) newCommands() (uintptr, error) {
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		return c, nil
	}

	ai := vk.CommandBufferAllocateInfo{Head: vk.Head{SType: vk.TypeCommandBufferAllocate}, Pool: d.pool, Count: 1}
	var c uintptr
	err := d.Do("vkAllocateCommandBuffers", d.Dev, uintptr(unsafe.Pointer(&ai)), uintptr(unsafe.Pointer(&c)))
	return c, err
}

// begin begins a command buffer.
func (d *Device) begin(c uintptr) error {
	bi := vk.CommandBufferBeginInfo{Head: vk.Head{SType: vk.TypeCommandBufferBegin}}
	return d.Do("vkBeginCommandBuffer", c, uintptr(unsafe.Pointer(&bi)))
}

// barrier has all that follows wait for all before, and see what it wrote.
func (d *Device) barrier(c uintptr, srcStage, srcAccess, dstStage, dstAccess uint32) {
	b := vk.MemoryBarrier{Head: vk.Head{SType: vk.TypeMemoryBarrier}, Src: srcAccess, Dst: dstAccess}
	d.calls.barrier.Call(c, uintptr(srcStage), uintptr(dstStage), 0, 1, uintptr(unsafe.Pointer(&b)), 0, 0, 0, 0)
}
