package vulkan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/host"
	"capgpu/gpu/backend/engine/wire"
	"capgpu/program"
)

const (
	vk12         = vk.APIVersion12
	externalHost = vk.ExternalMemoryHost
)

// Options choose a device.
type Options struct {
	// PCIAddress is the device's: "0000:01:00.0". Empty: the first that will do.
	PCIAddress string
	// Local has a device that works on the host's memory offer some of it as its own.
	Local bool
}

// Open opens a device. The library reads the environment that the process was started with:
// VK_DRIVER_FILES names the driver's manifest, LP_NUM_THREADS=0 has lavapipe compute on one
// thread. The error says what the device lacks.
func Open(o Options) (host.Device, error) {
	d, err := open(o)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func open(o Options) (d *Device, err error) {
	d = newDevice()
	defer func() {
		if err != nil {
			d.undoAll()
			d = nil
		}
	}()

	if d.Loader, err = vk.Open(); err != nil {
		return d, err
	}
	if err = d.openInstance(); err != nil {
		return d, err
	}
	physical, all, err := d.look()
	if err != nil {
		return d, err
	}
	i, err := choose(all, o.PCIAddress)
	if err != nil {
		return d, err
	}

	d.physical, d.facts = physical[i], all[i]
	if !d.discrete && !o.Local {
		d.LocalBytes = 0
	}
	for _, step := range []func() error{d.openDevice, d.find, d.openTrap, d.openTurns, d.openKernels, d.selfTest} {
		if err = step(); err != nil {
			return d, fmt.Errorf("open %s: %w", d.Name, err)
		}
	}
	return d, nil
}

func (d *Device) openInstance() error {
	app := vk.ApplicationInfo{Head: vk.Head{SType: vk.TypeApplicationInfo}, Name: vk.CString("capgpu"), API: vk.APIVersion12}
	ci := vk.InstanceCreateInfo{Head: vk.Head{SType: vk.TypeInstanceCreateInfo}, App: unsafe.Pointer(&app)}
	if err := d.Do("vkCreateInstance", uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&d.Instance))); err != nil {
		return fmt.Errorf("no Vulkan driver could be opened: %w", err)
	}
	destroy, err := d.Proc("vkDestroyInstance")
	d.undo = append(d.undo, func() { destroy.Call(d.Instance, 0) })
	return err
}

// look asks each physical device what it is.
func (d *Device) look() ([]uintptr, []facts, error) {
	var found [32]uintptr
	count := uint32(len(found))
	err := d.Do("vkEnumeratePhysicalDevices", d.Instance, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&found[0])))
	var r *vk.Result
	if err != nil && !(errors.As(err, &r) && r.Code > 0) { // VK_INCOMPLETE: there are more
		return nil, nil, err
	}

	physical := found[:min(count, uint32(len(found)))]
	all := make([]facts, len(physical))
	for i, p := range physical {
		if err := d.ask(p, &all[i]); err != nil {
			return nil, nil, err
		}
	}
	return physical, all, nil
}

