// Package vfio is the kernel's interface to devices that a user process drives:
// the numbers and structures of <linux/vfio.h>, Linux 6.12, and one call per
// ioctl.
//
// It knows the layout and nothing else: iommu uses the calls for containers, groups and
// mappings, and ddf/vfio for devices. Kernel is the seam: System is the kernel itself, and
// tests put another implementation behind it.
//
// Trust: the kernel is trusted. Still, an answer with an inner structure (a chain of
// capabilities) is walked within bounds, because an offset that is off must be an error here
// and not a wild read.
//
// Parts of versions later than Linux 5.10 (the first with a limit of mappings that can be
// read) are optional to the callers.
package vfio

// vfio's device nodes (Documentation/driver-api/vfio.rst): the container, and one node per
// IOMMU group, named by its number.
const (
	Dir       = "/dev/vfio"
	Container = Dir + "/vfio"
)

// APIVersion is VFIO_API_VERSION.
const APIVersion = 0

// Extensions, for CheckExtension and SetIOMMU.
const (
	Type1IOMMU   = 1 // VFIO_TYPE1_IOMMU
	Type1v2IOMMU = 3 // VFIO_TYPE1v2_IOMMU: an unmap never splits a mapping
	NoIOMMU      = 8 // VFIO_NOIOMMU_IOMMU: no isolation at all
	UnmapAll     = 9 // VFIO_UNMAP_ALL: DMAUnmapAll works; since Linux 5.12
)

// DMAEntries is the kernel's own limit of mappings in one container: parameter
// dma_entry_limit of vfio_iommu_type1 (U16_MAX; drivers/vfio/vfio_iommu_type1.c).
const DMAEntries = 65535
