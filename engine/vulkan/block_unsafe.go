package vulkan

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"capgpu/engine/vk"
)

// block is a buffer over memory of its own.
type block struct {
	buffer, memory vk.Handle
	bytes          uint64
	mapped         []byte // where the host sees it
}

// Wishes of newBlock for memory, each a set of properties, the best first.
var (
	ownMemory  = []uint32{vk.MemoryDeviceLocal}
	readMemory = []uint32{vk.MemoryHostVisibleAndCoherent | vk.MemoryHostCached, vk.MemoryHostVisibleAndCoherent}
	// The trap buffer: a stop is seen by running loops in local memory alone on some devices
	// (docs/gpus.md), and the host writes it.
	watchedMemory = []uint32{vk.MemoryDeviceLocal | vk.MemoryHostVisibleAndCoherent, vk.MemoryHostVisibleAndCoherent}
)

var errNoMemoryType = errors.New("the device has no memory of a kind that is needed")

// newBlock makes a buffer, with memory of the first wish that can be had.
func (d *Device) newBlock(bytes uint64, wishes []uint32) (b block, err error) {
	defer func() {
		if err != nil {
			d.freeBlock(&b)
		}
	}()

	b.bytes = bytes
	ci := vk.BufferCreateInfo{Head: vk.Head{SType: vk.TypeBufferCreateInfo}, Size: bytes, Usage: vk.BufferUsageStorage | vk.BufferUsageTransfer}
	if b.buffer, err = d.create("Buffer", unsafe.Pointer(&ci)); err != nil {
		return b, err
	}
	need := d.requirements(b.buffer)

	err = errNoMemoryType
	mapped := false
	for _, wish := range wishes {
		typ, ok := d.memoryType(need.TypeBits, wish)
		if !ok {
			continue
		}
		ai := vk.MemoryAllocateInfo{Head: vk.Head{SType: vk.TypeMemoryAllocateInfo}, Size: need.Size, MemoryType: typ}
		mapped = wish&vk.MemoryHostVisible != 0
		if err = d.allocate(&ai, &b.memory); err == nil {
			break
		}
	}
	if err != nil {
		return b, err
	}

	if err = d.Do("vkBindBufferMemory", d.Dev, uintptr(b.buffer), uintptr(b.memory), 0); err != nil {
		return b, err
	}
	if mapped {
		var at unsafe.Pointer
		if err = d.Do("vkMapMemory", d.Dev, uintptr(b.memory), 0, vk.WholeSize, 0, uintptr(unsafe.Pointer(&at))); err != nil {
			return b, err
		}
		b.mapped = unsafe.Slice((*byte)(at), bytes)
	}
	return b, nil
}

func (d *Device) allocate(ai *vk.MemoryAllocateInfo, h *vk.Handle) error {
	return d.Do("vkAllocateMemory", d.Dev, uintptr(unsafe.Pointer(ai)), 0, uintptr(unsafe.Pointer(h)))
}

func (d *Device) requirements(buffer vk.Handle) (r vk.MemoryRequirements) {
	_, _ = d.Call("vkGetBufferMemoryRequirements", d.Dev, uintptr(buffer), uintptr(unsafe.Pointer(&r))) // found ahead
	return r
}

// freeBlock gives buffer and memory back.
func (d *Device) freeBlock(b *block) {
	d.destroy("vkDestroyBuffer", b.buffer)
	d.destroy("vkFreeMemory", b.memory)
	*b = block{}
}

// keptBlock is a block that lives as long as the device.
func (d *Device) keptBlock(bytes uint64, wishes []uint32) (block, error) {
	b, err := d.newBlock(bytes, wishes)
	if err == nil {
		kept := b
		d.undo = append(d.undo, func() { d.freeBlock(&kept) })
	}
	return b, err
}

// memoryType is a type of memory among bits that has the wished properties. Without the wish
// for memory that the host sees, one that it does not see is preferred.
func (d *Device) memoryType(bits, wish uint32) (uint32, bool) {
	found, ok := uint32(0), false
	for i := range min(d.memory.Types, 32) {
		flags := d.memory.Type[i].Flags
		if bits&(1<<i) == 0 || flags&wish != wish {
			continue
		}
		better := flags&vk.MemoryHostVisible == 0 && wish&vk.MemoryHostVisible == 0
		if !ok || better && d.memory.Type[found].Flags&vk.MemoryHostVisible != 0 {
			found, ok = i, true
		}
	}
	return found, ok
}

// word is a word of a mapped block. The device may write it at any time.
func (b *block) word(off int) *uint32 {
	_ = b.mapped[off : off+4]
	return (*uint32)(unsafe.Pointer(&b.mapped[off]))
}

func (b *block) load(off int) uint32 { return atomic.LoadUint32(b.word(off)) }

// store is one plain store: sync/atomic would lock the bus, and the memory may be a device's.
// The processor may keep it back until the caller unlocks a mutex or enters the library.
//
//go:noinline
func (b *block) store(off int, v uint32) { *b.word(off) = v }

// budget is the memory of the device's heaps, by what this process and others use.
type budget struct {
	known bool
	vk.MemoryBudget
}

// free is how much of a heap of size bytes is free.
func (b *budget) free(heap int, size uint64) uint64 {
	if !b.known {
		return size
	}
	return min(b.Budget[heap]-min(b.Usage[heap], b.Budget[heap]), size)
}

// memoryOf asks for the kinds of memory, and where the device can tell for their budgets.
func (d *Device) memoryOf(physical uintptr, budgets bool) (vk.MemoryProperties, *budget, error) {
	b := &budget{known: budgets}
	m := vk.MemoryProperties2{Head: vk.Head{SType: vk.TypeMemoryProperties2}}
	if budgets {
		b.SType = vk.TypeMemoryBudget
		m.Next = unsafe.Pointer(&b.MemoryBudget)
	}
	_, err := d.Call("vkGetPhysicalDeviceMemoryProperties2", physical, uintptr(unsafe.Pointer(&m)))
	return m.MemoryProperties, b, err
}
