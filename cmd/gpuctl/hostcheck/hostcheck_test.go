package hostcheck_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"

	"capgpu/cmd/gpuctl/hostcheck"
	"capgpu/internal/leakcheck"
	"capgpu/internal/pci"
	"capgpu/internal/pci/pcitest"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// made is a host of files that has everything that is needed.
type made struct {
	hostcheck.Host
	tree *pcitest.Tree
	t    *testing.T
}

func makeHost(t *testing.T) *made {
	tree := pcitest.New(t)
	tree.Add(pcitest.Function{Address: "0000:01:00.0", Vendor: 0x10de, Device: 0x2330, Class: 0x030200, Driver: "nvidia", Group: 14, Resets: "flr bus"})
	m := &made{tree: tree, t: t, Host: hostcheck.Host{Sys: tree.Root, Proc: t.TempDir(), Dev: t.TempDir(), Root: true, Probes: hostcheck.Probes{
		Landlock:     func() int { return 6 },
		EBPF:         func() error { return nil },
		Tracepoints:  func() error { return nil },
		OpenFiles:    func() (uint64, error) { return 65536, nil },
		LockedMemory: func() (uint64, error) { return math.MaxUint64, nil },
	}}}

	for path, text := range map[string]string{
		"module/vfio_iommu_type1/parameters/allow_unsafe_interrupts": "N\n",
		"kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":          "64\n",
		"kernel/mm/hugepages/hugepages-2048kB/free_hugepages":        "60\n",
		"kernel/mm/transparent_hugepage/shmem_enabled":               "always within_size [advise] never deny force\n",
		"kernel/btf/vmlinux":           "x",
		"kernel/security/lockdown":     "[none] integrity confidentiality\n",
		"fs/cgroup/cgroup.controllers": "cpu memory pids\n",
	} {
		tree.Put(path, text)
	}

	for path, text := range map[string]string{
		"cmdline":                          "quiet intel_iommu=on\n",
		"sys/kernel/osrelease":             "6.12.9-amd64\n",
		"sys/kernel/seccomp/actions_avail": "kill_process kill_thread errno allow\n",
		"sys/user/max_user_namespaces":     "1024\n",
		"self/mountinfo":                   "30 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n",
	} {
		m.put(m.Proc, path, text)
	}

	m.put(m.Dev, "vfio/vfio", "")
	return m
}

func (m *made) put(root, path, text string) {
	m.t.Helper()
	path = filepath.Join(root, path)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o644))
}

func (m *made) remove(root, path string) {
	m.t.Helper()
	require.NoError(m.t, os.RemoveAll(filepath.Join(root, path)))
}

func TestHostThatHasEverything(t *testing.T) {
	checks := hostcheck.Run(makeHost(t).Host, nil)
	require.True(t, hostcheck.Good(checks))
	for _, c := range checks {
		require.Equal(t, hostcheck.OK, c.Status, "%+v", c)
		require.NotEmpty(t, c.Found, c.Name)
	}
}

