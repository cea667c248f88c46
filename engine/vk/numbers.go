package vk

// Numbers of vulkan_core.h, header version 239 (Vulkan 1.3).

// Values of VkStructureType.
const (
	TypeApplicationInfo         = 0
	TypeInstanceCreateInfo      = 1
	TypeDeviceQueueCreateInfo   = 2
	TypeDeviceCreateInfo        = 3
	TypeSubmitInfo              = 4
	TypeMemoryAllocateInfo      = 5
	TypeFenceCreateInfo         = 8
	TypeSemaphoreCreateInfo     = 9
	TypeQueryPoolCreateInfo     = 11
	TypeBufferCreateInfo        = 12
	TypeShaderModuleCreateInfo  = 16
	TypeShaderStageCreateInfo   = 18
	TypeComputePipelineCreate   = 29
	TypePipelineLayoutCreate    = 30
	TypeDescriptorLayoutCreate  = 32
	TypeDescriptorPoolCreate    = 33
	TypeDescriptorSetAllocate   = 34
	TypeWriteDescriptorSet      = 35
	TypeCommandPoolCreate       = 39
	TypeCommandBufferAllocate   = 40
	TypeCommandBufferBegin      = 42
	TypeMemoryBarrier           = 46
	TypeVulkan11Features        = 49
	TypeVulkan12Features        = 51
	TypeFeatures2               = 1000059000
	TypeProperties2             = 1000059001
	TypeMemoryProperties2       = 1000059006
	TypeExternalMemoryBuffer    = 1000072000
	TypeSubgroupProperties      = 1000094000
	TypeImportHostPointer       = 1000178000
	TypeHostPointerProperties   = 1000178001
	TypeExternalHostProperties  = 1000178002
	TypeDriverProperties        = 1000196000
	TypeSemaphoreTypeCreateInfo = 1000207002
	TypeTimelineSubmitInfo      = 1000207003
	TypeSemaphoreWaitInfo       = 1000207004
	TypePCIBusInfo              = 1000212000
	TypeMemoryBudget            = 1000237000
	TypeAtomicFloatFeatures     = 1000260000
	TypeFaultFeatures           = 1000341000
	TypeFaultCounts             = 1000341001
	TypeFaultInfo               = 1000341002
)

// APIVersion12 is Vulkan 1.2.
const APIVersion12 = 1<<22 | 2<<12

// Bits and values, by the enumeration of each.
const (
	DeviceTypeDiscrete = 2
	DeviceTypeVirtual  = 3
	DeviceTypeCPU      = 4

	QueueGraphics = 0x1
	QueueCompute  = 0x2

	MemoryDeviceLocal            = 0x1
	MemoryHostVisible            = 0x2
	MemoryHostCoherent           = 0x4
	MemoryHostCached             = 0x8
	MemoryHostVisibleAndCoherent = MemoryHostVisible | MemoryHostCoherent

	BufferUsageTransfer = 0x1 | 0x2 // source and destination
	BufferUsageStorage  = 0x20

	DescriptorStorageBuffer = 7
	ShaderStageCompute      = 0x20
	BindPointCompute        = 1

	StageBottomOfPipe  = 0x2000
	StageComputeShader = 0x800
	StageTransfer      = 0x1000
	StageHost          = 0x4000
	StageAllCommands   = 0x10000

	AccessShaderRead    = 0x20
	AccessShaderWrite   = 0x40
	AccessTransferWrite = 0x1000
	AccessHostRead      = 0x2000
	AccessHostWrite     = 0x4000
	AccessMemoryRead    = 0x8000
	AccessMemoryWrite   = 0x10000

	CommandPoolResetBuffers      = 0x2
	CommandBufferOneTimeSubmit   = 0x1
	CommandBufferSimultaneousUse = 0x4

	SemaphoreTypeTimeline = 1
	QueryTypeTimestamp    = 2
	QueryResult64         = 0x1
	QueryResultWait       = 0x2
	HostAllocation        = 0x80 // of VkExternalMemoryHandleTypeFlagBits
	WholeSize             = 1<<64 - 1
)

// Flags of Features2, by their place.
const (
	FeatRobustBufferAccess = 0
	FeatFloat64            = 40
	FeatInt64              = 41
	FeatInt16              = 42
)

// Flags of Vulkan11Features.
const (
	Feat11Storage16        = 0
	Feat11VariablePointers = 7 // of storage buffers
	Feat11AllPointers      = 8
)

// Flags of Vulkan12Features.
const (
	Feat12Storage8              = 2
	Feat12BufferInt64Atomics    = 5
	Feat12SharedInt64Atomics    = 6
	Feat12Float16               = 7
	Feat12Int8                  = 8
	Feat12ScalarLayout          = 31
	Feat12SubgroupExtendedTypes = 34
	Feat12TimelineSemaphore     = 37
	Feat12MemoryModel           = 41
	Feat12MemoryModelDevice     = 42
	Feat12BroadcastDynamicID    = 46
)

// Flags of AtomicFloatFeatures.
const (
	FeatAtomicBufferF32    = 0
	FeatAtomicBufferF32Add = 1
	FeatAtomicSharedF32    = 4
	FeatAtomicSharedF32Add = 5
)

// Offsets in Properties2.Props, which is VkPhysicalDeviceProperties.
const (
	PropVendor              = 8
	PropModel               = 12
	PropType                = 16
	PropName                = 20 // 256 bytes
	PropLimits              = 296
	PropMaxStorageRange     = PropLimits + 28
	PropMaxPushConstants    = PropLimits + 32
	PropMaxStageBuffers     = PropLimits + 76
	PropMaxSetBuffers       = PropLimits + 108
	PropMaxSharedMemorySize = PropLimits + 216
	PropMaxGroups           = PropLimits + 220 // u32[3]
	PropMaxInvocations      = PropLimits + 232
	PropMaxGroupSize        = PropLimits + 236 // u32[3]
	PropStorageAlignment    = PropLimits + 328 // u64
	PropTimestampPeriod     = PropLimits + 424 // f32, nanoseconds
)

// Extensions.
const (
	AtomicFloat        = "VK_EXT_shader_atomic_float"
	ExternalMemoryHost = "VK_EXT_external_memory_host"
	MemoryBudgetName   = "VK_EXT_memory_budget"
	PCIBusInfoName     = "VK_EXT_pci_bus_info"
	DeviceFault        = "VK_EXT_device_fault"
)
