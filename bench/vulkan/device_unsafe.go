package vulkan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

const atomicFloatExtension = "VK_EXT_shader_atomic_float"

// device is an open CPU device with one queue. It lives as long as its process, and
// so do the objects that it keeps.
type device struct {
	*loader
	info     Device
	physical uintptr
	dev      uintptr
	queue    uintptr
	family   uint32
	memory   memoryProperties
	kept     map[[32]byte]built
}

// openDevice opens the first CPU device of the environment's drivers, with every
// feature that it offers and with robust buffer access.
func openDevice() (*device, error) {
	l, err := openLoader()
	if err != nil {
		return nil, err
	}

	app := applicationInfo{head: head{sType: typeApplicationInfo}, name: cString("capgpu-bench"), api: apiVersion12}
	ci := instanceCreateInfo{head: head{sType: typeInstanceCreateInfo}, app: unsafe.Pointer(&app)}
	if err := l.do("vkCreateInstance", uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&l.instance))); err != nil {
		return nil, err
	}

	d := &device{loader: l, kept: map[[32]byte]built{}}
	var found [16]uintptr
	count := uint32(len(found))
	if err := l.do("vkEnumeratePhysicalDevices", l.instance, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&found[0]))); err != nil {
		return nil, err
	}

	for _, p := range found[:min(count, uint32(len(found)))] {
		if d.info, err = l.describe(p); err != nil {
			return nil, err
		}
		if d.info.CPU {
			d.physical = p
			return d, d.open()
		}
	}

	return nil, errors.New("no CPU device among the Vulkan drivers (Debian: mesa-vulkan-drivers)")
}

func (l *loader) describe(p uintptr) (Device, error) {
	driver := driverProperties{head: head{sType: typeDriverProperties}}
	sub := subgroupProperties{head: head{sType: typeSubgroupProperties, next: unsafe.Pointer(&driver)}}
	props := properties2{head: head{sType: typeProperties2, next: unsafe.Pointer(&sub)}}
	if _, err := l.call("vkGetPhysicalDeviceProperties2", p, uintptr(unsafe.Pointer(&props))); err != nil {
		return Device{}, err
	}

	u32 := func(off int) uint32 { return binary.LittleEndian.Uint32(props.props[off:]) }
	return Device{
		Name:         goString(props.props[propName : propName+256]),
		Driver:       goString(driver.info[:]),
		CPU:          u32(propType) == deviceTypeCPU,
		SubgroupSize: sub.size,
		SubgroupOps:  SubgroupOps(sub.ops),
		SharedBytes:  u32(propMaxSharedMemorySize),
		BindingBytes: u32(propMaxStorageRange),
		InlineBytes:  u32(propMaxPushConstants),
	}, nil
}

func (d *device) hasExtension(name string) (bool, error) {
	var count uint32
	if err := d.do("vkEnumerateDeviceExtensionProperties", d.physical, 0, uintptr(unsafe.Pointer(&count)), 0); err != nil {
		return false, err
	}
	exts := make([]extensionProperties, count+1)
	if err := d.do("vkEnumerateDeviceExtensionProperties", d.physical, 0, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&exts[0]))); err != nil {
		return false, err
	}
	for i := range exts[:count] {
		if goString(exts[i].name[:]) == name {
			return true, nil
		}
	}
	return false, nil
}

func (d *device) open() error {
	var families [8]queueFamilyProperties
	count := uint32(len(families))
	if _, err := d.call("vkGetPhysicalDeviceQueueFamilyProperties", d.physical, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&families[0]))); err != nil {
		return err
	}

	d.family = count
	for i, f := range families[:count] {
		if f.flags&queueCompute != 0 {
			d.family = uint32(i)
			break
		}
	}

	if d.family == count {
		return fmt.Errorf("%s has no queue for compute", d.info.Name)
	}

	var names []unsafe.Pointer
	atomics := atomicFloatFeatures{head: head{sType: typeAtomicFloatFeatures}}
	f12 := vulkan12Features{head: head{sType: typeVulkan12Features}}
	f11 := vulkan11Features{head: head{sType: typeVulkan11Features, next: unsafe.Pointer(&f12)}}
	feats := features2{head: head{sType: typeFeatures2, next: unsafe.Pointer(&f11)}}
	hasAtomics, err := d.hasExtension(atomicFloatExtension)
	if err != nil {
		return err
	}
	if hasAtomics {
		f12.next = unsafe.Pointer(&atomics)
		names = append(names, cString(atomicFloatExtension))
	}
	if _, err := d.call("vkGetPhysicalDeviceFeatures2", d.physical, uintptr(unsafe.Pointer(&feats))); err != nil {
		return err
	}
	if feats.flags[featRobustBufferAccess] == 0 {
		return fmt.Errorf("%s has no robust buffer access", d.info.Name)
	}

	d.info.Float64 = feats.flags[featFloat64] != 0
	d.info.Int64 = feats.flags[featInt64] != 0
	d.info.Storage16 = f11.flags[feat11Storage16] != 0
	d.info.Storage8 = f12.flags[feat12Storage8] != 0
	d.info.FloatAtomics = atomics.flags[featAtomicBufferF32Add] != 0

	priority := float32(1)
	queue := deviceQueueCreateInfo{head: head{sType: typeDeviceQueueCreateInfo}, family: d.family, count: 1, priorities: unsafe.Pointer(&priority)}
	ci := deviceCreateInfo{
		head:   head{sType: typeDeviceCreateInfo, next: unsafe.Pointer(&feats)},
		queues: 1, queueInfos: unsafe.Pointer(&queue),
		exts: uint32(len(names)), extNames: unsafe.Pointer(unsafe.SliceData(names)),
	}

	if err := d.do("vkCreateDevice", d.physical, uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&d.dev))); err != nil {
		return err
	}
	if _, err := d.call("vkGetDeviceQueue", d.dev, uintptr(d.family), 0, uintptr(unsafe.Pointer(&d.queue))); err != nil {
		return err
	}

	_, err = d.call("vkGetPhysicalDeviceMemoryProperties", d.physical, uintptr(unsafe.Pointer(&d.memory)))
	return err
}
