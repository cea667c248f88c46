package vulkan

import (
	"unsafe"

	"capgpu/engine/vk"
	"capgpu/program"
)

// features are those that a device is opened with: robust access, and all that an admitted
// program may use. Addresses of buffers are not among them.
type features struct {
	base    vk.Features2
	f11     vk.Vulkan11Features
	f12     vk.Vulkan12Features
	atomics vk.AtomicFloatFeatures
	fault   vk.FaultFeatures
}

// askFeatures asks which there are.
func (d *Device) askFeatures(p uintptr, f *facts, sub vk.SubgroupProperties) error {
	var have features
	var chain unsafe.Pointer
	link := func(h *vk.Head, typ uint32) { h.SType, h.Next, chain = typ, chain, unsafe.Pointer(h) }
	link(&have.f12.Head, vk.TypeVulkan12Features)
	link(&have.f11.Head, vk.TypeVulkan11Features)
	if f.extensions[vk.AtomicFloat] {
		link(&have.atomics.Head, vk.TypeAtomicFloatFeatures)
	}
	if f.extensions[vk.DeviceFault] {
		link(&have.fault.Head, vk.TypeFaultFeatures)
	}
	have.base.Head = vk.Head{SType: vk.TypeFeatures2, Next: chain}
	if _, err := d.Call("vkGetPhysicalDeviceFeatures2", p, uintptr(unsafe.Pointer(&have.base))); err != nil {
		return err
	}

	var want features
	take := func(to, from []uint32, places ...int) (all bool) {
		all = true
		for _, i := range places {
			to[i] = from[i]
			all = all && from[i] != 0
		}
		return all
	}
	base := func(places ...int) bool { return take(want.base.Flags[:], have.base.Flags[:], places...) }
	f11 := func(places ...int) bool { return take(want.f11.Flags[:], have.f11.Flags[:], places...) }
	f12 := func(places ...int) bool { return take(want.f12.Flags[:], have.f12.Flags[:], places...) }
	atomics := func(places ...int) bool { return take(want.atomics.Flags[:], have.atomics.Flags[:], places...) }

	f.robust = base(vk.FeatRobustBufferAccess)
	f.timeline = f12(vk.Feat12TimelineSemaphore)
	f.storage8 = f12(vk.Feat12Storage8)
	f11(vk.Feat11VariablePointers, vk.Feat11AllPointers)
	f12(vk.Feat12ScalarLayout, vk.Feat12SubgroupExtendedTypes, vk.Feat12MemoryModel, vk.Feat12MemoryModelDevice, vk.Feat12BroadcastDynamicID)
	want.fault.Fault = have.fault.Fault

	const compute = vk.ShaderStageCompute
	ops := sub.Ops
	if sub.Stages&compute == 0 {
		ops = 0
	}
	for _, x := range []struct {
		feature program.Feature
		there   bool
	}{
		{program.FeatureSubgroupVote, ops&3 == 3}, // basic and vote
		{program.FeatureSubgroupArith, ops&4 != 0},
		{program.FeatureSubgroupBallot, ops&8 != 0},
		{program.FeatureSubgroupShuffle, ops&0x30 == 0x30}, // and relative
		{program.FeatureSubgroupCluster, ops&0x40 != 0},
		{program.FeatureSubgroupQuad, ops&0x80 != 0},
		{program.FeatureF16Storage, f11(vk.Feat11Storage16)},
		{program.FeatureI8Storage, f.storage8},
		{program.FeatureF64, base(vk.FeatFloat64)},
		{program.FeatureI64, base(vk.FeatInt64)},
		{program.FeatureI64Atomics, f12(vk.Feat12BufferInt64Atomics, vk.Feat12SharedInt64Atomics)},
		{program.FeatureF32Atomics, atomics(vk.FeatAtomicBufferF32, vk.FeatAtomicBufferF32Add, vk.FeatAtomicSharedF32, vk.FeatAtomicSharedF32Add)},
		{program.FeatureF16, f12(vk.Feat12Float16)},
		{program.FeatureI8, f12(vk.Feat12Int8)},
		{program.FeatureI16, base(vk.FeatInt16)},
	} {
		if x.there {
			f.Features = append(f.Features, x.feature)
		}
	}
	f.wanted = want
	return nil
}