// TestEachDefectIsFound: for each single defect one check reports it, with a
// remedy.
func TestEachDefectIsFound(t *testing.T) {
	unsupported := func() error { return ebpf.ErrNotSupported }
	for name, c := range map[string]struct {
		spoil  func(*made)
		check  string
		status hostcheck.Status
		says   string // in Found or Do
	}{
		"old kernel":            {func(m *made) { m.put(m.Proc, "sys/kernel/osrelease", "4.19.0-27-amd64") }, "kernel", hostcheck.Change, "5.10"},
		"strange kernel":        {func(m *made) { m.put(m.Proc, "sys/kernel/osrelease", "linux") }, "kernel", hostcheck.Unknown, "linux"},
		"IOMMU off":             {func(m *made) { m.remove(m.Sys, "kernel/iommu_groups"); m.put(m.Proc, "cmdline", "x iommu=off") }, "IOMMU", hostcheck.Change, "iommu=off"},
		"IOMMU not on":          {func(m *made) { m.remove(m.Sys, "kernel/iommu_groups"); m.tree.Put("class/iommu/dmar0", "") }, "IOMMU", hostcheck.Change, "intel_iommu=on"},
		"no IOMMU":              {func(m *made) { m.remove(m.Sys, "kernel/iommu_groups") }, "IOMMU", hostcheck.Change, "firmware"},
		"unsafe interrupts":     {func(m *made) { m.tree.Put("module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y\n") }, "IOMMU", hostcheck.Change, "forge"},
		"no vfio-pci":           {func(m *made) { m.tree.RemoveDriver("vfio-pci") }, "vfio-pci", hostcheck.Change, "modprobe"},
		"no type1":              {func(m *made) { m.remove(m.Sys, "module/vfio_iommu_type1") }, "vfio-pci", hostcheck.Change, "vfio_iommu_type1"},
		"no node":               {func(m *made) { m.remove(m.Dev, "vfio") }, "/dev/vfio/vfio", hostcheck.Change, "not there"},
		"little memory to lock": {func(m *made) { m.Probes.LockedMemory = func() (uint64, error) { return 8 << 20, nil } }, "locked memory", hostcheck.Change, "8192 KiB"},
		"limits unknown":        {func(m *made) { m.Probes.OpenFiles = func() (uint64, error) { return 0, errors.New("boom") } }, "open files", hostcheck.Unknown, "boom"},
		"no cgroup v2":          {func(m *made) { m.put(m.Proc, "self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n") }, "cgroup v2", hostcheck.Change, "not mounted"},
		"no memory controller":  {func(m *made) { m.tree.Put("fs/cgroup/cgroup.controllers", "hugetlb pids\n") }, "cgroup v2", hostcheck.Change, "limit of memory."},
		"no controllers":        {func(m *made) { m.tree.Put("fs/cgroup/cgroup.controllers", "\n") }, "cgroup v2", hostcheck.Change, "memory and pids"},
		"no landlock":           {func(m *made) { m.Probes.Landlock = func() int { return 0 } }, "landlock", hostcheck.Change, "lsm="},
		"no seccomp":            {func(m *made) { m.remove(m.Proc, "sys/kernel/seccomp") }, "seccomp", hostcheck.Change, "CONFIG_SECCOMP_FILTER"},
		"weak seccomp":          {func(m *made) { m.put(m.Proc, "sys/kernel/seccomp/actions_avail", "errno allow") }, "seccomp", hostcheck.Change, "CONFIG_SECCOMP_FILTER"},
		"no user namespaces":    {func(m *made) { m.put(m.Proc, "sys/user/max_user_namespaces", "0\n") }, "user namespaces", hostcheck.Change, "sysctl"},
		"namespaces for root":   {func(m *made) { m.put(m.Proc, "sys/kernel/unprivileged_userns_clone", "0\n") }, "user namespaces", hostcheck.OK, "for root only"},
		"no eBPF":               {func(m *made) { m.Probes.EBPF = unsupported }, "eBPF", hostcheck.Change, "CONFIG_CGROUP_BPF"},
		"eBPF inconclusive":     {func(m *made) { m.Probes.EBPF = func() error { return errors.New("boom") } }, "eBPF", hostcheck.Unknown, "boom"},
		"no tracepoints":        {func(m *made) { m.Probes.Tracepoints = unsupported }, "tracepoints", hostcheck.Change, "CONFIG_TRACEPOINTS"},
		"confidential":          {func(m *made) { m.tree.Put("kernel/security/lockdown", "none integrity [confidentiality]\n") }, "lockdown", hostcheck.Change, "integrity"},
		"secure boot is no fault": {func(m *made) {
			m.tree.Put("kernel/security/lockdown", "none [integrity] confidentiality\n")
			m.tree.Put("firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06\x00\x00\x00\x01")
		}, "lockdown", hostcheck.OK, "secure boot is on"},
		"no huge pages": {func(m *made) { m.tree.Put("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n") }, "huge pages", hostcheck.OK, "vm.nr_hugepages"},
		"neighbour": {func(m *made) {
			m.tree.Add(pcitest.Function{Address: "0000:01:00.1", Vendor: 0x10de, Device: 0x22ba, Class: 0x040300, Driver: "snd_hda_intel", Group: 14})
		}, "0000:01:00.0", hostcheck.Change, "/sys/bus/pci/devices/0000:01:00.1/driver_override"},
		"no group": {func(m *made) {
			m.tree.Remove("0000:01:00.0")
			m.tree.Add(pcitest.Function{Address: "0000:01:00.0", Class: 0x030000, Group: pci.NoGroup, Resets: "flr"})
		}, "0000:01:00.0", hostcheck.Change, "see IOMMU above"},
		"console":       {func(m *made) { m.tree.Put("bus/pci/devices/0000:01:00.0/boot_vga", "1\n") }, "0000:01:00.0", hostcheck.Change, "vfio-pci.ids=10de:2330"},
		"no reset":      {func(m *made) { m.remove(m.Sys, "bus/pci/devices/0000:01:00.0/reset_method") }, "0000:01:00.0", hostcheck.OK, "cannot reset"},
		"no candidates": {func(m *made) { m.tree.Remove("0000:01:00.0"); m.tree.Add(pcitest.Edu("0000:02:00.0", 3)) }, "functions", hostcheck.Change, "among 1 PCI functions"},
	} {
		t.Run(name, func(t *testing.T) {
			m := makeHost(t)
			c.spoil(m)
			checks := hostcheck.Run(m.Host, nil)
			i := slices.IndexFunc(checks, func(x hostcheck.Check) bool { return x.Name == c.check })
			require.GreaterOrEqual(t, i, 0, "%+v", checks)
			got := checks[i]
			require.Equal(t, c.status, got.Status, "%+v", got)
			require.Contains(t, got.Found+" "+got.Do, c.says)
			if c.status == hostcheck.Change {
				require.NotEmpty(t, got.Do)
				require.False(t, hostcheck.Good(checks))
			}

			for _, other := range checks { // except the function, to which the IOMMU belongs
				if other.Name != c.check && !strings.HasPrefix(other.Name, "0000:") {
					require.Equal(t, hostcheck.OK, other.Status, "%+v", other)
				}
			}
		})
	}
}

