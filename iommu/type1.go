package iommu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/uapi/vfio"
)

// Options say how a domain is opened. The zero value is right outside tests,
// but for Observer.
type Options struct {
	Kernel   vfio.Kernel // nil: vfio.System
	Observer Observer    // may be nil
	Sys      string      // where sysfs is; empty: /sys
	Proc     string      // where procfs is; empty: /proc
	Dev      string      // where vfio's nodes are; empty: vfio.Dir
}

func (o Options) withDefaults() Options {
	if o.Kernel == nil {
		o.Kernel = vfio.System{}
	}
	for _, d := range []struct {
		field *string
		value string
	}{{&o.Sys, "/sys"}, {&o.Proc, "/proc"}, {&o.Dev, vfio.Dir}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	return o
}

// Type1 is the Domain of one IOMMU group, by vfio's type1v2 back end: a container
// with one group in it. It owns the descriptors of both, and of the group's
// devices.
//
//	OpenType1: container → group → SET_CONTAINER → SET_IOMMU   Device: device
//	Close:     device → every mapping → UNSET_CONTAINER → group → container
type Type1 struct {
	options   Options
	container int
	group     int
	attached  bool // set by OpenType1 only
	ranges    []Range
	pageBytes uint64 // mask
	entries   uint64

	seq  atomic.Uint64
	lost atomic.Pointer[gpuerr.Error]
	// spare is the buffer of the last request to the kernel.
	spare atomic.Pointer[requests]

	// mu is held for reading by every call into the kernel and for writing by Close,
	// which so comes last.
	mu sync.RWMutex
	// +checklocks:mu
	closed bool

	devicesMu sync.Mutex
	// +checklocks:devicesMu
	devices []int
}

var _ Domain = (*Type1)(nil)

// requests are the arguments of a call to the kernel.
type requests struct {
	dmaMap vfio.DMAMap
	unmap  vfio.DMAUnmap
}

// request returns a request that no other call uses; it goes back to spare afterwards.
func (t *Type1) request() *requests {
	if r := t.spare.Swap(nil); r != nil {
		return r
	}
	return &requests{}
}

// Device opens a device of the group. The descriptor is t's own: it is closed by
// Close, before the group.
func (t *Type1) Device(address string) (fd int, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.closed {
		return -1, errClosed
	}

	fd, err = t.options.Kernel.DeviceFD(t.group, address)
	switch {
	case err == unix.ENODEV:
		return -1, gpuerr.New(gpuerr.NoDevice, "%s is not bound to vfio in this IOMMU group", address)
	case err != nil:
		return -1, vfio.Error("open "+address, err)
	}

	t.devicesMu.Lock()
	defer t.devicesMu.Unlock()
	t.devices = append(t.devices, fd)
	return fd, nil
}

func (t *Type1) Ranges() []Range   { return slices.Clone(t.ranges) }
func (t *Type1) PageBytes() uint64 { return t.pageBytes }

// Entries is the limit that the kernel reported when the domain was opened: 65,535 unless
// parameter dma_entry_limit of vfio_iommu_type1 differs.
func (t *Type1) Entries() uint64 { return t.entries }

// Map pins host and lets the device reach it.
func (t *Type1) Map(iova IOVA, host []byte, access Access) error {
	if err := checkMap(t.ranges, PageBytes, iova, host, access); err != nil {
		return err
	}

	vaddr, flags := vfio.Address(host), uint32(0)
	if vaddr%PageBytes != 0 {
		return gpuerr.New(gpuerr.Invalid, "map: the memory at %#x does not begin with a page", vaddr)
	}
	if access&Read != 0 {
		flags |= vfio.DMAMapRead
	}
	if access&Write != 0 {
		flags |= vfio.DMAMapWrite
	}

	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.unusableLocked(); err != nil {
		return err
	}

	r := t.request()
	defer t.spare.Store(r)
	r.dmaMap = vfio.DMAMap{Flags: flags, Vaddr: vaddr, IOVA: uint64(iova), Size: uint64(len(host))}
	op := Op{Kind: OpMap, Seq: t.seq.Add(1), IOVA: iova, Bytes: uint64(len(host))}
	return observed(t.options.Observer, op, func() error {
		err := t.options.Kernel.MapDMA(t.container, &r.dmaMap)
		runtime.KeepAlive(host)
		return t.mapError(err, op)
	})
}

// mapError explains why the kernel did not map. The kernel has released all pages that it had
// pinned.
func (t *Type1) mapError(err error, op Op) error {
	switch err {
	case nil:
		return nil
	case unix.ENOSPC:
		return errEntries(t.entries)
	case unix.EEXIST:
		return errTaken(op.IOVA, op.Bytes)
	case unix.ENOMEM:
		return errPinned(op.Bytes)
	}
	return vfio.Error(fmt.Sprintf("map %#x+%#x", op.IOVA, op.Bytes), err)
}

// Unmap takes a whole mapping back.
func (t *Type1) Unmap(iova IOVA, bytes uint64) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.unusableLocked(); err != nil {
		return err
	}

	r := t.request()
	defer t.spare.Store(r)
	r.unmap = vfio.DMAUnmap{IOVA: uint64(iova), Size: bytes}
	op := Op{Kind: OpUnmap, Seq: t.seq.Add(1), IOVA: iova, Bytes: bytes}
	err := observed(t.options.Observer, op, func() error {
		if err := t.options.Kernel.UnmapDMA(t.container, &r.unmap); err != nil {
			return vfio.Error(fmt.Sprintf("unmap %#x+%#x", iova, bytes), err)
		}
		if r.unmap.Size != bytes { // the kernel calls it a success to unmap nothing
			return errNotMapped(iova, bytes, r.unmap.Size)
		}
		return nil
	})
	if err != nil {
		t.lost.CompareAndSwap(nil, lostBy(err))
	}

	return err
}

