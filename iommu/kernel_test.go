package iommu

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/uapi/vfio"
)

// kernel is the part of vfio that a Type1 uses: one container, one group, one device. It
// keeps a log of the calls, and fails those in fail.
type kernel struct {
	vfio.Kernel
	t *testing.T

	mu sync.Mutex
	// +checklocks:mu
	open map[int]string // by descriptor
	// +checklocks:mu
	last int
	// +checklocks:mu
	log []string
	// +checklocks:mu
	maps map[uint64]vfio.DMAMap
	// +checklocks:mu
	container int // that the group is in, or 0
	// +checklocks:mu
	fail map[string]error
	// +checklocks:mu
	info []byte // the answer to IOMMUInfo
	// +checklocks:mu
	short uint64 // how much less is unmapped than is asked
	// +checklocks:mu
	notViable bool
	// +checklocks:mu
	entries int
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{t: t, open: map[int]string{}, last: 10, maps: map[uint64]vfio.DMAMap{}, fail: map[string]error{}, entries: 100,
		info: iommuInfo(0x40201000, 100, Range{0, 0xfee00000}, Range{0xfef00000, 1 << 39})}
	t.Cleanup(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		require.Empty(t, k.open, "descriptors that nobody closed")
		require.Zero(t, k.container)
	})
	return k
}

// iommuInfo is the kernel's answer to VFIO_IOMMU_GET_INFO.
func iommuInfo(pages uint64, entries uint32, ranges ...Range) []byte {
	e := binary.NativeEndian
	b := e.AppendUint32(nil, 0)
	b = e.AppendUint32(b, vfio.IOMMUInfoPgsizes|vfio.IOMMUInfoCaps)
	b = e.AppendUint64(b, pages)
	b = e.AppendUint32(b, 24)
	b = e.AppendUint32(b, 0)
	b = e.AppendUint16(e.AppendUint16(b, vfio.IOMMUCapDMAAvail), 1)
	b = e.AppendUint32(b, 40)
	b = e.AppendUint32(b, entries)
	b = e.AppendUint32(b, 0)
	b = e.AppendUint16(e.AppendUint16(b, vfio.IOMMUCapIOVARange), 1)
	b = e.AppendUint32(b, 0)
	b = e.AppendUint32(b, uint32(len(ranges)))
	b = e.AppendUint32(b, 0)
	for _, r := range ranges {
		b = e.AppendUint64(e.AppendUint64(b, uint64(r.Start)), uint64(r.End)-1)
	}
	e.PutUint32(b, uint32(len(b)))
	return b
}

// enter notes a call and says whether it fails. It returns with mu held.
//
// +checklocksacquire:k.mu
func (k *kernel) enter(call string, args ...any) error {
	k.mu.Lock()
	name, _, _ := strings.Cut(fmt.Sprintf(call, args...), " ")
	k.log = append(k.log, fmt.Sprintf(call, args...))
	return k.fail[name]
}

// takeLog returns the calls since the last time.
func (k *kernel) takeLog() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	log := k.log
	k.log = nil
	return log
}

func (k *kernel) failing(call string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail[call] = err
}

// +checklocks:k.mu
func (k *kernel) fdLocked(what string) int {
	k.last++
	k.open[k.last] = what
	return k.last
}

// is checks that fd is of the expected kind.
//
// +checklocks:k.mu
func (k *kernel) is(fd int, what string) {
	require.Equal(k.t, what, k.open[fd])
}

func (k *kernel) Open(path string) (int, error) {
	what := filepath.Base(path)
	err := k.enter("open-%s %s", what, path)
	defer k.mu.Unlock()
	if err != nil {
		return -1, err
	}
	if what == "vfio" {
		what = "container"
	} else {
		what = "group"
	}
	for _, open := range k.open {
		if what == "group" && open == "group" {
			return -1, unix.EBUSY
		}
	}
	return k.fdLocked(what), nil
}

func (k *kernel) Close(fd int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	what := k.open[fd]
	require.NotEmpty(k.t, what, "closed twice")
	k.log = append(k.log, "close "+what)
	delete(k.open, fd)
	return k.fail["close"]
}