// TestOthersThanRoot: a fact that only root can read is unknown, and no reason to
// fail.
func TestOthersThanRoot(t *testing.T) {
	m := makeHost(t)
	m.Root = false
	m.Probes.LockedMemory = func() (uint64, error) { return 8 << 20, nil }
	m.Probes.EBPF = func() error { t.Error("asked"); return nil }
	m.Probes.Tracepoints = m.Probes.EBPF
	checks := hostcheck.Run(m.Host, nil)
	require.True(t, hostcheck.Good(checks))
	for _, c := range checks {
		want := hostcheck.OK
		if c.Name == "eBPF" || c.Name == "tracepoints" {
			want = hostcheck.Unknown
			require.Contains(t, c.Found, "needs root")
		}
		require.Equal(t, want, c.Status, "%+v", c)
	}
}

func TestNamedFunctions(t *testing.T) {
	m := makeHost(t)
	m.tree.Add(pcitest.Edu("0000:02:00.0", 3))
	edu, err := pci.ParseAddress("02:00.0")
	require.NoError(t, err)
	nowhere, err := pci.ParseAddress("09:00.0")
	require.NoError(t, err)
	names := func(checks []hostcheck.Check) (found []string) {
		for _, c := range checks {
			if strings.HasPrefix(c.Name, "0000:") {
				found = append(found, c.Name+" "+string(c.Status))
			}
		}
		return found
	}

	require.Equal(t, []string{"0000:02:00.0 ok"}, names(hostcheck.Run(m.Host, []pci.Address{edu})))
	require.Equal(t, []string{"0000:09:00.0 change"}, names(hostcheck.Run(m.Host, []pci.Address{nowhere})))
	require.Equal(t, []string{"0000:01:00.0 ok"}, names(hostcheck.Run(m.Host, nil)))
}

// TestEmptyHost: on a host with nothing every check still gives an answer.
func TestEmptyHost(t *testing.T) {
	m := makeHost(t)
	m.Sys, m.Proc, m.Dev = t.TempDir(), t.TempDir(), t.TempDir()
	for _, c := range hostcheck.Run(m.Host, nil) {
		require.NotEmpty(t, c.Found, c.Name)
		require.Contains(t, []hostcheck.Status{hostcheck.OK, hostcheck.Change, hostcheck.Unknown}, c.Status)
		if c.Status == hostcheck.Change {
			require.NotEmpty(t, c.Do, c.Name)
		}
	}
}

func TestThisHost(t *testing.T) {
	checks := hostcheck.Run(hostcheck.ThisHost(), nil)
	require.Greater(t, len(checks), 15)
	for _, c := range checks {
		require.NotEmpty(t, c.Found, c.Name)
	}
}
