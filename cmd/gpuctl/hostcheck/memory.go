package hostcheck

import (
	"fmt"
	"math"
	"strconv"
)

func (h Host) lockedMemory() Check {
	c := Check{Name: "locked memory", Status: OK}
	limit, err := h.Probes.LockedMemory()
	switch {
	case err != nil:
		return cannot(c.Name, err)
	case limit == math.MaxUint64:
		c.Found = "no limit"
	case !h.Root:
		c.Found = fmt.Sprintf("%d KiB for this user; it is device-manager's limit that counts, which has none with CAP_IPC_LOCK", limit>>10)
	default:
		c.Status, c.Found = Change, fmt.Sprintf("%d KiB, and no CAP_IPC_LOCK: memory of devices is pinned, and counts", limit>>10)
		c.Do = "Give device-manager CAP_IPC_LOCK, or LimitMEMLOCK=infinity in its unit (both are in packaging/capgpu.service)."
	}
	return c
}

// wantedFiles is enough for the defaults: a descriptor for each piece of device
// memory, and some for each connection.
const wantedFiles = 16384

func (h Host) openFiles() Check {
	hard, err := h.Probes.OpenFiles()
	if err != nil {
		return cannot("open files", err)
	}
	c := Check{Name: "open files", Status: OK, Found: fmt.Sprintf("up to %d for this user", hard)}
	if hard < wantedFiles {
		c.Do = fmt.Sprintf("Each piece of device memory takes one: below %d, iovaEntries of the policy is cut. The unit has LimitNOFILE=65536.", wantedFiles)
	}
	return c
}

func (h Host) hugePages() Check {
	c := Check{Name: "huge pages", Status: OK}
	count := func(name string) (uint64, error) {
		s, err := text(h.sys("kernel/mm/hugepages/hugepages-2048kB/" + name))
		if err != nil {
			return 0, err
		}
		return strconv.ParseUint(s, 10, 64)
	}

	total, err := count("nr_hugepages")
	free, err2 := count("free_hugepages")
	if err != nil || err2 != nil {
		c.Found = "this kernel has none of 2 MiB"
		return c
	}

	thp, _ := text(h.sys("kernel/mm/transparent_hugepage/shmem_enabled"))
	c.Found = fmt.Sprintf("%d of 2 MiB, %d free; transparent ones for shared memory: %s", total, free, orNone(chosen(thp)))
	if free == 0 {
		c.Do = "For speed only: sysctl vm.nr_hugepages=N reserves N pages of 2 MiB; device memory in whole ones is touched ten times as fast, and is one entry of the IOMMU."
	}

	return c
}

func orNone(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
