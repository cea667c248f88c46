package vulkan

import (
	"fmt"
	"os"
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpuerr"
)

// memory is a piece of memory that programs reach: the host's, imported, or the device's.
type memory struct {
	d *Device
	block
	local bool
}

// roundBytes is what sizes of local memory are rounded up to.
const roundBytes = 256

// Import implements host.Device.
func (d *Device) Import(mem []byte) (host.Memory, error) {
	page := uint64(os.Getpagesize())
	at := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) == 0 || uint64(len(mem))%page != 0 || uint64(uintptr(at))%page != 0 {
		return nil, gpuerr.New(gpuerr.Internal, "import memory: %d bytes are not whole pages", len(mem))
	}

	m := &memory{d: d, block: block{bytes: uint64(len(mem))}}
	if err := m.importFrom(at); err != nil {
		d.freeBlock(&m.block)
		return nil, d.failed("import memory", m.bytes, err)
	}
	return m, nil
}

func (m *memory) importFrom(at unsafe.Pointer) (err error) {
	d := m.d
	props := vk.HostPointerProperties{Head: vk.Head{SType: vk.TypeHostPointerProperties}}
	if err := d.Do("vkGetMemoryHostPointerPropertiesEXT", d.Dev, vk.HostAllocation, uintptr(at), uintptr(unsafe.Pointer(&props))); err != nil {
		return err
	}

	external := vk.ExternalMemoryBuffer{Head: vk.Head{SType: vk.TypeExternalMemoryBuffer}, Handles: vk.HostAllocation}
	ci := vk.BufferCreateInfo{
		Head: vk.Head{SType: vk.TypeBufferCreateInfo, Next: unsafe.Pointer(&external)},
		Size: m.bytes, Usage: vk.BufferUsageStorage | vk.BufferUsageTransfer,
	}
	if m.buffer, err = d.create("Buffer", unsafe.Pointer(&ci)); err != nil {
		return err
	}

	bits := props.TypeBits & d.requirements(m.buffer).TypeBits
	const coherent = vk.MemoryHostVisibleAndCoherent
	typ, ok := d.memoryType(bits, coherent|vk.MemoryHostCached)
	if !ok {
		typ, ok = d.memoryType(bits, coherent)
	}
	if !ok {
		return errNoMemoryType
	}
	host := vk.ImportHostPointer{Head: vk.Head{SType: vk.TypeImportHostPointer}, Handle: vk.HostAllocation, Pointer: at}
	ai := vk.MemoryAllocateInfo{Head: vk.Head{SType: vk.TypeMemoryAllocateInfo, Next: unsafe.Pointer(&host)}, Size: m.bytes, MemoryType: typ}
	if err := d.allocate(&ai, &m.block.memory); err != nil {
		return err
	}
	return d.Do("vkBindBufferMemory", d.Dev, uintptr(m.buffer), uintptr(m.block.memory), 0)
}

// Alloc implements host.Device.
func (d *Device) Alloc(bytes uint64) (host.Memory, error) {
	m, err := d.alloc(bytes)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (d *Device) alloc(bytes uint64) (*memory, error) {
	size := (bytes + roundBytes - 1) / roundBytes * roundBytes
	if bytes == 0 || size < bytes {
		return nil, gpuerr.New(gpuerr.Internal, "allocate local memory: %d bytes", bytes)
	}
	if free, err := d.localFree(); err != nil || size > free {
		if err == nil {
			err = gpuerr.Refused("deviceMemory", size, free)
		}
		return nil, fmt.Errorf("allocate local memory: %w", err)
	}

	b, err := d.newBlock(size, ownMemory)
	if err != nil {
		return nil, d.failed("allocate local memory", size, err)
	}
	m := &memory{d: d, block: b, local: true}
	if err := d.zero(&m.block); err != nil {
		d.freeBlock(&m.block)
		return nil, d.failed("clear new local memory", size, err)
	}
	return m, nil
}

// localFree is how much local memory there is now. A driver in software would look at the host's,
// in a file that a sealed process cannot open: it offers what it offered.
func (d *Device) localFree() (uint64, error) {
	if d.software {
		return d.LocalBytes, nil
	}
	now, budget, err := d.memoryOf(d.physical, d.extensions[vk.MemoryBudgetName])
	if err != nil {
		return 0, err
	}
	typ, ok := d.memoryType(^uint32(0), vk.MemoryDeviceLocal)
	if !ok {
		return 0, nil
	}
	heap := now.Type[typ].Heap
	return budget.free(int(heap), now.Heap[heap].Size), nil
}

// Free implements host.Memory.
func (m *memory) Free() error {
	if m.local {
		if err := m.d.zero(&m.block); err != nil {
			return m.d.failed("clear local memory", m.bytes, err)
		}
	}
	m.d.freeBlock(&m.block)
	return nil
}

// clearing fills memory with zeros. Where the family has a second queue this does not wait
// for runs.
type clearing struct {
	commands uintptr
	fence    vk.Handle
}

// openClearing makes what zero needs.
func (d *Device) openClearing() (err error) {
	if d.clear.commands, err = d.newCommands(); err != nil {
		return err
	}
	fci := vk.FenceCreateInfo{Head: vk.Head{SType: vk.TypeFenceCreateInfo}}
	d.clear.fence, err = d.kept("Fence", unsafe.Pointer(&fci))
	return err
}

// zero makes a block zero, and returns when it is.
func (d *Device) zero(b *block) error {
	return d.once(d.clearing, func(commands uintptr) error {
		_, err := d.Call("vkCmdFillBuffer", commands, uintptr(b.buffer), 0, uintptr(b.bytes), 0)
		return err
	})
}
