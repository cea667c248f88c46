package iommu

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func mkdir(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
}

func symlink(t *testing.T, target, link string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, link))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	mkdir(t, filepath.Dir(file))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// pages is memory that begins with a page.
func pages(t *testing.T, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n*PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return b
}

// The whole life of a domain, call by call.
func TestType1(t *testing.T) {
	leakcheck.Check(t)
	k, r := newKernel(t), &record{}
	d, err := OpenType1(5, Options{Kernel: k, Observer: r})
	require.NoError(t, err)
	require.Equal(t, []string{"open-vfio /dev/vfio/vfio", "version", "extension-3", "open-5 /dev/vfio/5", "status", "set-container", "set-iommu 3", "info"}, k.takeLog())
	require.Equal(t, []Range{{0, 0xfee00000}, {0xfef00000, 1 << 39}}, d.Ranges())
	require.EqualValues(t, 0x40201000, d.PageBytes())
	require.EqualValues(t, 100, d.Entries())

	_, err = d.Device("0000:01:00.0")
	require.NoError(t, err)
	host := pages(t, 2)
	require.NoError(t, d.Map(wideIOVA, host, ReadWrite))
	require.ErrorIs(t, d.Map(wideIOVA, host, ReadWrite), gpuerr.Invalid)
	require.NoError(t, d.Map(wideIOVA+HugeBytes, host[:PageBytes], Read))
	require.NoError(t, d.Map(wideIOVA-PageBytes, host[:PageBytes], Write))
	require.NoError(t, d.Unmap(wideIOVA, 2*PageBytes))
	require.ErrorIs(t, d.Map(wideIOVA, host[1:][:PageBytes], Read), gpuerr.Invalid, "memory that begins within a page")
	require.ErrorIs(t, d.Map(0xfee00000, host, Read), gpuerr.Invalid)
	require.NoError(t, d.Lost())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	require.Equal(t, []string{
		"device 0000:01:00.0", "map 0x100000000 0x2000 3", "map 0x100000000 0x2000 3", "map 0x100200000 0x1000 1", "map 0xfffff000 0x1000 2",
		"unmap 0x100000000 0x2000", "close device", "extension-9", "unmap-all", "unset-container", "close group", "close container",
	}, k.takeLog())
	require.ErrorIs(t, d.Map(wideIOVA, host, Read), gpuerr.Closed)
	require.ErrorIs(t, d.Unmap(wideIOVA, PageBytes), gpuerr.Closed)
	_, err = d.Device("0000:01:00.0")
	require.ErrorIs(t, err, gpuerr.Closed)
	require.NoError(t, d.Lost(), "closed is not lost")
	require.Empty(t, k.takeLog())
	r.check(t, []Op{
		{Kind: OpAttach, Seq: 1},
		{Kind: OpMap, Seq: 2, IOVA: wideIOVA, Bytes: 2 * PageBytes},
		{Kind: OpMap, Seq: 3, IOVA: wideIOVA, Bytes: 2 * PageBytes},
		{Kind: OpMap, Seq: 4, IOVA: wideIOVA + HugeBytes, Bytes: PageBytes},
		{Kind: OpMap, Seq: 5, IOVA: wideIOVA - PageBytes, Bytes: PageBytes},
		{Kind: OpUnmap, Seq: 6, IOVA: wideIOVA, Bytes: 2 * PageBytes},
		{Kind: OpClose, Seq: 7},
	}, []error{nil, nil, gpuerr.Invalid, nil, nil, nil, nil})
}

