package vulkan

import "unsafe"

// Numbers and layouts of vulkan_core.h, header version 239 (Vulkan 1.3). Handles
// are 64 bits wide on every platform that Go's purego reaches.
type handle = uint64

const (
	typeApplicationInfo          = 0
	typeInstanceCreateInfo       = 1
	typeDeviceQueueCreateInfo    = 2
	typeDeviceCreateInfo         = 3
	typeSubmitInfo               = 4
	typeMemoryAllocateInfo       = 5
	typeFenceCreateInfo          = 8
	typeBufferCreateInfo         = 12
	typeShaderModuleCreateInfo   = 16
	typeShaderStageCreateInfo    = 18
	typeComputePipelineCreate    = 29
	typePipelineLayoutCreate     = 30
	typeDescriptorLayoutCreate   = 32
	typeDescriptorPoolCreate     = 33
	typeDescriptorSetAllocate    = 34
	typeWriteDescriptorSet       = 35
	typeCommandPoolCreate        = 39
	typeCommandBufferAllocate    = 40
	typeCommandBufferBegin       = 42
	typeMemoryBarrier            = 46
	typeVulkan11Features         = 49
	typeVulkan12Features         = 51
	typeFeatures2                = 1000059000
	typeProperties2              = 1000059001
	typeSubgroupProperties       = 1000094000
	typeDriverProperties         = 1000196000
	typeAtomicFloatFeatures      = 1000260000
	apiVersion12                 = 1<<22 | 2<<12
	resultTimeout                = 2
	deviceTypeCPU                = 4
	bufferUsageStorage           = 0x20
	memoryHostVisibleAndCoherent = 0x2 | 0x4
	queueCompute                 = 0x2
	descriptorStorageBuffer      = 7
	shaderStageCompute           = 0x20
	bindPointCompute             = 1
	stageComputeShader           = 0x800
	stageHost                    = 0x4000
	accessShaderRead             = 0x20
	accessShaderWrite            = 0x40
	accessHostRead               = 0x2000
	accessHostWrite              = 0x4000
	commandBufferOneTimeSubmit   = 1
)

type head struct {
	sType uint32
	next  unsafe.Pointer
}

type applicationInfo struct {
	head
	name          unsafe.Pointer
	version       uint32
	engine        unsafe.Pointer
	engineVersion uint32
	api           uint32
}

type instanceCreateInfo struct {
	head
	flags      uint32
	app        unsafe.Pointer
	layers     uint32
	layerNames unsafe.Pointer
	exts       uint32
	extNames   unsafe.Pointer
}

type deviceQueueCreateInfo struct {
	head
	flags      uint32
	family     uint32
	count      uint32
	priorities unsafe.Pointer
}

type deviceCreateInfo struct {
	head
	flags      uint32
	queues     uint32
	queueInfos unsafe.Pointer
	layers     uint32
	layerNames unsafe.Pointer
	exts       uint32
	extNames   unsafe.Pointer
	features   unsafe.Pointer
}

// features2 is VkPhysicalDeviceFeatures2; the indices of its flags count
// VkBool32s from the start of VkPhysicalDeviceFeatures.
type features2 struct {
	head
	flags [55]uint32
}

const (
	featRobustBufferAccess = 0
	featFloat64            = 40
	featInt64              = 41
)

// vulkan11Features is VkPhysicalDeviceVulkan11Features.
type vulkan11Features struct {
	head
	flags [12]uint32
}

const feat11Storage16 = 0

// vulkan12Features is VkPhysicalDeviceVulkan12Features.
type vulkan12Features struct {
	head
	flags [47]uint32
}

const feat12Storage8 = 2

// atomicFloatFeatures is VkPhysicalDeviceShaderAtomicFloatFeaturesEXT.
type atomicFloatFeatures struct {
	head
	flags [12]uint32
}

const featAtomicBufferF32Add = 1

