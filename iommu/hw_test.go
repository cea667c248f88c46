package iommu_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
	"capgpu/internal/shm"
	"capgpu/iommu"
	"capgpu/iommu/iommutest"
)

// hardware binds the functions that CAPGPU_HW names to vfio-pci and returns their addresses
// and groups, or skips. It changes their driver, so name only unused functions.
func hardware(t testing.TB) (addresses []string, groups []int) {
	t.Helper()
	names := os.Getenv("CAPGPU_HW")
	if names == "" {
		t.Skip("SKIPPED: needs PCI functions behind an IOMMU; name them in CAPGPU_HW (0000:01:00.0,…), or run it in the guest (go run ./qemu/cmd/guest-run)")
	}
	for _, a := range strings.Split(names, ",") {
		dir := filepath.Join("/sys/bus/pci/devices", a)
		if driver, _ := os.Readlink(filepath.Join(dir, "driver")); filepath.Base(driver) != "vfio-pci" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "driver_override"), []byte("vfio-pci"), 0))
			if driver != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "driver/unbind"), []byte(a), 0))
			}
			require.NoError(t, os.WriteFile("/sys/bus/pci/drivers_probe", []byte(a), 0))
		}
		group, err := os.Readlink(filepath.Join(dir, "iommu_group"))
		require.NoError(t, err)
		n, err := strconv.Atoi(filepath.Base(group))
		require.NoError(t, err)
		addresses, groups = append(addresses, a), append(groups, n)
	}
	return addresses, groups
}

func openGroup(t testing.TB, group int) *iommu.Type1 {
	t.Helper()
	d, err := iommu.OpenType1(group, iommu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// memory is shared memory, mapped.
func memory(t testing.TB, bytes uint64) []byte {
	t.Helper()
	m, err := shm.Create("iommu-test", bytes)
	require.NoError(t, err)
	b, err := m.Map(0, bytes, true)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, shm.Unmap(b))
		require.NoError(t, m.Close())
	})
	return b
}

func TestHardwareDomain(t *testing.T) {
	addresses, groups := hardware(t)
	leakcheck.Check(t)
	for range 2 { // the second time, the group has been given back
		d, err := iommu.OpenType1(groups[0], iommu.Options{})
		require.NoError(t, err)
		t.Logf("ranges %x, page sizes %#x, %d entries", d.Ranges(), d.PageBytes(), d.Entries())
		require.NotZero(t, d.PageBytes()&iommu.PageBytes)
		require.EqualValues(t, 65535, d.Entries())

		fd, err := d.Device(addresses[0])
		require.NoError(t, err)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		require.NoError(t, err)
		require.NotZero(t, flags&unix.FD_CLOEXEC)
		_, err = d.Device("0000:7f:1f.7")
		require.ErrorIs(t, err, gpuerr.NoDevice)

		s := iommu.NewSpace(d.Ranges())
		for _, bytes := range []uint64{iommu.PageBytes, iommu.HugeBytes, 3 * iommu.HugeBytes} {
			host := memory(t, bytes)
			at, ok := s.Take(bytes)
			require.True(t, ok)
			require.NoError(t, d.Map(at, host, iommu.ReadWrite))
			require.ErrorIs(t, d.Map(at, host, iommu.Read), gpuerr.Invalid, "mapped twice")
			require.NoError(t, d.Unmap(at, bytes))
			require.NoError(t, d.Map(at, host, iommu.Read))
			require.NoError(t, d.Unmap(at, bytes))
		}
		require.ErrorIs(t, d.Map(0xfee00000, memory(t, iommu.PageBytes), iommu.Read), gpuerr.Invalid, "where interrupts go")
		require.NoError(t, d.Map(s1(t, s), memory(t, iommu.PageBytes), iommu.Read), "left for Close")
		require.NoError(t, d.Lost())
		require.NoError(t, d.Close())
		require.NoError(t, d.Close())
		require.ErrorIs(t, d.Map(1<<32, memory(t, iommu.PageBytes), iommu.Read), gpuerr.Closed)
		_, err = d.Device(addresses[0])
		require.ErrorIs(t, err, gpuerr.Closed)
	}
}

// s1 takes one page.
func s1(t testing.TB, s *iommu.Space) iommu.IOVA {
	t.Helper()
	at, ok := s.Take(iommu.PageBytes)
	require.True(t, ok)
	return at
}

// An unmap that is not exactly a mapping loses the domain, for good.
func TestHardwareUnmapIsExact(t *testing.T) {
	_, groups := hardware(t)
	leakcheck.Check(t)
	const at, bytes = 1 << 32, 4 * iommu.PageBytes
	for name, unmap := range map[string]iommu.Range{
		"nothing": {Start: at + 8*bytes, End: at + 9*bytes},
		"half":    {Start: at, End: at + bytes/2},
		"more":    {Start: at, End: at + 2*bytes},
	} {
		t.Run(name, func(t *testing.T) {
			d := openGroup(t, groups[0])
			host := memory(t, bytes)
			require.NoError(t, d.Map(at, host, iommu.ReadWrite))
			err := d.Unmap(unmap.Start, unmap.Bytes())
			require.Error(t, err)
			t.Log(err)
			require.ErrorIs(t, d.Lost(), gpuerr.DeviceLost)
			require.ErrorIs(t, d.Unmap(at, bytes), gpuerr.DeviceLost)
			require.ErrorIs(t, d.Map(at+16*bytes, host, iommu.Read), gpuerr.DeviceLost)
		})
	}
}

