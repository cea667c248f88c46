package vulkan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"capgpu/engine/vk"
)

// device is an open CPU device with one queue. It lives as long as its process, and
// so do the objects that it keeps.
type device struct {
	*vk.Loader
	info     Device
	physical uintptr
	queue    uintptr
	family   uint32
	memory   vk.MemoryProperties
	kept     map[[32]byte]built
}

// openDevice opens the first CPU device of the environment's drivers, with every
// feature that it offers and with robust buffer access.
func openDevice() (*device, error) {
	l, err := vk.Open()
	if err != nil {
		return nil, err
	}

	app := vk.ApplicationInfo{Head: vk.Head{SType: vk.TypeApplicationInfo}, Name: vk.CString("capgpu-bench"), API: vk.APIVersion12}
	ci := vk.InstanceCreateInfo{Head: vk.Head{SType: vk.TypeInstanceCreateInfo}, App: unsafe.Pointer(&app)}
	if err := l.Do("vkCreateInstance", uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&l.Instance))); err != nil {
		return nil, err
	}

	d := &device{Loader: l, kept: map[[32]byte]built{}}
	var found [16]uintptr
	count := uint32(len(found))
	if err := l.Do("vkEnumeratePhysicalDevices", l.Instance, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&found[0]))); err != nil {
		return nil, err
	}

	for _, p := range found[:min(count, uint32(len(found)))] {
		if d.info, err = describe(l, p); err != nil {
			return nil, err
		}
		if d.info.CPU {
			d.physical = p
			return d, d.open()
		}
	}

	return nil, errors.New("no CPU device among the Vulkan drivers (Debian: mesa-vulkan-drivers)")
}

func describe(l *vk.Loader, p uintptr) (Device, error) {
	driver := vk.DriverProperties{Head: vk.Head{SType: vk.TypeDriverProperties}}
	sub := vk.SubgroupProperties{Head: vk.Head{SType: vk.TypeSubgroupProperties, Next: unsafe.Pointer(&driver)}}
	props := vk.Properties2{Head: vk.Head{SType: vk.TypeProperties2, Next: unsafe.Pointer(&sub)}}
	if _, err := l.Call("vkGetPhysicalDeviceProperties2", p, uintptr(unsafe.Pointer(&props))); err != nil {
		return Device{}, err
	}

	u32 := func(off int) uint32 { return binary.LittleEndian.Uint32(props.Props[off:]) }
	return Device{
		Name:         vk.GoString(props.Props[vk.PropName : vk.PropName+256]),
		Driver:       vk.GoString(driver.Info[:]),
		CPU:          u32(vk.PropType) == vk.DeviceTypeCPU,
		SubgroupSize: sub.Size,
		SubgroupOps:  SubgroupOps(sub.Ops),
		SharedBytes:  u32(vk.PropMaxSharedMemorySize),
		BindingBytes: u32(vk.PropMaxStorageRange),
		InlineBytes:  u32(vk.PropMaxPushConstants),
	}, nil
}

func (d *device) hasExtension(name string) (bool, error) {
	var count uint32
	if err := d.Do("vkEnumerateDeviceExtensionProperties", d.physical, 0, uintptr(unsafe.Pointer(&count)), 0); err != nil {
		return false, err
	}
	exts := make([]vk.ExtensionProperties, count+1)
	if err := d.Do("vkEnumerateDeviceExtensionProperties", d.physical, 0, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&exts[0]))); err != nil {
		return false, err
	}
	for i := range exts[:count] {
		if vk.GoString(exts[i].Name[:]) == name {
			return true, nil
		}
	}
	return false, nil
}

func (d *device) open() error {
	var families [8]vk.QueueFamilyProperties
	count := uint32(len(families))
	if _, err := d.Call("vkGetPhysicalDeviceQueueFamilyProperties", d.physical, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&families[0]))); err != nil {
		return err
	}

	d.family = count
	for i, f := range families[:count] {
		if f.Flags&vk.QueueCompute != 0 {
			d.family = uint32(i)
			break
		}
	}

	if d.family == count {
		return fmt.Errorf("%s has no queue for compute", d.info.Name)
	}

	var names []unsafe.Pointer
	atomics := vk.AtomicFloatFeatures{Head: vk.Head{SType: vk.TypeAtomicFloatFeatures}}
	f12 := vk.Vulkan12Features{Head: vk.Head{SType: vk.TypeVulkan12Features}}
	f11 := vk.Vulkan11Features{Head: vk.Head{SType: vk.TypeVulkan11Features, Next: unsafe.Pointer(&f12)}}
	feats := vk.Features2{Head: vk.Head{SType: vk.TypeFeatures2, Next: unsafe.Pointer(&f11)}}
	hasAtomics, err := d.hasExtension(vk.AtomicFloat)
	if err != nil {
		return err
	}
	if hasAtomics {
		f12.Next = unsafe.Pointer(&atomics)
		names = append(names, vk.CString(vk.AtomicFloat))
	}
	if _, err := d.Call("vkGetPhysicalDeviceFeatures2", d.physical, uintptr(unsafe.Pointer(&feats))); err != nil {
		return err
	}
	if feats.Flags[vk.FeatRobustBufferAccess] == 0 {
		return fmt.Errorf("%s has no robust buffer access", d.info.Name)
	}

	d.info.Float64 = feats.Flags[vk.FeatFloat64] != 0
	d.info.Int64 = feats.Flags[vk.FeatInt64] != 0
	d.info.Storage16 = f11.Flags[vk.Feat11Storage16] != 0
	d.info.Storage8 = f12.Flags[vk.Feat12Storage8] != 0
	d.info.FloatAtomics = atomics.Flags[vk.FeatAtomicBufferF32Add] != 0

	priority := float32(1)
	queue := vk.DeviceQueueCreateInfo{Head: vk.Head{SType: vk.TypeDeviceQueueCreateInfo}, Family: d.family, Count: 1, Priorities: unsafe.Pointer(&priority)}
	ci := vk.DeviceCreateInfo{
		Head:   vk.Head{SType: vk.TypeDeviceCreateInfo, Next: unsafe.Pointer(&feats)},
		Queues: 1, QueueInfos: unsafe.Pointer(&queue),
		Extensions: uint32(len(names)), ExtensionNames: unsafe.Pointer(unsafe.SliceData(names)),
	}

	if err := d.Do("vkCreateDevice", d.physical, uintptr(unsafe.Pointer(&ci)), 0, uintptr(unsafe.Pointer(&d.Dev))); err != nil {
		return err
	}
	if _, err := d.Call("vkGetDeviceQueue", d.Dev, uintptr(d.family), 0, uintptr(unsafe.Pointer(&d.queue))); err != nil {
		return err
	}

	_, err = d.Call("vkGetPhysicalDeviceMemoryProperties", d.physical, uintptr(unsafe.Pointer(&d.memory)))
	return err
}
