package vulkan

import (
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/program"
)

// warm launches a pipeline so that its lanes return at once. A driver in software compiles a
// program when it is first launched, which takes as long as all other work of a run and would
// count for its deadline. It is left to the first run where one is under way: it would wait
// behind that.
func (c *pipeline) warm() error {
	d := c.d
	d.mu.Lock()
	busy, ended := d.submitted > d.waited, d.ended != 0
	d.mu.Unlock()
	if !d.software || busy || c.pushBytes == 0 {
		return nil
	}

	set, err := d.takeSet(c.bindings + 1)
	if err != nil {
		return err
	}
	defer d.putSet(c.bindings+1, set)
	push := make([]byte, c.pushBytes)
	push[c.pushBytes-4] = 1 // the number of an entry, above the one that "ended early"
	steps := []step{{pipe: c, grid: program.Dim3{X: 1, Y: 1, Z: 1}, push: push, bind: make([]bound, c.bindings)}}
	sets := []vk.Handle{set}
	d.writeSets(steps, sets)

	if !ended {
		d.trap.store(firstOff, 0)
		defer d.trap.store(firstOff, none)
	}
	return d.once(d.queue, func(commands uintptr) error {
		d.encode(commands, steps, sets)
		return nil
	})
}

// once records commands, submits them and returns when they have ended.
func (d *Device) once(queue uintptr, record func(commands uintptr) error) error {
	c := d.clear.commands
	if err := d.begin(c); err != nil {
		return err
	}
	if err := record(c); err != nil {
		return err
	}
	if err := d.Do("vkEndCommandBuffer", c); err != nil {
		return err
	}

	si := vk.SubmitInfo{Head: vk.Head{SType: vk.TypeSubmitInfo}, Commands: 1, Command: unsafe.Pointer(&c)}
	if err := d.Do("vkQueueSubmit", queue, 1, uintptr(unsafe.Pointer(&si)), uintptr(d.clear.fence)); err != nil {
		return err
	}
	const forever = vk.WholeSize
	if err := d.Do("vkWaitForFences", d.Dev, 1, uintptr(unsafe.Pointer(&d.clear.fence)), 1, forever); err != nil {
		return err
	}
	return d.Do("vkResetFences", d.Dev, 1, uintptr(unsafe.Pointer(&d.clear.fence)))
}
