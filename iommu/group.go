package iommu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"capgpu/gpuerr"
)

// member is one device of an IOMMU group: the hardware cannot tell the devices of a group
// apart, so they are granted as a whole.
type member struct {
	address string // "0000:01:00.0"
	driver  string // "vfio-pci"; empty: none
}

// keepsOut are drivers that move no memory of their own, so that a group stays
// viable with them (driver_managed_dma in struct pci_driver, Linux 6.12).
var keepsOut = []string{"pcieport", "pci-stub", "shpchp"}

// blocks reports whether the kernel's driver may make the device move memory, so that the
// group cannot be used by another driver.
func (m member) blocks() bool {
	return m.driver != "" && !strings.HasPrefix(m.driver, "vfio") && !slices.Contains(keepsOut, m.driver)
}

func (m member) String() string {
	return fmt.Sprintf("%s (driver %s)", m.address, m.driver)
}

// members are the devices of a group, by address.
func members(sys string, group int) ([]member, error) {
	dir := filepath.Join(sys, "kernel/iommu_groups", strconv.Itoa(group), "devices")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, gpuerr.New(gpuerr.NoDevice, "there is no IOMMU group %d: %v", group, err)
	}
	var all []member
	for _, e := range entries {
		m := member{address: e.Name()}
		if driver, err := os.Readlink(filepath.Join(dir, e.Name(), "driver")); err == nil {
			m.driver = filepath.Base(driver)
		}
		all = append(all, m)
	}
	return all, nil
}

// Viable checks that the group can be taken: no device of it is driven by the
// kernel. The error names those that are.
func Viable(sys string, group int) error {
	all, err := members(sys, group)
	if err != nil {
		return err
	}
	var blocking []string
	for _, m := range all {
		if m.blocks() {
			blocking = append(blocking, m.String())
		}
	}
	if len(blocking) > 0 {
		return gpuerr.New(gpuerr.Denied, "IOMMU group %d cannot be taken: the kernel drives %s in it; unbind that, or put the device into a slot with isolation (ACS)", group, strings.Join(blocking, ", "))
	}
	return nil
}

// holders are the processes that have a descriptor of the file at path, as far as
// this one may see.
func holders(proc, path string) []string {
	links, err := filepath.Glob(filepath.Join(proc, "[0-9]*", "fd", "*"))
	if err != nil {
		return nil
	}

	var found []string
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != path {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			name = []byte("?")
		}
		who := fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(name)), filepath.Base(dir))
		if !slices.Contains(found, who) {
			found = append(found, who)
		}
	}

	return found
}
