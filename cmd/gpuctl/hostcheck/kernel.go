package hostcheck

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
)

// The oldest kernel with a vfio that reports how many mappings are left, and a
// kernel on which this is tested.
const (
	oldestKernel = 5*1000 + 10
	testedKernel = "6.12"
)

func (h Host) kernel() Check {
	release, err := text(h.proc("sys/kernel/osrelease"))
	if err != nil {
		return cannot("kernel", err)
	}

	c := Check{Name: "kernel", Status: OK, Found: release}
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return Check{Name: "kernel", Status: Unknown, Found: release + " is no version"}
	}

	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(strings.TrimRight(parts[1], "-+abcdefghijklmnopqrstuvwxyz"))
	if err != nil || err2 != nil {
		return Check{Name: "kernel", Status: Unknown, Found: release + " is no version"}
	}
	if major*1000+minor < oldestKernel {
		c.Status, c.Do = Change, "Use Linux 5.10 or later; "+testedKernel+" is tested."
	}

	return c
}

// cgroup finds where cgroup v2 is mounted, and which controllers it has.
func (h Host) cgroup() Check {
	c := Check{Name: "cgroup v2", Status: OK}
	mounts, err := text(h.proc("self/mountinfo"))
	if err != nil {
		return cannot(c.Name, err)
	}

	where := ""
	for line := range strings.Lines(mounts) {
		before, after, found := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if found && strings.HasPrefix(after, "cgroup2 ") && len(fields) >= 5 {
			where = fields[4]
			break
		}
	}

	const boot = `Boot with "systemd.unified_cgroup_hierarchy=1" on the kernel's command line, so that all controllers are in cgroup v2.`
	if where == "" {
		c.Status, c.Found, c.Do = Change, "not mounted: drivers run without limits of memory and processes", boot
		return c
	}

	// The tests' tree is not at the root of this host.
	path := where
	if h.Sys != "/sys" {
		path = h.sys(strings.TrimPrefix(where, "/sys/"))
	}

	controllers, err := text(path + "/cgroup.controllers")
	if err != nil {
		return cannot(c.Name, err)
	}

	c.Found = fmt.Sprintf("at %s, with %s", where, orNothing(controllers))
	var lacking []string
	for _, want := range []string{"memory", "pids"} {
		if !slices.Contains(strings.Fields(controllers), want) {
			lacking = append(lacking, want)
		}
	}

	if len(lacking) > 0 {
		c.Status, c.Do = Change, "Drivers run without a limit of "+strings.Join(lacking, " and ")+". "+boot
	}

	return c
}

func orNothing(s string) string {
	if s == "" {
		return "no controllers"
	}
	return s
}

func (h Host) landlock() Check {
	abi := h.Probes.Landlock()
	if abi < 1 {
		return Check{Name: "landlock", Status: Change, Found: "the kernel does not have it, or it is not switched on",
			Do: `Add landlock to the list that "cat /sys/kernel/security/lsm" shows, by lsm=… on the kernel's command line; drivers are confined by the rest of the sandbox without it.`}
	}
	return Check{Name: "landlock", Status: OK, Found: fmt.Sprintf("ABI %d", abi)}
}

func (h Host) seccomp() Check {
	c := Check{Name: "seccomp", Status: OK, Found: "filters, and killing by them"}
	actions, err := text(h.proc("sys/kernel/seccomp/actions_avail"))
	switch {
	case missing(err) || err == nil && !slices.Contains(strings.Fields(actions), "kill_process"):
		c.Status, c.Found, c.Do = Change, "the kernel cannot filter system calls", "Use a kernel with CONFIG_SECCOMP_FILTER (all of the distributions have it)."
	case err != nil:
		return cannot(c.Name, err)
	}
	return c
}

func (h Host) userNamespaces() Check {
	c := Check{Name: "user namespaces", Status: OK}
	most, err := text(h.proc("sys/user/max_user_namespaces"))
	if missing(err) {
		c.Status, c.Found, c.Do = Change, "the kernel has none", "Use a kernel with CONFIG_USER_NS."
		return c
	}
	if err != nil {
		return cannot(c.Name, err)
	}
	if most == "0" {
		c.Status, c.Found, c.Do = Change, "switched off (user.max_user_namespaces is 0)", "sysctl user.max_user_namespaces=1024"
		return c
	}

	c.Found = "up to " + most
	for _, s := range []struct{ file, off, name string }{
		{"sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone"},
		{"sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns"},
	} {
		if v, err := text(h.proc(s.file)); err == nil && v == s.off {
			c.Found += fmt.Sprintf("; for root only (%s is %s), which is enough for the service", s.name, v)
			c.Do = "Only developer mode (device-manager --dev) runs its drivers less confined."
		}
	}

	return c
}

func (h Host) btf() Check {
	if !exists(h.sys("kernel/btf/vmlinux")) {
		return Check{Name: "BTF", Status: OK, Found: "the kernel tells no types; nothing here needs them"}
	}
	return Check{Name: "BTF", Status: OK, Found: "there"}
}

func (h Host) ebpf() Check {
	c := Check{Name: "eBPF", Status: OK, Found: "ring buffers, raw tracepoint and cgroup-device programs can be loaded"}
	if !h.Root {
		c.Status, c.Found = Unknown, needsRoot
		return c
	}
	err := h.Probes.EBPF()
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		c.Status, c.Found = Change, err.Error()
		c.Do = "Use a kernel with CONFIG_BPF_SYSCALL and CONFIG_CGROUP_BPF; without, mappings are not compared with the kernel's own record, and device nodes not kept from drivers by it."
	case err != nil:
		return cannot(c.Name, err)
	}
	return c
}

// tracepoints are the kernel's own record of what the IOMMU maps.
func (h Host) tracepoints() Check {
	c := Check{Name: "tracepoints", Status: OK, Found: "a program can listen to the IOMMU's map and unmap"}
	if !h.Root {
		c.Status, c.Found = Unknown, needsRoot
		return c
	}
	if err := h.Probes.Tracepoints(); err != nil {
		c.Status, c.Found = Change, "no program can listen to the IOMMU's map and unmap: "+err.Error()
		c.Do = "Use a kernel with CONFIG_IOMMU_API, CONFIG_TRACEPOINTS and CONFIG_BPF_EVENTS; without, mappings are not compared with the kernel's own record."
	}
	return c
}

func (h Host) lockdown() Check {
	c := Check{Name: "lockdown", Status: OK}
	boot := ""

	// Four bytes of attributes, then the value (UEFI 2.10, 3.3 and 8.2).
	v, err := os.ReadFile(h.sys("firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"))
	if err == nil && len(v) == 5 {
		boot = map[bool]string{true: "; secure boot is on", false: "; secure boot is off"}[v[4] == 1]
	}

	s, err := text(h.sys("kernel/security/lockdown"))
	switch mode := chosen(s); {
	case missing(err):
		c.Found = "the kernel has none" + boot
	case err != nil:
		return cannot(c.Name, err)
	case mode == "confidentiality":
		c.Status, c.Found = Change, "confidentiality: eBPF may not read the kernel"+boot
		c.Do = `Boot with "lockdown=integrity": without it, mappings are not compared with the kernel's own record.`
	default:
		c.Found = orNone(mode) + boot
	}

	return c
}
