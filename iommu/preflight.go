package iommu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/uapi/vfio"
)

// Want is the need of a caller that is going to use the IOMMU.
type Want struct {
	Groups  []int
	Bytes   uint64 // of memory that devices reach at once, in all domains
	Entries uint64 // mappings at once, in the domain with the most
}

// Finding is one thing that was looked at.
type Finding struct {
	What   string // "IOMMU", "vfio", "mappings", "locked memory", "IOMMU group 5"
	Detail string // what there is
	Err    error  // nil: no problem; else the problem, and what to do
}

// Preflight looks at what OpenType1 and Map need, before anything is taken, and
// changes nothing. It finds what would otherwise show much later.
func Preflight(options Options, want Want) []Finding {
	o := options.withDefaults()
	found := []Finding{o.checkIOMMU(), o.checkVFIO(), o.checkEntries(want.Entries), o.checkMemlock(want.Bytes)}
	for _, group := range want.Groups {
		f := Finding{What: fmt.Sprintf("IOMMU group %d", group)}
		members, err := members(o.Sys, group)
		if err == nil {
			f.Detail = fmt.Sprint(members)
			err = Viable(o.Sys, group)
		}
		f.Err = err
		found = append(found, f)
	}
	return found
}

// Refused returns the findings that prevent the use, or nil.
func Refused(findings []Finding) error {
	var errs []error
	for _, f := range findings {
		if f.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.What, f.Err))
		}
	}
	return errors.Join(errs...)
}

func (o Options) checkIOMMU() Finding {
	f := Finding{What: "IOMMU"}
	groups, err := os.ReadDir(filepath.Join(o.Sys, "kernel/iommu_groups"))
	if err != nil || len(groups) == 0 {
		f.Err = gpuerr.New(gpuerr.Unimplemented, "the kernel uses no IOMMU; %s", turnOn)
		return f
	}
	f.Detail = fmt.Sprintf("%d groups", len(groups))
	if o.parameter("vfio_iommu_type1", "allow_unsafe_interrupts") == "Y" {
		f.Err = gpuerr.New(gpuerr.Denied, "vfio_iommu_type1 is loaded with allow_unsafe_interrupts=Y, so that a device may forge interrupts; load it without")
	}
	return f
}

func (o Options) checkVFIO() Finding {
	f := Finding{What: "vfio"}
	path := filepath.Join(o.Dev, filepath.Base(vfio.Container))
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Err = errNoContainer(path, err)
	case err != nil:
		f.Err = gpuerr.New(gpuerr.IO, "cannot look at %s: %v", path, err)
	case unix.Access(path, unix.R_OK|unix.W_OK) != nil:
		f.Err = gpuerr.New(gpuerr.Denied, "%s (%v) is closed to this user; run as root", path, info.Mode())
	default:
		f.Detail = path
	}
	return f
}

func (o Options) checkEntries(want uint64) Finding {
	f := Finding{What: "mappings"}
	limit := uint64(vfio.DMAEntries)
	if n, err := strconv.ParseUint(o.parameter("vfio_iommu_type1", "dma_entry_limit"), 10, 32); err == nil {
		limit = n
	}
	f.Detail = fmt.Sprintf("%d in one domain", limit)
	if want > limit {
		f.Err = gpuerr.New(gpuerr.Denied, "%d mappings are wanted in one domain, and vfio has %d; lower iovaEntries, or raise parameter dma_entry_limit of vfio_iommu_type1", want, limit)
	}
	return f
}

// parameter is a parameter of a module, or empty.
func (o Options) parameter(module, name string) string {
	text, err := os.ReadFile(filepath.Join(o.Sys, "module", module, "parameters", name))
	if err != nil {
		return "" // not loaded, or it has no such parameter
	}
	return strings.TrimSpace(string(text))
}

// checkMemlock: what devices reach is pinned, and counts as locked memory of the
// process that maps it (drivers/vfio/vfio_iommu_type1.c, vfio_lock_acct).
func (o Options) checkMemlock(want uint64) Finding {
	f := Finding{What: "locked memory"}
	status, err := os.ReadFile(filepath.Join(o.Proc, "self/status"))
	if err != nil {
		f.Err = gpuerr.New(gpuerr.IO, "cannot read this process's status: %v", err)
		return f
	}

	caps, err := strconv.ParseUint(statusField(string(status), "CapEff"), 16, 64)
	if err == nil && caps&(1<<unix.CAP_IPC_LOCK) != 0 {
		f.Detail = "without limit (CAP_IPC_LOCK)"
		return f
	}

	limits, err := os.ReadFile(filepath.Join(o.Proc, "self/limits"))
	if err != nil {
		f.Err = gpuerr.New(gpuerr.IO, "cannot read this process's limits: %v", err)
		return f
	}

	limit, ok := memlockOf(string(limits))
	if !ok {
		f.Detail = "without limit"
		return f
	}

	f.Detail = fmt.Sprintf("%d bytes", limit)
	if want > limit {
		f.Err = gpuerr.New(gpuerr.Denied, "%d bytes are to be reached by devices, and RLIMIT_MEMLOCK is %d; raise it (LimitMEMLOCK= in the unit), or give CAP_IPC_LOCK", want, limit)
	}

	return f
}

// statusField is a field of /proc/PID/status.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// memlockOf is the soft limit in /proc/PID/limits; false: there is none.
func memlockOf(limits string) (bytes uint64, ok bool) {
	for line := range strings.Lines(limits) {
		if rest, found := strings.CutPrefix(line, "Max locked memory"); found {
			fields := strings.Fields(rest)
			if len(fields) == 0 {
				return 0, false
			}
			n, err := strconv.ParseUint(fields[0], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
