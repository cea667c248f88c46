package vulkan

import (
	"unsafe"

	"capgpu/engine/vk"
)

// setsAtOnce is how many descriptor sets of one layout are made together. They are kept for
// other lists.
const setsAtOnce = 64

// takeSet is a descriptor set of n storage buffers.
func (d *Device) takeSet(n int) (vk.Handle, error) {
	if len(d.sets[n]) == 0 {
		if err := d.moreSets(n); err != nil {
			return 0, err
		}
	}
	last := len(d.sets[n]) - 1
	h := d.sets[n][last]
	d.sets[n] = d.sets[n][:last]
	return h, nil
}

func (d *Device) putSet(n int, h vk.Handle) { d.sets[n] = append(d.sets[n], h) }

func (d *Device) moreSets(n int) error {
	layout, err := d.setLayout(n)
	if err != nil {
		return err
	}
	size := vk.DescriptorPoolSize{Type: vk.DescriptorStorageBuffer, Count: uint32(setsAtOnce * n)}
	pci := vk.DescriptorPoolCreateInfo{Head: vk.Head{SType: vk.TypeDescriptorPoolCreate}, MaxSets: setsAtOnce, Sizes: 1, Size: unsafe.Pointer(&size)}
	pool, err := d.kept("DescriptorPool", unsafe.Pointer(&pci))
	if err != nil {
		return err
	}

	layouts := make([]vk.Handle, setsAtOnce)
	for i := range layouts {
		layouts[i] = layout
	}
	made := make([]vk.Handle, setsAtOnce)
	ai := vk.DescriptorSetAllocateInfo{Head: vk.Head{SType: vk.TypeDescriptorSetAllocate}, Pool: pool, Count: setsAtOnce, Layouts: unsafe.Pointer(unsafe.SliceData(layouts))}
	if err := d.Do("vkAllocateDescriptorSets", d.Dev, uintptr(unsafe.Pointer(&ai)), uintptr(unsafe.Pointer(unsafe.SliceData(made)))); err != nil {
		return err
	}
	d.sets[n] = append(d.sets[n], made...)
	return nil
}

// writeSets has each set name the buffers of its step, and the trap buffer behind them.
func (d *Device) writeSets(steps []step, sets []vk.Handle) {
	count := 0
	for i := range steps {
		count += len(steps[i].bind) + 1
	}
	infos, writes := make([]vk.DescriptorBufferInfo, 0, count), make([]vk.WriteDescriptorSet, len(steps))
	for i := range steps {
		begin := len(infos)
		for _, b := range steps[i].bind {
			infos = append(infos, d.bufferInfo(&b))
		}
		infos = append(infos, vk.DescriptorBufferInfo{Buffer: d.trap.buffer, Size: d.trap.bytes})
		writes[i] = vk.WriteDescriptorSet{
			Head: vk.Head{SType: vk.TypeWriteDescriptorSet}, Set: sets[i], Count: uint32(len(infos) - begin),
			Type: vk.DescriptorStorageBuffer, Buffer: unsafe.Pointer(&infos[begin]),
		}
	}
	if len(writes) > 0 {
		_, _ = d.Call("vkUpdateDescriptorSets", d.Dev, uintptr(len(writes)), uintptr(unsafe.Pointer(&writes[0])), 0, 0) // found ahead
	}
}

func (d *Device) bufferInfo(b *bound) vk.DescriptorBufferInfo {
	switch {
	case b.mem == nil:
		return vk.DescriptorBufferInfo{Buffer: d.void.buffer, Size: d.void.bytes}
	case b.size != 0:
		return vk.DescriptorBufferInfo{Buffer: b.mem.buffer, Off: b.begin, Size: b.size}
	default:
		return vk.DescriptorBufferInfo{Buffer: b.mem.buffer, Off: b.off, Size: b.length}
	}
}
