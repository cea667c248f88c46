// Package hostcheck checks whether a host has everything that the service needs for
// real hardware, and suggests a remedy for each lack.
//
// It changes nothing. Facts that only root can read are "unknown" for other users,
// and never guessed. Files come from the roots of a Host, so that tests can make
// them; facts outside files come from its Probes.
package hostcheck

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"capgpu/internal/pci"
	"capgpu/internal/vulkanhost"
)

// Status is the outcome of one check.
type Status string

const (
	OK      Status = "ok"
	Change  Status = "change"  // something must change before hardware can be used
	Unknown Status = "unknown" // could not be determined
)

// Check is one checked fact.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	// Do is the remedy: required with Change, optional with OK.
	Do string `json:"do,omitempty"`
}

// Host tells where to read.
type Host struct {
	Sys  string // "/sys" when empty
	Proc string // "/proc" when empty
	Dev  string // "/dev" when empty

	Root   bool // this is root
	Probes Probes
}

// Probes ask the kernel what it can do.
type Probes struct {
	Landlock func() (abi int)
	// EBPF returns nil if ring buffers, raw tracepoint programs and cgroup-device
	// programs can be loaded. Only root can test it.
	EBPF func() error
	// Tracepoints returns nil if the programs that make the kernel's own record can
	// be attached to the IOMMU's tracepoints (trace.Supported). Only root can test
	// it.
	Tracepoints func() error
	// OpenFiles is the hard limit of this process.
	OpenFiles func() (uint64, error)
	// LockedMemory is the amount that this process may pin; ^0: unlimited.
	LockedMemory func() (bytes uint64, err error)
	// Vulkan are the devices that engine processes can use; its error says what is missing.
	Vulkan func() ([]vulkanhost.Device, error)
	// Library finds a library by its path or name.
	Library func(name string) (path string, found bool)
	// Folder is where this program, and those beside it, are.
	Folder func() (string, error)
}

// Run checks everything that the functions at these addresses need or, without
// addresses, all display and accelerator functions.
func Run(h Host, addresses []pci.Address) []Check {
	for _, d := range []struct {
		field *string
		value string
	}{{&h.Sys, "/sys"}, {&h.Proc, "/proc"}, {&h.Dev, "/dev"}} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	checks := []Check{h.kernel(), h.iommu(), h.vfioDriver(), h.vfioNode(), h.iommufd()}
	checks = append(checks, h.functions(addresses)...)
	checks = append(checks, h.vulkan()...)
	return append(checks, h.lockedMemory(), h.openFiles(), h.hugePages(), h.cgroup(), h.landlock(), h.seccomp(),
		h.userNamespaces(), h.btf(), h.ebpf(), h.tracepoints(), h.lockdown())
}

// Good reports that nothing must change.
func Good(checks []Check) bool {
	for _, c := range checks {
		if c.Status == Change {
			return false
		}
	}
	return true
}

// maxFileBytes is larger than any of the files that are read here.
const maxFileBytes = 1 << 20

// text is a file's content, without the white space around it.
func text(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) > maxFileBytes {
		err = errors.New("it is too long")
	}
	return strings.TrimSpace(string(b)), err
}

func (h Host) sys(path string) string  { return filepath.Join(h.Sys, path) }
func (h Host) proc(path string) string { return filepath.Join(h.Proc, path) }
func (h Host) dev(path string) string  { return filepath.Join(h.Dev, path) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// chosen is the word in brackets of "always [never] advise".
func chosen(s string) string {
	_, rest, _ := strings.Cut(s, "[")
	word, _, found := strings.Cut(rest, "]")
	if !found {
		return ""
	}
	return word
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// cannot is a check with a file that could not be read.
func cannot(name string, err error) Check {
	return Check{Name: name, Status: Unknown, Found: err.Error()}
}

const needsRoot = "not tested (needs root)"