func (d *Device) ask(p uintptr, f *facts) error {
	if err := d.askExtensions(p, f); err != nil {
		return err
	}

	var chain unsafe.Pointer
	link := func(h *vk.Head, typ uint32) { h.SType, h.Next, chain = typ, chain, unsafe.Pointer(h) }
	driver, sub, external, bus := vk.DriverProperties{}, vk.SubgroupProperties{}, vk.ExternalHostProperties{}, vk.PCIBusInfo{}
	link(&driver.Head, vk.TypeDriverProperties)
	link(&sub.Head, vk.TypeSubgroupProperties)
	if f.extensions[vk.ExternalMemoryHost] {
		link(&external.Head, vk.TypeExternalHostProperties)
	}
	if f.extensions[vk.PCIBusInfoName] {
		link(&bus.Head, vk.TypePCIBusInfo)
	}
	props := vk.Properties2{Head: vk.Head{SType: vk.TypeProperties2, Next: chain}}
	if _, err := d.Call("vkGetPhysicalDeviceProperties2", p, uintptr(unsafe.Pointer(&props))); err != nil {
		return err
	}

	u32 := func(off int) uint32 { return binary.LittleEndian.Uint32(props.Props[off:]) }
	dim := func(off int) program.Dim3 { return program.Dim3{X: u32(off), Y: u32(off + 4), Z: u32(off + 8)} }
	f.api = u32(0)
	f.Name = vk.GoString(props.Props[vk.PropName : vk.PropName+256])
	f.Driver = strings.TrimSpace(vk.GoString(driver.Name[:]) + " " + vk.GoString(driver.Info[:]))
	f.Vendor, f.Model = u32(vk.PropVendor), u32(vk.PropModel)
	if f.extensions[vk.PCIBusInfoName] {
		f.PCIAddress = fmt.Sprintf("%04x:%02x:%02x.%x", bus.Domain, bus.Bus, bus.Device, bus.Function)
	}
	f.discrete = u32(vk.PropType) == vk.DeviceTypeDiscrete || u32(vk.PropType) == vk.DeviceTypeVirtual
	f.software = u32(vk.PropType) == vk.DeviceTypeCPU
	f.hostAlign = external.Alignment
	f.period = float64(math.Float32frombits(u32(vk.PropTimestampPeriod)))

	f.MaxThreadsPerBlock, f.MaxBlock, f.MaxGrid = u32(vk.PropMaxInvocations), dim(vk.PropMaxGroupSize), dim(vk.PropMaxGroups)
	f.MaxSharedBytes = u32(vk.PropMaxSharedMemorySize)
	f.MaxBindings = min(u32(vk.PropMaxStageBuffers), u32(vk.PropMaxSetBuffers), wire.MaxBindings+1)
	f.MaxPushBytes = u32(vk.PropMaxPushConstants)
	f.SubgroupSize = sub.Size
	f.OffsetAlign = uint32(max(binary.LittleEndian.Uint64(props.Props[vk.PropStorageAlignment:]), 4))
	f.MaxBindingBytes = uint64(u32(vk.PropMaxStorageRange))

	if err := d.askFamilies(p, f); err != nil {
		return err
	}
	if err := d.askFeatures(p, f, sub); err != nil {
		return err
	}
	return d.askMemory(p, f)
}

func (d *Device) askExtensions(p uintptr, f *facts) error {
	f.extensions = map[string]bool{}
	var count uint32
	if err := d.Do("vkEnumerateDeviceExtensionProperties", p, 0, uintptr(unsafe.Pointer(&count)), 0); err != nil {
		return err
	}
	all := make([]vk.ExtensionProperties, count+1)
	if err := d.Do("vkEnumerateDeviceExtensionProperties", p, 0, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&all[0]))); err != nil {
		return err
	}
	for i := range all[:count] {
		f.extensions[vk.GoString(all[i].Name[:])] = true
	}
	return nil
}

// askFamilies takes a family without graphics if there is one: faults of programs are told
// there alone on some drivers (docs/gpus.md).
func (d *Device) askFamilies(p uintptr, f *facts) error {
	var families [32]vk.QueueFamilyProperties
	count := uint32(len(families))
	if _, err := d.Call("vkGetPhysicalDeviceQueueFamilyProperties", p, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&families[0]))); err != nil {
		return err
	}

	f.family = -1
	for i, q := range families[:min(count, uint32(len(families)))] {
		first := f.family < 0 || q.Flags&vk.QueueGraphics == 0 && families[f.family].Flags&vk.QueueGraphics != 0
		if q.Flags&vk.QueueCompute != 0 && q.Count > 0 && first {
			f.family, f.queues, f.stampBits = i, q.Count, q.StampBits
		}
	}
	return nil
}

// askMemory finds the memory of the device's own, and how much of it there is for tenants.
func (d *Device) askMemory(p uintptr, f *facts) error {
	memory, budget, err := d.memoryOf(p, f.extensions[vk.MemoryBudgetName])
	if err != nil {
		return err
	}
	for i, h := range memory.Heap[:min(memory.Heaps, 16)] {
		if h.Flags&vk.MemoryDeviceLocal != 0 {
			f.LocalBytes = max(f.LocalBytes, budget.free(i, h.Size))
		}
	}
	return nil
}

