// Package iommutest measures a domain on hardware against the bare ioctls.
package iommutest

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"capgpu/internal/benchtest"
	"capgpu/internal/shm"
	"capgpu/internal/uapi/vfio"
	"capgpu/iommu"
)

// BufferBytes is the size of the buffer that is mapped.
const BufferBytes = iommu.HugeBytes

// The ioctls move on as a Space does, and so need as many new page tables; not
// where the Space is.
const (
	rawStart = 64 << 30
	rawStep  = 2 * BufferBytes
	rawSpan  = 64 << 30
)

// Measured is the result of Compare: a domain's map and unmap against the two ioctls. Each
// side maps one buffer in its turn: longer slices let more of the machine's other work in
// between.
type Measured struct {
	benchtest.Figure
	Huge bool // the buffer is a huge page
}

func (m Measured) String() string {
	pages := "4 KiB pages"
	if m.Huge {
		pages = "one huge page"
	}
	return fmt.Sprintf("map+unmap of 2 MiB (%s): %v", pages, m.Figure)
}

// Compare maps and unmaps a pooled buffer of 2 MiB in a domain of the group, as the
// device-manager does it: the address comes from a Space, and observer (nil: none) gets the
// operations. It does the same with the ioctls alone, in the same container, pairs times.
func Compare(group int, observer iommu.Observer, pairs int) (m Measured, err error) {
	peer := &Ioctls{}
	domain, err := iommu.OpenType1(group, iommu.Options{Kernel: peer, Observer: observer})
	if err != nil {
		return m, err
	}

	defer func() { err = errors.Join(err, domain.Close()) }()
	host, huge, free, err := Buffer()
	if err != nil {
		return m, err
	}

	defer func() { err = errors.Join(err, free()) }()
	m.Huge = huge

	space := iommu.NewSpace(domain.Ranges())
	ours := func() error { return throughDomain(domain, space, host) }
	raw := func() error { return peer.MapUnmap(host) }
	m.Figure, err = benchtest.Compare(pairs, benchtest.Side{Do: ours}, benchtest.Side{Do: raw})
	return m, err
}

// Buffer is a buffer of a pool, mapped here: a huge page where there is one.
func Buffer() (host []byte, huge bool, free func() error, err error) {
	memory, err := shm.CreateHuge("iommu-bench", BufferBytes)
	if err != nil {
		return nil, false, nil, err
	}
	host, err = memory.Map(0, BufferBytes, true)
	if err != nil {
		return nil, false, nil, errors.Join(err, memory.Close())
	}
	free = func() error { return errors.Join(shm.Unmap(host), memory.Close()) }
	return host, memory.Granule() == iommu.HugeBytes, free, nil
}

func throughDomain(d iommu.Domain, s *iommu.Space, host []byte) error {
	at, ok := s.Take(uint64(len(host)))
	if !ok {
		return errors.New("no address is free")
	}
	defer s.Give(at)
	if err := d.Map(at, host, iommu.ReadWrite); err != nil {
		return err
	}
	return d.Unmap(at, uint64(len(host)))
}

// Ioctls is the kernel of the one domain that is opened with it, and remembers its
// container, to use it without the domain.
type Ioctls struct {
	vfio.System
	container int
	next      uint64
}

// SetIOMMU implements vfio.Kernel.
func (s *Ioctls) SetIOMMU(container, kind int) error {
	s.container = container
	return s.System.SetIOMMU(container, kind)
}

// MapUnmap maps and unmaps, and checks, as a C program would.
func (s *Ioctls) MapUnmap(host []byte) error {
	at := rawStart + s.next
	s.next = (s.next + rawStep) % rawSpan
	m := vfio.DMAMap{Flags: vfio.DMAMapRead | vfio.DMAMapWrite, Vaddr: vfio.Address(host), IOVA: at, Size: uint64(len(host))}
	m.Argsz = uint32(unsafe.Sizeof(m))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.container), uintptr(vfio.IOMMUMapDMA), uintptr(unsafe.Pointer(&m))); errno != 0 {
		return vfio.Error("map", errno)
	}

	u := vfio.DMAUnmap{IOVA: at, Size: m.Size}
	u.Argsz = uint32(unsafe.Sizeof(u))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.container), uintptr(vfio.IOMMUUnmapDMA), uintptr(unsafe.Pointer(&u))); errno != 0 {
		return vfio.Error("unmap", errno)
	}
	if u.Size != m.Size {
		return fmt.Errorf("%d bytes were unmapped, not %d", u.Size, m.Size)
	}

	return nil
}
