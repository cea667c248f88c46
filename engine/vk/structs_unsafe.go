package vk

import "unsafe"

// Handle is an object that is no pointer: 64 bits on every platform that purego reaches.
type Handle = uint64

// Head begins most structures: VkBaseInStructure.
type Head struct {
	SType uint32
	Next  unsafe.Pointer
}

// ApplicationInfo is VkApplicationInfo.
type ApplicationInfo struct {
	Head
	Name          unsafe.Pointer
	Version       uint32
	Engine        unsafe.Pointer
	EngineVersion uint32
	API           uint32
}

// InstanceCreateInfo is VkInstanceCreateInfo.
type InstanceCreateInfo struct {
	Head
	Flags          uint32
	App            unsafe.Pointer
	Layers         uint32
	LayerNames     unsafe.Pointer
	Extensions     uint32
	ExtensionNames unsafe.Pointer
}

// DeviceQueueCreateInfo is VkDeviceQueueCreateInfo.
type DeviceQueueCreateInfo struct {
	Head
	Flags      uint32
	Family     uint32
	Count      uint32
	Priorities unsafe.Pointer
}

// DeviceCreateInfo is VkDeviceCreateInfo.
type DeviceCreateInfo struct {
	Head
	Flags          uint32
	Queues         uint32
	QueueInfos     unsafe.Pointer
	Layers         uint32
	LayerNames     unsafe.Pointer
	Extensions     uint32
	ExtensionNames unsafe.Pointer
	Features       unsafe.Pointer
}

// Features2 is VkPhysicalDeviceFeatures2; the indices of its flags count
// VkBool32s from the start of VkPhysicalDeviceFeatures.
type Features2 struct {
	Head
	Flags [55]uint32
}

// Vulkan11Features is VkPhysicalDeviceVulkan11Features.
type Vulkan11Features struct {
	Head
	Flags [12]uint32
}

// Vulkan12Features is VkPhysicalDeviceVulkan12Features.
type Vulkan12Features struct {
	Head
	Flags [47]uint32
}

// AtomicFloatFeatures is VkPhysicalDeviceShaderAtomicFloatFeaturesEXT.
type AtomicFloatFeatures struct {
	Head
	Flags [12]uint32
}

// Properties2 is VkPhysicalDeviceProperties2. Only a few of the device's properties
// are read, by their offset.
type Properties2 struct {
	Head
	Props [824]byte
	_     [0]uint64
}

// SubgroupProperties is VkPhysicalDeviceSubgroupProperties.
type SubgroupProperties struct {
	Head
	Size   uint32
	Stages uint32
	Ops    uint32
	Quad   uint32
}

// DriverProperties is VkPhysicalDeviceDriverProperties.
type DriverProperties struct {
	Head
	ID          uint32
	Name        [256]byte
	Info        [256]byte
	Conformance [4]byte
}

// ExtensionProperties is VkExtensionProperties.
type ExtensionProperties struct {
	Name    [256]byte
	Version uint32
}

// QueueFamilyProperties is VkQueueFamilyProperties.
type QueueFamilyProperties struct {
	Flags       uint32
	Count       uint32
	StampBits   uint32
	Granularity [3]uint32
}

// MemoryProperties is VkPhysicalDeviceMemoryProperties.
type MemoryProperties struct {
	Types uint32
	Type  [32]struct{ Flags, Heap uint32 }
	Heaps uint32
	Heap  [16]struct {
		Size  uint64
		Flags uint32
	}
}

// MemoryRequirements is VkMemoryRequirements.
type MemoryRequirements struct {
	Size      uint64
	Alignment uint64
	TypeBits  uint32
}

// MemoryAllocateInfo is VkMemoryAllocateInfo.
type MemoryAllocateInfo struct {
	Head
	Size       uint64
	MemoryType uint32
}

// BufferCreateInfo is VkBufferCreateInfo.
type BufferCreateInfo struct {
	Head
	Flags    uint32
	Size     uint64
	Usage    uint32
	Sharing  uint32
	Families uint32
	Family   unsafe.Pointer
}

// ShaderModuleCreateInfo is VkShaderModuleCreateInfo.
type ShaderModuleCreateInfo struct {
	Head
	Flags uint32
	Size  uint64
	Code  unsafe.Pointer
}

// SpecializationMapEntry is VkSpecializationMapEntry.
type SpecializationMapEntry struct {
	ID   uint32
	Off  uint32
	Size uint64
}

// SpecializationInfo is VkSpecializationInfo.
type SpecializationInfo struct {
	Count   uint32
	Entries unsafe.Pointer
	Size    uint64
	Data    unsafe.Pointer
}

// ShaderStageCreateInfo is VkPipelineShaderStageCreateInfo.
type ShaderStageCreateInfo struct {
	Head
	Flags  uint32
	Stage  uint32
	Module Handle
	Name   unsafe.Pointer
	Spec   unsafe.Pointer
}

// ComputePipelineCreateInfo is VkComputePipelineCreateInfo.
type ComputePipelineCreateInfo struct {
	Head
	Flags     uint32
	Stage     ShaderStageCreateInfo
	Layout    Handle
	Base      Handle
	BaseIndex int32
}

// PushConstantRange is VkPushConstantRange.
type PushConstantRange struct{ Stages, Off, Size uint32 }

// PipelineLayoutCreateInfo is VkPipelineLayoutCreateInfo.
type PipelineLayoutCreateInfo struct {
	Head
	Flags  uint32
	Sets   uint32
	Layout unsafe.Pointer
	Ranges uint32
	Range  unsafe.Pointer
}

// DescriptorSetLayoutBinding is VkDescriptorSetLayoutBinding.
type DescriptorSetLayoutBinding struct {
	Binding  uint32
	Type     uint32
	Count    uint32
	Stages   uint32
	Samplers unsafe.Pointer
}