// +checklocksread:t.mu
func (t *Type1) unusableLocked() error {
	if t.closed {
		return errClosed
	}
	return t.Lost()
}

// Lost is why the domain cannot be relied on.
func (t *Type1) Lost() error {
	if err := t.lost.Load(); err != nil {
		return err
	}
	return nil
}

// Close waits for the calls under way, then gives back the devices, the remaining mappings,
// and the group. An error with code gpuerr.Busy means that another process holds a device,
// for instance by a mapping of its registers: nothing is mapped for the device any more, and
// the group is free when that process has ended. After any other error, memory may still be
// mapped.
func (t *Type1) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}

	t.closed = true
	t.devicesMu.Lock()
	devices := t.devices
	t.devices = nil
	t.devicesMu.Unlock()

	k := t.options.Kernel
	var errs []error
	for _, fd := range devices {
		errs = append(errs, vfio.Error("close a device", k.Close(fd)))
	}

	if t.group >= 0 {
		op := Op{Kind: OpClose, Seq: t.seq.Add(1)}
		errs = append(errs, observed(t.options.Observer, op, t.detach))
	}

	if t.container >= 0 {
		errs = append(errs, vfio.Error("close the container", k.Close(t.container)))
	}

	return errors.Join(errs...)
}

// detach takes every mapping and the group out of the container. EINVAL: the group
// was not in.
func (t *Type1) detach() error {
	k := t.options.Kernel
	unmapped := t.unmapAll()
	err := k.UnsetContainer(t.group)
	switch {
	case err == unix.EBUSY:
		err = gpuerr.New(gpuerr.Busy, "the IOMMU group stays attached: another process holds one of its devices")
	case err == unix.EINVAL:
		err = nil
	default:
		err = vfio.Error("take the group out of its container", err)
	}
	return errors.Join(unmapped, err, vfio.Error("close the group", k.Close(t.group)))
}

// unmapAll is for mappings that would outlive the container's descriptor, because
// another process keeps the group in. A kernel without it leaves them to
// UNSET_CONTAINER.
func (t *Type1) unmapAll() error {
	k := t.options.Kernel
	if !t.attached {
		return nil
	}
	if has, err := k.HasExtension(t.container, vfio.UnmapAll); err != nil || !has {
		return vfio.Error("ask for unmap-all", err)
	}

	err := k.UnmapDMA(t.container, &vfio.DMAUnmap{Flags: vfio.DMAUnmapAll})
	if err == unix.EINVAL {
		// The container has no domain any more, nor has anything that was mapped: a
		// device that was asked for is gone with its last descriptor, its group with it,
		// and the group with the domain (drivers/vfio/group.c, vfio_device_remove_group).
		return nil
	}

	return vfio.Error("unmap what is left", err)
}
