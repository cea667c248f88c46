package vfio

// Kernel is every system call on vfio's descriptors. Its methods set each argsz
// themselves, repeat what a signal has interrupted, and return the kernel's
// error number as it is (unix.Errno); Error explains it.
//
// A fake embeds Kernel and has the methods that its test needs.
type Kernel interface {
	// Open opens a device node for reading and writing, close-on-exec.
	Open(path string) (fd int, err error)
	Close(fd int) error

	// Calls on a container.
	APIVersion(container int) (int, error)
	HasExtension(container, extension int) (bool, error)
	SetIOMMU(container, kind int) error
	// IOMMUInfo fills b, which begins with an IOMMUInfo: see ReadIOMMU.
	IOMMUInfo(container int, b []byte) error
	MapDMA(container int, m *DMAMap) error
	UnmapDMA(container int, u *DMAUnmap) error

	// Calls on a group.
	GroupStatus(group int) (GroupStatus, error)
	SetContainer(group, container int) error
	UnsetContainer(group int) error
	// DeviceFD opens the device of the group that has this address.
	DeviceFD(group int, address string) (fd int, err error)

	// Calls on a device.
	DeviceInfo(device int) (DeviceInfo, error)
	// RegionInfo fills b, which begins with a RegionInfo: see ReadRegion.
	RegionInfo(device int, index uint32, b []byte) error
	IRQInfo(device int, index uint32) (IRQInfo, error)
	// SetIRQs sends set with one eventfd per vector (-1: none), or none at all.
	// set.Count counts the vectors also where no eventfds go with them.
	SetIRQs(device int, set IRQSet, eventfds []int32) error
	Reset(device int) error

	// Pread and Pwrite reach a region of a device at its offset: configuration space
	// for instance. They are one access of the length of b, or fewer bytes.
	Pread(fd int, b []byte, off int64) (int, error)
	Pwrite(fd int, b []byte, off int64) (int, error)
	// Mmap maps part of a region, shared.
	Mmap(fd int, off int64, bytes int, writable bool) ([]byte, error)
	Munmap(b []byte) error
}
