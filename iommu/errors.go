package iommu

import (
	"fmt"
	"slices"

	"capgpu/gpuerr"
)

// checkMap refuses what no back end can map.
func checkMap(ranges []Range, pageBytes uint64, iova IOVA, host []byte, access Access) error {
	bytes := uint64(len(host))
	switch {
	case access == 0 || access&^ReadWrite != 0:
		return gpuerr.New(gpuerr.Invalid, "access: %d is neither reading nor writing", access)
	case bytes == 0 || bytes%pageBytes != 0 || uint64(iova)%pageBytes != 0:
		return gpuerr.New(gpuerr.Invalid, "map: %#x+%#x is not whole pages of %d bytes", iova, bytes, pageBytes)
	case !slices.ContainsFunc(ranges, func(r Range) bool {
		return iova >= r.Start && iova < r.End && bytes <= uint64(r.End-iova)
	}):
		return gpuerr.New(gpuerr.Invalid, "map: %#x+%#x lies outside what the IOMMU translates", iova, bytes)
	}
	return nil
}

var errClosed = gpuerr.New(gpuerr.Closed, "the domain is closed")

func errEntries(limit uint64) error {
	err := gpuerr.Refused("iovaEntries", 1, 0)
	err.Msg = fmt.Sprintf("the IOMMU domain holds %d mappings, its most; free some", limit)
	return err
}

func errTaken(iova IOVA, bytes uint64) error {
	return gpuerr.New(gpuerr.Invalid, "map: something is mapped within %#x+%#x already", iova, bytes)
}

func errNotMapped(iova IOVA, asked, was uint64) error {
	return gpuerr.New(gpuerr.Internal, "unmap: asked to unmap %#x bytes at %#x, but %#x were unmapped", asked, iova, was)
}

// lostBy returns the error of every later call of a lost domain.
func lostBy(cause error) *gpuerr.Error {
	return gpuerr.New(gpuerr.DeviceLost, "the IOMMU domain is lost, nothing can be said about what it maps: %v; close the function", cause)
}

// errPinned: the pages of a mapping stay in memory, and the kernel bounds them.
func errPinned(bytes uint64) error {
	err := gpuerr.Refused("hostMemory", bytes, 0)
	err.Msg = "no memory can be pinned: raise RLIMIT_MEMLOCK (LimitMEMLOCK= in the unit), or free some"
	return err
}

// turnOn says how a machine gets its IOMMU to work.
const turnOn = "turn on VT-d or AMD-Vi in the firmware, and boot with intel_iommu=on (AMD's is on by default)"

func errNoContainer(path string, err error) error {
	return gpuerr.New(gpuerr.Unimplemented, "%s is not there (%v): load the modules vfio-pci and vfio_iommu_type1 (modprobe)", path, err)
}