// openDevice opens the device with one queue for runs and, where the family has more, one
// that clears memory meanwhile.
func (d *Device) openDevice() error {
	var chain unsafe.Pointer
	link := func(h *vk.Head, typ uint32) { h.SType, h.Next, chain = typ, chain, unsafe.Pointer(h) }
	w := d.wanted
	link(&w.f12.Head, vk.TypeVulkan12Features)
	link(&w.f11.Head, vk.TypeVulkan11Features)
	names := []string{vk.ExternalMemoryHost}
	for _, name := range []string{vk.MemoryBudgetName, vk.AtomicFloat, vk.DeviceFault} {
		if d.extensions[name] {
			names = append(names, name)
		}
	}
	if d.extensions[vk.AtomicFloat] {
		link(&w.atomics.Head, vk.TypeAtomicFloatFeatures)
	}
	if d.extensions[vk.DeviceFault] {
		link(&w.fault.Head, vk.TypeFaultFeatures)
	}
	w.base.Head = vk.Head{SType: vk.TypeFeatures2, Next: chain}

	var cnames []unsafe.Pointer
	for _, name := range names {
		cnames = append(cnames, vk.CString(name))
	}
	priorities := []float32{1, 1}
	queue := vk.DeviceQueueCreateInfo{
		Head: vk.Head{SType: vk.TypeDeviceQueueCreateInfo}, Family: uint32(d.family),
		Count: min(d.queues, 2), Priorities: unsafe.Pointer(unsafe.SliceData(priorities)),
	}
	ci := vk.DeviceCreateInfo{
		Head:   vk.Head{SType: vk.TypeDeviceCreateInfo, Next: unsafe.Pointer(&w.base)},
		Queues: 1, QueueInfos: unsafe.Pointer(&queue),
		Extensions: uint32(len(cnames)), ExtensionNames: unsafe.Pointer(unsafe.SliceData(cnames)),
	}
	if err := d.Do("vkCreateDevice", d.physical, uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&d.Dev))); err != nil {
		return err
	}

	destroy, err := d.Proc("vkDestroyDevice")
	if err != nil {
		return err
	}
	d.undo = append(d.undo, func() { destroy.Call(d.Dev, 0) })
	if d.memory, _, err = d.memoryOf(d.physical, false); err != nil {
		return err
	}
	for i, q := range []*uintptr{&d.queue, &d.clearing} {
		if _, err := d.Call("vkGetDeviceQueue", d.Dev, uintptr(d.family), uintptr(min(i, int(queue.Count)-1)), uintptr(unsafe.Pointer(q))); err != nil {
			return err
		}
	}
	return nil
}

// called are the functions that are found before anything runs: Wait and Stop call them
// beside the other goroutine.
var called = []string{
	"vkCreateBuffer", "vkDestroyBuffer", "vkGetBufferMemoryRequirements", "vkAllocateMemory", "vkFreeMemory", "vkBindBufferMemory", "vkMapMemory",
	"vkGetMemoryHostPointerPropertiesEXT", "vkGetPhysicalDeviceMemoryProperties2",
	"vkCreateShaderModule", "vkDestroyShaderModule", "vkCreateComputePipelines", "vkDestroyPipeline", "vkCreatePipelineLayout", "vkDestroyPipelineLayout",
	"vkCreateDescriptorSetLayout", "vkDestroyDescriptorSetLayout", "vkCreateDescriptorPool", "vkDestroyDescriptorPool", "vkAllocateDescriptorSets", "vkUpdateDescriptorSets",
	"vkCreateCommandPool", "vkDestroyCommandPool", "vkAllocateCommandBuffers", "vkBeginCommandBuffer", "vkEndCommandBuffer",
	"vkCreateSemaphore", "vkDestroySemaphore", "vkCreateFence", "vkDestroyFence", "vkResetFences", "vkWaitForFences", "vkCreateQueryPool", "vkDestroyQueryPool",
	"vkWaitSemaphores", "vkCmdFillBuffer",
}

// find finds the functions of the device.
func (d *Device) find() error {
	if d.extensions[vk.DeviceFault] && d.wanted.fault.Fault != 0 {
		if err := d.Find("vkGetDeviceFaultInfoEXT"); err != nil {
			return err
		}
	}
	if err := d.Find(called...); err != nil {
		return err
	}

	for _, f := range []struct {
		name string
		proc *vk.Proc
	}{
		{"vkCmdBindPipeline", &d.calls.bindPipeline}, {"vkCmdBindDescriptorSets", &d.calls.bindSets}, {"vkCmdPushConstants", &d.calls.push},
		{"vkCmdDispatch", &d.calls.dispatch}, {"vkCmdPipelineBarrier", &d.calls.barrier},
		{"vkCmdResetQueryPool", &d.calls.resetQueries}, {"vkCmdWriteTimestamp", &d.calls.writeStamp},
		{"vkCmdCopyQueryPoolResults", &d.calls.copyQueries},
		{"vkQueueSubmit", &d.calls.submit}, {"vkGetSemaphoreCounterValue", &d.calls.counter},
	} {
		var err error
		if *f.proc, err = d.Proc(f.name); err != nil {
			return err
		}
	}
	return nil
}
