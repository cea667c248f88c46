package vfio

import (
	"encoding/binary"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System is the kernel of this machine.
type System struct {
	// call stands in for the ioctl in tests; nil: the real one.
	call func(fd int, req Request, arg unsafe.Pointer, number int) (int, unix.Errno)
}

var _ Kernel = System{}

// ioctl passes the address arg, or number where arg is nil.
func (s System) ioctl(fd int, req Request, arg unsafe.Pointer, number int) (int, error) {
	for {
		n, errno := s.once(fd, req, arg, number)
		if errno == 0 {
			return n, nil
		}
		if errno != unix.EINTR {
			return -1, errno
		}
	}
}

func (s System) once(fd int, req Request, arg unsafe.Pointer, number int) (int, unix.Errno) {
	var r uintptr
	var errno unix.Errno
	switch {
	case s.call != nil:
		return s.call(fd, req, arg, number)
	case arg != nil:
		r, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(arg))
	default:
		r, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(number))
	}
	return int(r), errno
}

// number makes an ioctl that takes a number, or nothing.
func (s System) number(fd int, req Request, n int) (int, error) { return s.ioctl(fd, req, nil, n) }

// pointer makes an ioctl that takes the address of something.
func (s System) pointer(fd int, req Request, arg unsafe.Pointer) (int, error) {
	return s.ioctl(fd, req, arg, 0)
}

func (System) Open(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// Close is never repeated: on Linux the descriptor is gone also after EINTR.
func (System) Close(fd int) error {
	if err := unix.Close(fd); err != unix.EINTR {
		return err
	}
	return nil
}

func (s System) APIVersion(container int) (int, error) {
	return s.number(container, GetAPIVersion, 0)
}

func (s System) HasExtension(container, extension int) (bool, error) {
	n, err := s.number(container, CheckExtension, extension)
	return n > 0, err
}

func (s System) SetIOMMU(container, kind int) error {
	_, err := s.number(container, SetIOMMU, kind)
	return err
}

// filled makes an ioctl that fills b, a structure that starts with its argsz and
// has what is asked for at word 2.
func (s System) filled(fd int, req Request, b []byte, index uint32) error {
	if len(b) < infoBytes {
		return unix.EINVAL
	}
	clear(b)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint32(b[8:], index)
	_, err := s.pointer(fd, req, unsafe.Pointer(unsafe.SliceData(b)))
	return err
}

func (s System) IOMMUInfo(container int, b []byte) error {
	return s.filled(container, IOMMUGetInfo, b, 0)
}

func (s System) MapDMA(container int, m *DMAMap) error {
	m.Argsz = uint32(unsafe.Sizeof(*m))
	_, err := s.pointer(container, IOMMUMapDMA, unsafe.Pointer(m))
	return err
}

func (s System) UnmapDMA(container int, u *DMAUnmap) error {
	u.Argsz = uint32(unsafe.Sizeof(*u))
	_, err := s.pointer(container, IOMMUUnmapDMA, unsafe.Pointer(u))
	return err
}

func (s System) GroupStatus(group int) (GroupStatus, error) {
	var st GroupStatus
	st.Argsz = uint32(unsafe.Sizeof(st))
	_, err := s.pointer(group, GroupGetStatus, unsafe.Pointer(&st))
	return st, err
}

func (s System) SetContainer(group, container int) error {
	fd := int32(container)
	_, err := s.pointer(group, GroupSetContainer, unsafe.Pointer(&fd))
	return err
}

func (s System) UnsetContainer(group int) error {
	_, err := s.number(group, GroupUnsetContainer, 0)
	return err
}

// DeviceFD: the descriptor is close-on-exec (drivers/vfio/group.c,
// vfio_device_open_file).
func (s System) DeviceFD(group int, address string) (int, error) {
	name, err := unix.ByteSliceFromString(address)
	if err != nil {
		return -1, err
	}
	return s.pointer(group, GroupGetDeviceFD, unsafe.Pointer(&name[0]))
}

func (s System) DeviceInfo(device int) (DeviceInfo, error) {
	var info DeviceInfo
	info.Argsz = uint32(unsafe.Sizeof(info))
	_, err := s.pointer(device, DeviceGetInfo, unsafe.Pointer(&info))
	return info, err
}

func (s System) RegionInfo(device int, index uint32, b []byte) error {
	return s.filled(device, DeviceGetRegionInfo, b, index)
}

func (s System) IRQInfo(device int, index uint32) (IRQInfo, error) {
	info := IRQInfo{Index: index}
	info.Argsz = uint32(unsafe.Sizeof(info))
	_, err := s.pointer(device, DeviceGetIRQInfo, unsafe.Pointer(&info))
	return info, err
}

func (s System) SetIRQs(device int, set IRQSet, eventfds []int32) error {
	return s.list(device, DeviceSetIRQs, []uint32{0, set.Flags, set.Index, set.Start, set.Count}, eventfds)
}

// list makes an ioctl that takes a head of words, argsz the first, and
// descriptors behind it.
func (s System) list(fd int, req Request, head []uint32, fds []int32) error {
	words := slices.Grow(head, len(fds))
	for _, fd := range fds {
		words = append(words, uint32(fd))
	}
	words[0] = uint32(4 * len(words))
	_, err := s.pointer(fd, req, unsafe.Pointer(&words[0]))
	return err
}

func (s System) Reset(device int) error {
	_, err := s.number(device, DeviceResetNow, 0)
	return err
}

func (System) Pread(fd int, b []byte, off int64) (int, error) {
	for {
		n, err := unix.Pread(fd, b, off)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (System) Pwrite(fd int, b []byte, off int64) (int, error) {
	for {
		n, err := unix.Pwrite(fd, b, off)
		if err != unix.EINTR {
			return n, err
		}
	}
}

func (System) Mmap(fd int, off int64, bytes int, writable bool) ([]byte, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	return unix.Mmap(fd, off, bytes, prot, unix.MAP_SHARED)
}

func (System) Munmap(b []byte) error { return unix.Munmap(b) }

// Address is where b lies in this process, for DMAMap.Vaddr. b is a mapping, not
// memory of the Go heap.
func Address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