// DescriptorSetLayoutCreateInfo is VkDescriptorSetLayoutCreateInfo.
type DescriptorSetLayoutCreateInfo struct {
	Head
	Flags    uint32
	Count    uint32
	Bindings unsafe.Pointer
}

// DescriptorPoolSize is VkDescriptorPoolSize.
type DescriptorPoolSize struct{ Type, Count uint32 }

// DescriptorPoolCreateInfo is VkDescriptorPoolCreateInfo.
type DescriptorPoolCreateInfo struct {
	Head
	Flags   uint32
	MaxSets uint32
	Sizes   uint32
	Size    unsafe.Pointer
}

// DescriptorSetAllocateInfo is VkDescriptorSetAllocateInfo.
type DescriptorSetAllocateInfo struct {
	Head
	Pool    Handle
	Count   uint32
	Layouts unsafe.Pointer
}

// DescriptorBufferInfo is VkDescriptorBufferInfo.
type DescriptorBufferInfo struct{ Buffer, Off, Size uint64 }

// WriteDescriptorSet is VkWriteDescriptorSet.
type WriteDescriptorSet struct {
	Head
	Set     Handle
	Binding uint32
	Element uint32
	Count   uint32
	Type    uint32
	Image   unsafe.Pointer
	Buffer  unsafe.Pointer
	Texel   unsafe.Pointer
}

// CommandPoolCreateInfo is VkCommandPoolCreateInfo.
type CommandPoolCreateInfo struct {
	Head
	Flags  uint32
	Family uint32
}

// CommandBufferAllocateInfo is VkCommandBufferAllocateInfo.
type CommandBufferAllocateInfo struct {
	Head
	Pool  Handle
	Level uint32
	Count uint32
}

// CommandBufferBeginInfo is VkCommandBufferBeginInfo.
type CommandBufferBeginInfo struct {
	Head
	Flags       uint32
	Inheritance unsafe.Pointer
}

// MemoryBarrier is VkMemoryBarrier.
type MemoryBarrier struct {
	Head
	Src, Dst uint32
}

// SubmitInfo is VkSubmitInfo.
type SubmitInfo struct {
	Head
	Waits        uint32
	Wait         unsafe.Pointer
	WaitStages   unsafe.Pointer
	Commands     uint32
	Command      unsafe.Pointer
	Signals      uint32
	SignalHandle unsafe.Pointer
}

// FenceCreateInfo is VkFenceCreateInfo.
type FenceCreateInfo struct {
	Head
	Flags uint32
}

// SemaphoreCreateInfo is VkSemaphoreCreateInfo.
type SemaphoreCreateInfo struct {
	Head
	Flags uint32
}

// SemaphoreTypeCreateInfo is VkSemaphoreTypeCreateInfo.
type SemaphoreTypeCreateInfo struct {
	Head
	Type    uint32
	Initial uint64
}

// TimelineSubmitInfo is VkTimelineSemaphoreSubmitInfo.
type TimelineSubmitInfo struct {
	Head
	Waits        uint32
	WaitValues   unsafe.Pointer
	Signals      uint32
	SignalValues unsafe.Pointer
}

// SemaphoreWaitInfo is VkSemaphoreWaitInfo.
type SemaphoreWaitInfo struct {
	Head
	Flags      uint32
	Count      uint32
	Semaphores unsafe.Pointer
	Values     unsafe.Pointer
}

// QueryPoolCreateInfo is VkQueryPoolCreateInfo.
type QueryPoolCreateInfo struct {
	Head
	Flags      uint32
	Type       uint32
	Count      uint32
	Statistics uint32
}

// ExternalMemoryBuffer is VkExternalMemoryBufferCreateInfo.
type ExternalMemoryBuffer struct {
	Head
	Handles uint32
}

// ImportHostPointer is VkImportMemoryHostPointerInfoEXT.
type ImportHostPointer struct {
	Head
	Handle  uint32
	Pointer unsafe.Pointer
}

// HostPointerProperties is VkMemoryHostPointerPropertiesEXT.
type HostPointerProperties struct {
	Head
	TypeBits uint32
}

// ExternalHostProperties is VkPhysicalDeviceExternalMemoryHostPropertiesEXT.
type ExternalHostProperties struct {
	Head
	Alignment uint64
}

// MemoryProperties2 is VkPhysicalDeviceMemoryProperties2.
type MemoryProperties2 struct {
	Head
	MemoryProperties
}

// MemoryBudget is VkPhysicalDeviceMemoryBudgetPropertiesEXT.
type MemoryBudget struct {
	Head
	Budget [16]uint64
	Usage  [16]uint64
}

// PCIBusInfo is VkPhysicalDevicePCIBusInfoPropertiesEXT.
type PCIBusInfo struct {
	Head
	Domain, Bus, Device, Function uint32
}

// FaultFeatures is VkPhysicalDeviceFaultFeaturesEXT.
type FaultFeatures struct {
	Head
	Fault, VendorBinary uint32
}

// FaultCounts is VkDeviceFaultCountsEXT.
type FaultCounts struct {
	Head
	Addresses, Vendor uint32
	BinaryBytes       uint64
}

// FaultAddress is VkDeviceFaultAddressInfoEXT.
type FaultAddress struct {
	Kind      uint32
	Address   uint64
	Precision uint64
}

// FaultVendor is VkDeviceFaultVendorInfoEXT.
type FaultVendor struct {
	Description [256]byte
	Code, Data  uint64
}

// FaultInfo is VkDeviceFaultInfoEXT.
type FaultInfo struct {
	Head
	Description [256]byte
	Addresses   unsafe.Pointer
	Vendor      unsafe.Pointer
	Binary      unsafe.Pointer
}
