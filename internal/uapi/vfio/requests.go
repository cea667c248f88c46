package vfio

// Request is the number of an ioctl. All are _IO(';', 100+n): the size of what
// they take is in its argsz, not in the number.
type Request uintptr

const base Request = ';'<<8 | 100 // VFIO_TYPE, VFIO_BASE

const (
	// Requests of a container.
	GetAPIVersion  = base + 0  // VFIO_GET_API_VERSION
	CheckExtension = base + 1  // VFIO_CHECK_EXTENSION
	SetIOMMU       = base + 2  // VFIO_SET_IOMMU
	IOMMUGetInfo   = base + 12 // VFIO_IOMMU_GET_INFO
	IOMMUMapDMA    = base + 13 // VFIO_IOMMU_MAP_DMA
	IOMMUUnmapDMA  = base + 14 // VFIO_IOMMU_UNMAP_DMA

	// Requests of a group.
	GroupGetStatus      = base + 3 // VFIO_GROUP_GET_STATUS
	GroupSetContainer   = base + 4 // VFIO_GROUP_SET_CONTAINER
	GroupUnsetContainer = base + 5 // VFIO_GROUP_UNSET_CONTAINER
	GroupGetDeviceFD    = base + 6 // VFIO_GROUP_GET_DEVICE_FD

	// Requests of a device.
	DeviceGetInfo       = base + 7  // VFIO_DEVICE_GET_INFO
	DeviceGetRegionInfo = base + 8  // VFIO_DEVICE_GET_REGION_INFO
	DeviceGetIRQInfo    = base + 9  // VFIO_DEVICE_GET_IRQ_INFO
	DeviceSetIRQs       = base + 10 // VFIO_DEVICE_SET_IRQS
	DeviceResetNow      = base + 11 // VFIO_DEVICE_RESET
)