func (k *kernel) APIVersion(container int) (int, error) {
	err := k.enter("version")
	defer k.mu.Unlock()
	k.is(container, "container")
	return 0, err
}

func (k *kernel) HasExtension(container, extension int) (bool, error) {
	err := k.enter("extension-%d", extension)
	defer k.mu.Unlock()
	k.is(container, "container")
	if err == unix.EOPNOTSUPP {
		return false, nil
	}
	return true, err
}

func (k *kernel) GroupStatus(group int) (vfio.GroupStatus, error) {
	err := k.enter("status")
	defer k.mu.Unlock()
	k.is(group, "group")
	status := vfio.GroupStatus{Flags: vfio.GroupViable}
	if k.notViable {
		status.Flags = 0
	}
	return status, err
}

func (k *kernel) SetContainer(group, container int) error {
	err := k.enter("set-container")
	defer k.mu.Unlock()
	k.is(group, "group")
	k.is(container, "container")
	if err == nil {
		k.container = container
	}
	return err
}

func (k *kernel) SetIOMMU(container, kind int) error {
	err := k.enter("set-iommu %d", kind)
	defer k.mu.Unlock()
	k.is(container, "container")
	require.Equal(k.t, container, k.container)
	return err
}

func (k *kernel) UnsetContainer(group int) error {
	err := k.enter("unset-container")
	defer k.mu.Unlock()
	k.is(group, "group")
	for _, open := range k.open {
		if open == "device" {
			return unix.EBUSY
		}
	}
	if k.container == 0 {
		return unix.EINVAL
	}
	k.container = 0
	clear(k.maps)
	return err
}

func (k *kernel) DeviceFD(group int, address string) (int, error) {
	err := k.enter("device %s", address)
	defer k.mu.Unlock()
	k.is(group, "group")
	if err != nil {
		return -1, err
	}
	return k.fdLocked("device"), nil
}

func (k *kernel) IOMMUInfo(container int, b []byte) error {
	err := k.enter("info")
	defer k.mu.Unlock()
	k.is(container, "container")
	copy(b, k.info)
	return err
}

func (k *kernel) MapDMA(container int, m *vfio.DMAMap) error {
	err := k.enter("map %#x %#x %d", m.IOVA, m.Size, m.Flags)
	defer k.mu.Unlock()
	k.is(container, "container")
	switch {
	case err != nil:
		return err
	case len(k.maps) >= k.entries:
		return unix.ENOSPC
	}
	if _, ok := k.maps[m.IOVA]; ok {
		return unix.EEXIST
	}
	k.maps[m.IOVA] = *m
	return nil
}

func (k *kernel) UnmapDMA(container int, u *vfio.DMAUnmap) error {
	call := fmt.Sprintf("unmap %#x %#x", u.IOVA, u.Size)
	if u.Flags == vfio.DMAUnmapAll {
		call = "unmap-all"
		require.Zero(k.t, u.IOVA|u.Size)
	}
	err := k.enter("%s", call)
	defer k.mu.Unlock()
	k.is(container, "container")
	if err != nil {
		return err
	}
	if u.Flags == vfio.DMAUnmapAll {
		clear(k.maps)
		return nil
	}
	m, ok := k.maps[u.IOVA]
	if !ok {
		u.Size = 0
		return nil
	}
	if u.Size < m.Size {
		return unix.EINVAL
	}
	u.Size = m.Size - k.short
	delete(k.maps, u.IOVA)
	return nil
}

// sysfs makes a /sys with one group, by address and driver of its devices.
func sysfs(t *testing.T, group int, devices map[string]string) string {
	t.Helper()
	sys := t.TempDir()
	for address, driver := range devices {
		dir := filepath.Join(sys, "kernel/iommu_groups", strconv.Itoa(group), "devices", address)
		mkdir(t, dir)
		if driver != "" {
			symlink(t, filepath.Join(sys, "bus/pci/drivers", driver), filepath.Join(dir, "driver"))
		}
	}
	return sys
}
