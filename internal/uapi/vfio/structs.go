package vfio

// GroupStatus is struct vfio_group_status.
type GroupStatus struct {
	Argsz uint32
	Flags uint32 // Group…
}

// VFIO_GROUP_FLAGS_…
const (
	GroupViable       = 1 << 0 // every device of the group is bound to vfio or to no driver
	GroupContainerSet = 1 << 1
)

// DeviceInfo is struct vfio_device_info. Pad is there since Linux 6.6; an older
// kernel leaves it alone.
type DeviceInfo struct {
	Argsz      uint32
	Flags      uint32 // Device…
	NumRegions uint32
	NumIRQs    uint32
	CapOffset  uint32
	Pad        uint32
}

// VFIO_DEVICE_FLAGS_…
const (
	DeviceReset = 1 << 0 // Reset works
	DevicePCI   = 1 << 1
	DeviceCaps  = 1 << 7
)

// RegionInfo is struct vfio_region_info.
type RegionInfo struct {
	Argsz     uint32
	Flags     uint32 // Region…
	Index     uint32
	CapOffset uint32
	Size      uint64 // bytes; 0: there is no such region
	Offset    uint64 // of the region in the device's descriptor
}

// VFIO_REGION_INFO_FLAG_…
const (
	RegionRead  = 1 << 0
	RegionWrite = 1 << 1
	RegionMmap  = 1 << 2
	RegionCaps  = 1 << 3
)

// Capabilities of a region: VFIO_REGION_INFO_CAP_…
const (
	RegionCapSparseMmap   = 1 // only the areas named can be mapped
	RegionCapMSIXMappable = 3 // the page of the MSI-X table can be mapped, too
)

// MmapArea is struct vfio_region_sparse_mmap_area.
type MmapArea struct {
	Offset uint64 // in the region
	Size   uint64 // bytes
}

// Region indexes of a PCI device (enum of VFIO_PCI_…_REGION_INDEX).
const (
	RegionBAR0   = 0 // to RegionBAR0 + 5
	RegionROM    = 6
	RegionConfig = 7
	RegionVGA    = 8
	NumRegions   = 9 // those with an index of their own
)

// IRQInfo is struct vfio_irq_info.
type IRQInfo struct {
	Argsz uint32
	Flags uint32 // IRQ…
	Index uint32
	Count uint32 // vectors; 0: the device has none of this kind
}

// VFIO_IRQ_INFO_…
const (
	IRQEventFD    = 1 << 0
	IRQMaskable   = 1 << 1
	IRQAutomasked = 1 << 2
	IRQNoResize   = 1 << 3 // all vectors are armed in one call
)

// Interrupt indexes of a PCI device (enum of VFIO_PCI_…_IRQ_INDEX).
const (
	IRQIndexINTx = 0
	IRQIndexMSI  = 1
	IRQIndexMSIX = 2
	IRQIndexErr  = 3 // an uncorrectable error was reported (AER)
	IRQIndexReq  = 4 // the host asks for the device back
	NumIRQs      = 5
)

// IRQSet is the head of struct vfio_irq_set; with IRQDataEventFD one int32 per
// vector follows it.
type IRQSet struct {
	Argsz uint32
	Flags uint32 // one IRQData… and one IRQAction…
	Index uint32
	Start uint32
	Count uint32
}

// VFIO_IRQ_SET_…
const (
	IRQDataNone      = 1 << 0
	IRQDataEventFD   = 1 << 2
	IRQActionMask    = 1 << 3
	IRQActionUnmask  = 1 << 4
	IRQActionTrigger = 1 << 5
)

// IOMMUInfo is struct vfio_iommu_type1_info. Pad is there since Linux 6.6.
type IOMMUInfo struct {
	Argsz       uint32
	Flags       uint32 // IOMMUInfo…
	IOVAPgsizes uint64 // bit mask of page sizes
	CapOffset   uint32
	Pad         uint32
}

// VFIO_IOMMU_INFO_…
const (
	IOMMUInfoPgsizes = 1 << 0
	IOMMUInfoCaps    = 1 << 1
)

// Capabilities of a container: VFIO_IOMMU_TYPE1_INFO_…
const (
	IOMMUCapIOVARange = 1
	IOMMUCapMigration = 2
	IOMMUCapDMAAvail  = 3 // since Linux 5.10
)

// CapHeader is struct vfio_info_cap_header.
type CapHeader struct {
	ID      uint16
	Version uint16
	Next    uint32 // offset of the next one from the start of the whole answer; 0: the last
}

// IOVARange is struct vfio_iova_range. End is the last address, not one behind.
type IOVARange struct {
	Start uint64
	End   uint64
}

// DMAMap is struct vfio_iommu_type1_dma_map.
type DMAMap struct {
	Argsz uint32
	Flags uint32 // DMAMap…
	Vaddr uint64 // of the calling process
	IOVA  uint64
	Size  uint64 // bytes
}

// VFIO_DMA_MAP_FLAG_…: what the device may do.
const (
	DMAMapRead  = 1 << 0
	DMAMapWrite = 1 << 1
)

// DMAUnmap is struct vfio_iommu_type1_dma_unmap without dirty bitmap. The kernel
// writes how much it has unmapped into Size.
type DMAUnmap struct {
	Argsz uint32
	Flags uint32 // DMAUnmap…
	IOVA  uint64
	Size  uint64 // bytes
}

// DMAUnmapAll is VFIO_DMA_UNMAP_FLAG_ALL: every mapping; IOVA and Size are 0. It
// needs the extension UnmapAll.
const DMAUnmapAll = 1 << 1