// properties2 is VkPhysicalDeviceProperties2. Only a few of the device's properties
// are read, by their offset.
type properties2 struct {
	head
	props [824]byte
	_     [0]uint64
}

const (
	propType                = 16
	propName                = 20 // 256 bytes
	propLimits              = 296
	propMaxStorageRange     = propLimits + 28
	propMaxPushConstants    = propLimits + 32
	propMaxSharedMemorySize = propLimits + 216
)

type subgroupProperties struct {
	head
	size   uint32
	stages uint32
	ops    uint32
	quad   uint32
}

type driverProperties struct {
	head
	id          uint32
	name        [256]byte
	info        [256]byte
	conformance [4]byte
}

type extensionProperties struct {
	name    [256]byte
	version uint32
}

type queueFamilyProperties struct {
	flags       uint32
	count       uint32
	stampBits   uint32
	granularity [3]uint32
}

type memoryProperties struct {
	types uint32
	typ   [32]struct{ flags, heap uint32 }
	heaps uint32
	heap  [16]struct {
		size  uint64
		flags uint32
	}
}

type memoryRequirements struct {
	size      uint64
	alignment uint64
	typeBits  uint32
}

type memoryAllocateInfo struct {
	head
	size uint64
	typ  uint32
}

type bufferCreateInfo struct {
	head
	flags    uint32
	size     uint64
	usage    uint32
	sharing  uint32
	families uint32
	family   unsafe.Pointer
}

type shaderModuleCreateInfo struct {
	head
	flags uint32
	size  uint64
	code  unsafe.Pointer
}

type specializationMapEntry struct {
	id   uint32
	off  uint32
	size uint64
}

type specializationInfo struct {
	count   uint32
	entries unsafe.Pointer
	size    uint64
	data    unsafe.Pointer
}

type shaderStageCreateInfo struct {
	head
	flags  uint32
	stage  uint32
	module handle
	name   unsafe.Pointer
	spec   unsafe.Pointer
}

type computePipelineCreateInfo struct {
	head
	flags     uint32
	stage     shaderStageCreateInfo
	layout    handle
	base      handle
	baseIndex int32
}

type pushConstantRange struct{ stages, off, size uint32 }

type pipelineLayoutCreateInfo struct {
	head
	flags  uint32
	sets   uint32
	layout unsafe.Pointer
	ranges uint32
	rang   unsafe.Pointer
}

type descriptorSetLayoutBinding struct {
	binding  uint32
	typ      uint32
	count    uint32
	stages   uint32
	samplers unsafe.Pointer
}

type descriptorSetLayoutCreateInfo struct {
	head
	flags    uint32
	count    uint32
	bindings unsafe.Pointer
}

type descriptorPoolSize struct{ typ, count uint32 }

type descriptorPoolCreateInfo struct {
	head
	flags   uint32
	maxSets uint32
	sizes   uint32
	size    unsafe.Pointer
}

type descriptorSetAllocateInfo struct {
	head
	pool    handle
	count   uint32
	layouts unsafe.Pointer
}

type descriptorBufferInfo struct{ buffer, off, size uint64 }

type writeDescriptorSet struct {
	head
	set     handle
	binding uint32
	element uint32
	count   uint32
	typ     uint32
	image   unsafe.Pointer
	buffer  unsafe.Pointer
	texel   unsafe.Pointer
}

type commandPoolCreateInfo struct {
	head
	flags  uint32
	family uint32
}

type commandBufferAllocateInfo struct {
	head
	pool  handle
	level uint32
	count uint32
}

type commandBufferBeginInfo struct {
	head
	flags       uint32
	inheritance unsafe.Pointer
}

type memoryBarrier struct {
	head
	src, dst uint32
}

type submitInfo struct {
	head
	waits        uint32
	wait         unsafe.Pointer
	waitStages   unsafe.Pointer
	commands     uint32
	command      unsafe.Pointer
	signals      uint32
	signalHandle unsafe.Pointer
}

type fenceCreateInfo struct {
	head
	flags uint32
}
