package iommu

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/uapi/vfio"
)

// OpenType1 takes an IOMMU group into a domain of its own. All devices of the group are bound
// to vfio or to no driver.
func OpenType1(group int, options Options) (t *Type1, err error) {
	t = &Type1{options: options.withDefaults(), container: -1, group: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()

	if err := t.openContainer(); err != nil {
		return t, err
	}
	if err := t.openGroup(group); err != nil {
		return t, err
	}

	op := Op{Kind: OpAttach, Seq: t.seq.Add(1)}
	if err := observed(t.options.Observer, op, func() error { return t.attach(group) }); err != nil {
		return t, err
	}

	return t, t.ask()
}

func (t *Type1) openContainer() error {
	o, k := t.options, t.options.Kernel
	path := filepath.Join(o.Dev, filepath.Base(vfio.Container))
	fd, err := k.Open(path)
	switch {
	case err == unix.ENOENT, err == unix.ENODEV:
		return errNoContainer(path, err)
	case err != nil:
		return vfio.Error("open "+path, err)
	}

	t.container = fd
	if v, err := k.APIVersion(fd); err != nil || v != vfio.APIVersion {
		return errors.Join(gpuerr.New(gpuerr.Unimplemented, "%s speaks version %d of vfio, not %d", path, v, vfio.APIVersion), vfio.Error("ask for the version", err))
	}
	if has, err := k.HasExtension(fd, vfio.Type1v2IOMMU); err != nil || !has {
		return errors.Join(gpuerr.New(gpuerr.Unimplemented, "vfio has no type1 back end: load the module vfio_iommu_type1"), vfio.Error("ask for type1v2", err))
	}

	return nil
}

func (t *Type1) openGroup(group int) error {
	o, k := t.options, t.options.Kernel
	path := filepath.Join(o.Dev, strconv.Itoa(group))
	fd, err := k.Open(path)
	switch {
	case err == unix.EBUSY:
		by := "another process"
		if who := holders(o.Proc, path); len(who) > 0 {
			by = strings.Join(who, ", ")
		}
		return gpuerr.New(gpuerr.Busy, "IOMMU group %d is held by %s; end that first", group, by)
	case err == unix.ENOENT, err == unix.ENODEV:
		return gpuerr.New(gpuerr.NoDevice, "IOMMU group %d has no device for vfio: bind its functions to vfio-pci", group)
	case err != nil:
		return vfio.Error("open "+path, err)
	}

	t.group = fd
	status, err := k.GroupStatus(fd)
	if err != nil {
		return vfio.Error(fmt.Sprintf("ask about IOMMU group %d", group), err)
	}
	if status.Flags&vfio.GroupViable == 0 {
		return t.notViable(group)
	}

	return nil
}

// notViable names what keeps the group from being taken.
func (t *Type1) notViable(group int) error {
	if err := Viable(t.options.Sys, group); err != nil {
		return err
	}
	return gpuerr.New(gpuerr.Denied, "IOMMU group %d cannot be taken: the kernel holds one of its devices, or iommufd has one open", group)
}

// attach puts the group into the container, and sets the container's IOMMU type.
func (t *Type1) attach(group int) error {
	k := t.options.Kernel
	err := k.SetContainer(t.group, t.container)
	switch {
	case err == unix.EPERM, err == unix.EBUSY:
		return t.notViable(group)
	case err != nil:
		return vfio.Error(fmt.Sprintf("put IOMMU group %d into a container", group), err)
	}

	err = k.SetIOMMU(t.container, vfio.Type1v2IOMMU)
	switch {
	case err == unix.EPERM:
		return gpuerr.New(gpuerr.Denied, "vfio refuses IOMMU group %d: the IOMMU does not remap interrupts, so a device could forge them; turn on interrupt remapping in the firmware", group)
	case err != nil:
		return vfio.Error(fmt.Sprintf("put IOMMU group %d behind the IOMMU", group), err)
	}

	t.attached = true
	return nil
}

// ask reads the limits of the domain.
func (t *Type1) ask() error {
	info, err := vfio.ReadIOMMU(t.options.Kernel, t.container)
	if err != nil {
		return err
	}
	if info.PageBytes&PageBytes == 0 {
		return gpuerr.New(gpuerr.Unimplemented, "the IOMMU has no pages of %d bytes (its mask is %#x)", PageBytes, info.PageBytes)
	}

	for _, r := range info.Ranges {
		end := r.End &^ (PageBytes - 1) // of the last page, if that is all there is
		if r.End&(PageBytes-1) == PageBytes-1 && r.End != ^uint64(0) {
			end = r.End + 1
		}
		if r.Start < end {
			t.ranges = append(t.ranges, Range{IOVA(r.Start), IOVA(end)})
		}
	}

	slices.SortFunc(t.ranges, func(a, b Range) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	if len(t.ranges) == 0 {
		return gpuerr.New(gpuerr.Unimplemented, "the kernel does not say which addresses the IOMMU translates: Linux 5.4 or later is needed")
	}

	t.pageBytes, t.entries = info.PageBytes, vfio.DMAEntries
	if info.HasAvailable {
		t.entries = uint64(info.Available)
	}

	return nil
}
