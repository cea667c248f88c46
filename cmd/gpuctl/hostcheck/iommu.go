package hostcheck

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/pci"
)

func (h Host) iommu() Check {
	c := Check{Name: "IOMMU", Status: OK}
	groups, err := os.ReadDir(h.sys("kernel/iommu_groups"))
	if err == nil && len(groups) > 0 {
		c.Found = fmt.Sprintf("on, %d groups", len(groups))
		if unsafe, _ := text(h.sys("module/vfio_iommu_type1/parameters/allow_unsafe_interrupts")); unsafe == "Y" {
			c.Status, c.Found = Change, "on, but vfio_iommu_type1 is loaded with allow_unsafe_interrupts=Y: a device may forge interrupts"
			c.Do = "Load vfio_iommu_type1 without that parameter; if the IOMMU then refuses, switch interrupt remapping on in the firmware."
		}
		return c
	}

	c.Status, c.Found = Change, "the kernel uses none"
	line, _ := text(h.proc("cmdline"))
	words := strings.Fields(line)
	units, _ := os.ReadDir(h.sys("class/iommu"))
	switch {
	case slices.Contains(words, "intel_iommu=off"), slices.Contains(words, "amd_iommu=off"), slices.Contains(words, "iommu=off"):
		c.Found = "switched off on the kernel's command line"
		c.Do = "Take iommu=off, intel_iommu=off and amd_iommu=off away from the kernel's command line and boot again."
	case len(units) > 0:
		c.Do = `The host has an IOMMU: add "intel_iommu=on" to the kernel's command line (AMD needs nothing) and boot again.`
	default:
		c.Do = `Switch VT-d (Intel) or AMD-Vi/IOMMU (AMD) on in the firmware, add "intel_iommu=on" to the kernel's command line on an Intel host, and boot again. A virtual machine needs a virtual IOMMU.`
	}

	return c
}

func (h Host) vfioDriver() Check {
	c := Check{Name: "vfio-pci", Status: OK, Found: "loaded"}
	var lacking []string
	if !exists(h.sys("bus/pci/drivers/" + pci.Driver)) {
		lacking = append(lacking, "vfio-pci")
	}
	if !exists(h.sys("module/vfio_iommu_type1")) {
		lacking = append(lacking, "vfio_iommu_type1")
	}
	if len(lacking) > 0 {
		c.Status, c.Found = Change, "the kernel has not loaded "+strings.Join(lacking, " and ")
		c.Do = "modprobe -a vfio-pci vfio_iommu_type1; for every boot: a line for each of them in /etc/modules-load.d/capgpu.conf."
	}
	return c
}

func (h Host) vfioNode() Check {
	c := Check{Name: "/dev/vfio/vfio", Status: OK, Found: "there"}
	path := h.dev("vfio/vfio")
	switch {
	case !exists(path):
		c.Status, c.Found, c.Do = Change, "not there", "It comes with the module vfio_iommu_type1; in a container, pass /dev/vfio on."
	case unix.Access(path, unix.R_OK|unix.W_OK) != nil:
		c.Found = "there; this user cannot open it, and need not: device-manager does, as root"
	}
	return c
}

func (h Host) iommufd() Check {
	c := Check{Name: "iommufd", Status: OK, Found: "not there, and not needed: mappings are made by vfio's type1"}
	if exists(h.dev("iommu")) {
		c.Found = "there, and not used: mappings are made by vfio's type1"
	}
	return c
}

// functions checks each named function, or each that could be granted.
func (h Host) functions(named []pci.Address) []Check {
	bus := &pci.Bus{Sys: h.Sys}
	all, err := bus.List()
	var checks []Check
	if err != nil {
		checks = append(checks, cannot("PCI", err))
	}

	for _, a := range named {
		if !slices.ContainsFunc(all, func(f pci.Function) bool { return f.Address == a }) {
			checks = append(checks, Check{Name: a.String(), Status: Change, Found: "there is no such PCI function", Do: "lspci -D lists what there is."})
		}
	}

	for _, f := range all {
		wanted := slices.Contains(named, f.Address)
		if len(named) == 0 {
			wanted = f.Class.Candidate() || f.Driver == pci.Driver
		}
		if wanted {
			checks = append(checks, h.function(bus, f))
		}
	}

	if len(checks) == 0 {
		checks = append(checks, Check{Name: "functions", Status: Change, Found: fmt.Sprintf("no display controller or accelerator among %d PCI functions", len(all)),
			Do: "Name another function by its address, as in gpuctl doctor 0000:01:00.0; without any, only developer mode (device-manager --dev) works here."})
	}

	return checks
}

func (h Host) function(bus *pci.Bus, f pci.Function) Check {
	driver, group, reset := f.Driver, "no IOMMU group", "no reset"
	if driver == "" {
		driver = "none"
	}
	if len(f.Resets) > 0 {
		reset = "reset by " + strings.Join(f.Resets, ", ")
	}

	if f.Group != pci.NoGroup {
		group = fmt.Sprintf("group %d", f.Group)
		if others := neighbours(bus, f); len(others) > 0 {
			group += " with " + strings.Join(others, ", ")
		} else {
			group += " of its own"
		}
	}

	c := Check{Name: f.Address.String(), Status: OK, Found: fmt.Sprintf("%s %s, driver %s, %s, %s", f.ID(), f.Class, driver, group, reset)}
	var shared *pci.GroupError
	err := bus.CheckGroup(f)
	switch {
	case errors.As(err, &shared):
		o := shared.Offender
		c.Status = Change
		c.Do = fmt.Sprintf("%s (%s) shares its group and is not vfio-pci's: as root, echo vfio-pci > /sys/bus/pci/devices/%s/driver_override, ", o.Address, o.Class, o.Address)
		if o.Driver != "" {
			c.Do += fmt.Sprintf("echo %s > /sys/bus/pci/devices/%s/driver/unbind, ", o.Address, o.Address)
		}
		c.Do += fmt.Sprintf("echo %s > /sys/bus/pci/drivers_probe; or put the card into another slot (docs/passthrough.md).", o.Address)

	case f.Group == pci.NoGroup:
		c.Status, c.Do = Change, "It needs an IOMMU before it: see IOMMU above."
	case err != nil:
		c.Status, c.Do = Change, gpuerr.From(err).Msg

	case f.BootVGA && f.Driver != "" && f.Driver != pci.Driver:
		c.Status, c.Do = Change, fmt.Sprintf("It shows the console of this host. To give it away all the same, add vfio-pci.ids=%s to the kernel's command line and boot again (docs/passthrough.md).", f.ID())
	case len(f.Resets) == 0:
		c.Do = "The kernel cannot reset it: between two drivers only its access to memory is taken away, and what it holds on board stays. Give it to one tenant."
	}

	return c
}

// neighbours are the other functions in the group of f.
func neighbours(bus *pci.Bus, f pci.Function) (others []string) {
	members, err := bus.Group(f.Group)
	if err != nil {
		return []string{"what cannot be listed"}
	}

	for _, m := range members {
		if m == f.Address {
			continue
		}
		other, err := bus.Function(m)
		if err != nil {
			others = append(others, m.String())
			continue
		}
		driver := other.Driver
		if driver == "" {
			driver = "no driver"
		}
		others = append(others, fmt.Sprintf("%s (%s, %s)", m, other.Class, driver))
	}

	return others
}