// Each step that can fail leaves nothing open, and says what to do.
func TestType1CannotOpen(t *testing.T) {
	leakcheck.Check(t)
	sys := sysfs(t, 5, map[string]string{"0000:01:00.0": "vfio-pci", "0000:01:00.1": "snd_hda_intel", "0000:00:1c.0": "pcieport"})
	proc := t.TempDir()
	write(t, filepath.Join(proc, "812/comm"), "qemu-system-x86\n")
	mkdir(t, filepath.Join(proc, "812/fd"))
	symlink(t, "/dev/vfio/5", filepath.Join(proc, "812/fd/9"))
	symlink(t, "/dev/vfio/5", filepath.Join(proc, "812/fd/10"))
	symlink(t, "/dev/null", filepath.Join(proc, "812/fd/11"))
	for name, c := range map[string]struct {
		call string
		err  error
		code gpuerr.Code
		says string
	}{
		"no vfio":           {"open-vfio", unix.ENOENT, gpuerr.Unimplemented, "load the modules"},
		"vfio not loadable": {"open-vfio", unix.ENODEV, gpuerr.Unimplemented, "load the modules"},
		"not root":          {"open-vfio", unix.EACCES, gpuerr.Denied, "run as root"},
		"no version":        {"version", unix.ENOTTY, gpuerr.Unimplemented, "version"},
		"no type1":          {"extension-3", unix.EOPNOTSUPP, gpuerr.Unimplemented, "vfio_iommu_type1"},
		"held":              {"open-5", unix.EBUSY, gpuerr.Busy, "held by qemu-system-x86 (pid 812);"},
		"not bound":         {"open-5", unix.ENOENT, gpuerr.NoDevice, "bind its functions to vfio-pci"},
		"gone":              {"open-5", unix.ENODEV, gpuerr.NoDevice, "bind its functions to vfio-pci"},
		"closed":            {"open-5", unix.EACCES, gpuerr.Denied, "run as root"},
		"no status":         {"status", unix.EIO, gpuerr.IO, "IOMMU group 5"},
		"not viable":        {"set-container", unix.EPERM, gpuerr.Denied, "drives 0000:01:00.1 (driver snd_hda_intel) in it"},
		"taken meanwhile":   {"set-container", unix.EBUSY, gpuerr.Denied, "0000:01:00.1 (driver snd_hda_intel)"},
		"no memory":         {"set-container", unix.ENOMEM, gpuerr.IO, "into a container"},
		"interrupts":        {"set-iommu", unix.EPERM, gpuerr.Denied, "interrupt remapping"},
		"no IOMMU":          {"set-iommu", unix.ENODEV, gpuerr.DeviceLost, "behind the IOMMU"},
		"no answer":         {"info", unix.EFAULT, gpuerr.IO, "ask about the IOMMU"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t)
			k.failing(c.call, c.err)
			_, err := OpenType1(5, Options{Kernel: k, Sys: sys, Proc: proc})
			require.ErrorIs(t, err, c.code)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestType1NotViable(t *testing.T) {
	k := newKernel(t)
	k.mu.Lock()
	k.notViable = true
	k.mu.Unlock()
	_, err := OpenType1(5, Options{Kernel: k, Sys: sysfs(t, 5, map[string]string{"0000:01:00.0": "vfio-pci", "0000:01:00.1": "nvme"})})
	require.ErrorIs(t, err, gpuerr.Denied)
	require.ErrorContains(t, err, "0000:01:00.1 (driver nvme)")
	// The kernel knows better than sysfs shows.
	_, err = OpenType1(5, Options{Kernel: k, Sys: sysfs(t, 5, map[string]string{"0000:01:00.0": "vfio-pci", "0000:01:00.1": ""})})
	require.ErrorIs(t, err, gpuerr.Denied)
	require.ErrorContains(t, err, "iommufd")
	// It is held, and no process can be seen to hold it.
	k.failing("open-5", unix.EBUSY)
	_, err = OpenType1(5, Options{Kernel: k, Proc: t.TempDir()})
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "another process")
}

func TestType1Answers(t *testing.T) {
	open := func(t *testing.T, info []byte) (*Type1, error) {
		k := newKernel(t)
		k.mu.Lock()
		k.info = info
		k.mu.Unlock()
		d, err := OpenType1(5, Options{Kernel: k})
		if err == nil {
			t.Cleanup(func() { require.NoError(t, d.Close()) })
		}
		return d, err
	}
	_, err := open(t, iommuInfo(1<<16, 9, Range{0, 1 << 39}))
	require.ErrorIs(t, err, gpuerr.Unimplemented, "no 4 KiB pages")
	_, err = open(t, iommuInfo(PageBytes, 9))
	require.ErrorIs(t, err, gpuerr.Unimplemented, "no ranges")
	_, err = open(t, iommuInfo(PageBytes, 9, Range{0x100, 0x200}))
	require.ErrorIs(t, err, gpuerr.Unimplemented, "no whole page")
	_, err = open(t, []byte{1})
	require.ErrorIs(t, err, gpuerr.IO)

	// Out of order, and up to the last address there is.
	d, err := open(t, iommuInfo(PageBytes|HugeBytes, 9, Range{1 << 40, 0}, Range{0, 0x1234}))
	require.NoError(t, err)
	require.Equal(t, []Range{{0, 0x1000}, {1 << 40, ^IOVA(0) &^ (PageBytes - 1)}}, d.Ranges())
	require.EqualValues(t, 9, d.Entries())
}

func TestType1Lost(t *testing.T) {
	leakcheck.Check(t)
	for name, c := range map[string]struct {
		spoil func(k *kernel)
		bytes uint64
		code  gpuerr.Code
	}{
		"the kernel fails":  {func(k *kernel) { k.failing("unmap", unix.EIO) }, PageBytes, gpuerr.IO},
		"the device went":   {func(k *kernel) { k.failing("unmap", unix.ENODEV) }, PageBytes, gpuerr.DeviceLost},
		"a short unmap":     {func(k *kernel) { k.mu.Lock(); k.short = 1; k.mu.Unlock() }, PageBytes, gpuerr.Internal},
		"nothing unmapped":  {func(k *kernel) { k.mu.Lock(); clear(k.maps); k.mu.Unlock() }, PageBytes, gpuerr.Internal},
		"part of a mapping": {func(*kernel) {}, PageBytes / 2, gpuerr.IO},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel(t)
			d, err := OpenType1(5, Options{Kernel: k})
			require.NoError(t, err)
			host := pages(t, 1)
			require.NoError(t, d.Map(wideIOVA, host, ReadWrite))
			c.spoil(k)
			require.ErrorIs(t, d.Unmap(wideIOVA, c.bytes), c.code)
			require.ErrorIs(t, d.Lost(), gpuerr.DeviceLost)
			k.failing("unmap", nil)
			k.takeLog()
			require.ErrorIs(t, d.Unmap(wideIOVA, PageBytes), gpuerr.DeviceLost)
			require.ErrorIs(t, d.Map(wideIOVA+HugeBytes, host, Read), gpuerr.DeviceLost)
			require.Empty(t, k.takeLog(), "nothing more is asked of the kernel")
			require.NoError(t, d.Close())
			require.ErrorIs(t, d.Lost(), gpuerr.DeviceLost, "it stays lost")
		})
	}
}