// The kernel's limit of mappings is a typed error, and passes.
func TestHardwareEntryLimit(t *testing.T) {
	_, groups := hardware(t)
	leakcheck.Check(t)
	const limit, file = 3000, "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit"
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strconv.Itoa(limit)), 0))
	t.Cleanup(func() { require.NoError(t, os.WriteFile(file, before, 0)) })

	d := openGroup(t, groups[0])
	require.EqualValues(t, limit, d.Entries())
	host := memory(t, 16*iommu.PageBytes)
	s := iommu.NewSpace(d.Ranges())
	page := func(i int) []byte { return host[i%16*iommu.PageBytes:][:iommu.PageBytes] }
	var at [limit]iommu.IOVA
	for i := range at {
		at[i] = s1(t, s)
		require.NoError(t, d.Map(at[i], page(i), iommu.ReadWrite))
	}
	err = d.Map(s1(t, s), page(0), iommu.ReadWrite)
	require.ErrorIs(t, err, gpuerr.Quota)
	t.Log(err)
	require.NoError(t, d.Unmap(at[7], iommu.PageBytes))
	require.NoError(t, d.Map(at[7], page(7), iommu.ReadWrite))
	for _, a := range at {
		require.NoError(t, d.Unmap(a, iommu.PageBytes))
	}
}

func TestHardwareGroupIsHeldByOne(t *testing.T) {
	_, groups := hardware(t)
	leakcheck.Check(t)
	openGroup(t, groups[0])
	_, err := iommu.OpenType1(groups[0], iommu.Options{})
	require.ErrorIs(t, err, gpuerr.Busy)
	require.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getpid()))
	t.Log(err)
	_, err = iommu.OpenType1(1<<20, iommu.Options{})
	require.ErrorIs(t, err, gpuerr.NoDevice)
}

// Without CAP_IPC_LOCK, RLIMIT_MEMLOCK bounds what a device can hold in memory.
func TestHardwareMemlock(t *testing.T) {
	_, groups := hardware(t)
	leakcheck.Check(t)
	d := openGroup(t, groups[0])
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	if limit.Cur > 64<<20 {
		t.Skipf("SKIPPED: RLIMIT_MEMLOCK is %d, too much to reach", limit.Cur)
	}
	host := memory(t, limit.Cur+iommu.HugeBytes)
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine, and its loss of the capability
		refused <- dropIPCLock()
		refused <- d.Map(1<<32, host, iommu.ReadWrite)
	}()
	require.NoError(t, <-refused)
	err := <-refused
	require.ErrorIs(t, err, gpuerr.Quota)
	t.Log(err)
	require.NoError(t, d.Map(1<<32, host, iommu.ReadWrite), "with the capability")
	require.NoError(t, d.Unmap(1<<32, uint64(len(host))))
}

func dropIPCLock() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	return unix.Capset(&head, &data[0])
}

// A descriptor of the device that has got elsewhere keeps the group, but no
// mapping; with its end the group is free.
func TestHardwareDeviceHeldElsewhere(t *testing.T) {
	addresses, groups := hardware(t)
	leakcheck.Check(t)
	d, err := iommu.OpenType1(groups[0], iommu.Options{})
	require.NoError(t, err)
	require.NoError(t, d.Map(1<<32, memory(t, iommu.PageBytes), iommu.Read))
	fd, err := d.Device(addresses[0])
	require.NoError(t, err)
	elsewhere, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	err = d.Close()
	require.ErrorIs(t, err, gpuerr.Busy)
	t.Log(err)
	_, err = iommu.OpenType1(groups[0], iommu.Options{})
	require.ErrorIs(t, err, gpuerr.Busy)
	require.NoError(t, unix.Close(elsewhere))
	openGroup(t, groups[0])
}

// Two functions have two address spaces: the same address is free in both.
func TestHardwareDomainsAreApart(t *testing.T) {
	_, groups := hardware(t)
	if len(groups) < 2 {
		t.Skip("SKIPPED: needs two functions in CAPGPU_HW")
	}
	leakcheck.Check(t)
	a, b := openGroup(t, groups[0]), openGroup(t, groups[1])
	host := memory(t, iommu.PageBytes)
	require.NoError(t, a.Map(1<<32, host, iommu.Read))
	require.NoError(t, b.Map(1<<32, host, iommu.ReadWrite))
	require.NoError(t, b.Unmap(1<<32, iommu.PageBytes))
	require.NoError(t, a.Unmap(1<<32, iommu.PageBytes))
}

// The cost of a domain over the ioctls. `make bench-hw` bounds it; a test run on a busy
// machine only checks that it is measured, with small pages and with huge ones.
func TestHardwareCompare(t *testing.T) {
	_, groups := hardware(t)
	leakcheck.Check(t)
	for _, huge := range []bool{false, true} {
		if huge {
			const pool = "/proc/sys/vm/nr_hugepages"
			before, err := os.ReadFile(pool)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(pool, []byte("4"), 0))
			t.Cleanup(func() { require.NoError(t, os.WriteFile(pool, before, 0)) })
		}
		m, err := iommutest.Compare(groups[0], nil, 9)
		require.NoError(t, err)
		require.Equal(t, huge, m.Huge)
		t.Log(m)
		m, err = iommutest.Compare(groups[0], quiet{}, 9)
		require.NoError(t, err)
		t.Log("observed:", m)
		require.Less(t, m.Ratio, 4.0)
	}
}

type quiet struct{}

func (quiet) Began(iommu.Op)        {}
func (quiet) Ended(iommu.Op, error) {}