func TestType1MapErrors(t *testing.T) {
	k := newKernel(t)
	d, err := OpenType1(5, Options{Kernel: k})
	require.NoError(t, err)
	host := pages(t, 1)
	for errno, want := range map[unix.Errno]error{
		unix.ENOSPC: &gpuerr.Error{Code: gpuerr.Quota, Resource: "iovaEntries", Asked: 1},
		unix.ENOMEM: &gpuerr.Error{Code: gpuerr.Quota, Resource: "hostMemory", Asked: PageBytes},
		unix.EEXIST: &gpuerr.Error{Code: gpuerr.Invalid},
		unix.EFAULT: &gpuerr.Error{Code: gpuerr.IO},
	} {
		k.failing("map", errno)
		got := *gpuerr.From(d.Map(wideIOVA, host, Read))
		require.NotEmpty(t, got.Msg)
		got.Msg = ""
		require.Equal(t, want, &got)
	}
	require.NoError(t, d.Lost())
	k.failing("map", nil)
	require.NoError(t, d.Map(wideIOVA, host, Read))

	k.failing("device", unix.ENODEV)
	_, err = d.Device("0000:02:00.0")
	require.ErrorIs(t, err, gpuerr.NoDevice)
	k.failing("device", unix.EMFILE)
	_, err = d.Device("0000:02:00.0")
	require.ErrorIs(t, err, gpuerr.IO)
	require.NoError(t, d.Close())
}

// A device that another process still holds keeps the group attached; nothing is
// mapped for it, and all that is ours is closed all the same.
func TestType1CloseErrors(t *testing.T) {
	open := func() (*kernel, *Type1) {
		k := newKernel(t)
		d, err := OpenType1(5, Options{Kernel: k})
		require.NoError(t, err)
		require.NoError(t, d.Map(wideIOVA, pages(t, 1), Read))
		return k, d
	}
	k, d := open()
	k.failing("unset-container", unix.EBUSY)
	err := d.Close()
	require.ErrorIs(t, err, gpuerr.Busy)
	require.Contains(t, k.takeLog(), "unmap-all")
	require.NoError(t, d.Close())

	k, d = open()
	k.failing("unmap-all", unix.EIO)
	require.ErrorIs(t, d.Close(), gpuerr.IO)

	k, d = open() // unplugged: the kernel has taken the group out, and its domain away
	k.failing("unmap-all", unix.EINVAL)
	k.failing("unset-container", unix.EINVAL)
	require.NoError(t, d.Close())

	k, d = open() // before Linux 5.12
	k.failing("extension-9", unix.EOPNOTSUPP)
	require.NoError(t, d.Close())
	require.NotContains(t, k.takeLog(), "unmap-all")

	k, d = open()
	k.failing("unset-container", unix.EIO)
	k.failing("close", unix.EIO)
	require.ErrorIs(t, d.Close(), gpuerr.IO)
}

// Calls run side by side, and Close comes after the last of them.
func TestType1Concurrent(t *testing.T) {
	leakcheck.Check(t)
	k := newKernel(t)
	d, err := OpenType1(5, Options{Kernel: k, Observer: &record{}})
	require.NoError(t, err)
	host := pages(t, 1)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			at := wideIOVA + IOVA(worker)*HugeBytes
			for {
				if err := d.Map(at, host, Read); err != nil {
					if gpuerr.CodeOf(err) != gpuerr.Closed {
						t.Error(err)
					}
					return
				}
				if err := d.Unmap(at, PageBytes); err != nil {
					if gpuerr.CodeOf(err) != gpuerr.Closed {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for range 100 {
		if _, err := d.Device("0000:01:00." + strconv.Itoa(0)); err != nil {
			t.Error(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	require.NoError(t, d.Lost())
}
