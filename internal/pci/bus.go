package pci

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Bus is the PCI functions of one host.
type Bus struct {
	// Sys is where sysfs is: "/sys" when empty.
	Sys string
	// Proc is where procfs is: "/proc" when empty. The boot id is read from there.
	Proc string
	// Write writes an attribute; nil means that the kernel's file is written. A test
	// plays the kernel with it.
	Write func(path, value string) error
}

// Class is the 24-bit class code: base class, subclass and programming interface.
type Class uint32

// Base classes, of the PCI Code and ID Assignment Specification 1.11.
const (
	BaseDisplay     = 0x03
	BaseBridge      = 0x06
	BaseAccelerator = 0x12
)

// Base is the base class.
func (c Class) Base() uint8 { return uint8(c >> 16) }

// Candidate reports whether this service supports functions of this class.
func (c Class) Candidate() bool { return c.Base() == BaseDisplay || c.Base() == BaseAccelerator }

// String names the classes that matter here.
func (c Class) String() string {
	switch c >> 8 {
	case 0x0300:
		return "VGA controller"
	case 0x0302:
		return "3D controller"
	case 0x0403:
		return "audio device"
	case 0x0604:
		return "PCI bridge"
	case 0x1200:
		return "processing accelerator"
	}

	switch c.Base() {
	case BaseDisplay:
		return "display controller"
	case BaseBridge:
		return "bridge"
	case BaseAccelerator:
		return "accelerator"
	}

	return fmt.Sprintf("class %04x", uint32(c>>8))
}

// Function is the information of sysfs about a function.
type Function struct {
	Address  Address
	Vendor   uint16
	Device   uint16
	Class    Class
	Revision uint8
	Driver   string // "" when none is bound
	Override string // driver_override; "" when there is none
	Group    int    // IOMMU group; NoGroup when it has none
	NUMANode int    // -1 when the host does not say
	BARs     []BAR
	// Resets are the ways to reset it, the first that works being taken: "flr",
	// "bus", …; empty when there is none.
	Resets     []string
	PowerState string // "D0", …, "unknown"; "" when the kernel does not say
	BootVGA    bool   // the firmware's console is on it
}

// NoGroup is the group of a function without one: no IOMMU translates for it.
const NoGroup = -1

// ID is "10de:2330".
func (f Function) ID() string { return fmt.Sprintf("%04x:%04x", f.Vendor, f.Device) }

func (b *Bus) path(elem ...string) string {
	root := b.Sys
	if root == "" {
		root = "/sys"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

func (b *Bus) functionPath(a Address, elem ...string) string {
	return b.path(append([]string{"bus", "pci", "devices", a.String()}, elem...)...)
}

// bootID returns the name of this boot of the kernel, which changes with each boot
// (Documentation/admin-guide/sysctl/kernel.rst, "random", of Linux 6.12).
func (b *Bus) bootID() (string, error) {
	root := b.Proc
	if root == "" {
		root = "/proc"
	}
	id, err := readAttribute(filepath.Join(root, "sys/kernel/random/boot_id"))
	if err == nil && !bootID.MatchString(id) {
		err = fmt.Errorf("%.60q is none", id)
	}
	if err != nil {
		return "", gpuerr.New(gpuerr.IO, "read the boot id of the kernel: %v", err)
	}
	return id, nil
}

// List returns every function, in the order of their addresses. A host without PCI has none.
// It skips functions that leave the bus meanwhile. The error names functions that cannot be
// read, and the others are returned.
func (b *Bus) List() ([]Function, error) {
	entries, err := os.ReadDir(b.path("bus", "pci", "devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "list PCI functions: %v", err)
	}

	var all []Function
	var errs []error
	for _, e := range entries {
		a, ok := parseAddress(e.Name())
		if !ok {
			errs = append(errs, gpuerr.New(gpuerr.IO, "list PCI functions: %q is no address", e.Name()))
			continue
		}
		f, err := b.Function(a)
		switch {
		case err == nil:
			all = append(all, f)
		case !errors.Is(err, gpuerr.NoDevice):
			errs = append(errs, err)
		}
	}

	slices.SortFunc(all, func(x, y Function) int { return x.Address.Compare(y.Address) })
	return all, errors.Join(errs...)
}

// Function reads one function. gpuerr.NoDevice when there is none at the address.
func (b *Bus) Function(a Address) (Function, error) {
	f := Function{Address: a}
	err := b.read(a, &f)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, unix.ENODEV), errors.Is(err, fs.ErrNotExist) && !exists(b.functionPath(a, "vendor")):
		return Function{}, gpuerr.New(gpuerr.NoDevice, "there is no PCI function %s on this host (lspci -D lists them)", a)
	}
	return Function{}, gpuerr.New(gpuerr.IO, "read PCI function %s: %v", a, err)
}

func (b *Bus) read(a Address, f *Function) error {
	for _, n := range []struct {
		name string
		bits int
		set  func(uint64)
	}{
		{"vendor", 16, func(v uint64) { f.Vendor = uint16(v) }},
		{"device", 16, func(v uint64) { f.Device = uint16(v) }},
		{"class", 24, func(v uint64) { f.Class = Class(v) }},
		{"revision", 8, func(v uint64) { f.Revision = uint8(v) }},
	} {
		text, err := readAttribute(b.functionPath(a, n.name))
		if err != nil {
			return err
		}
		v, err := parseHex(text, n.bits)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		n.set(v)
	}

	text, err := readAttribute(b.functionPath(a, "resource"))
	if err != nil {
		return err
	}
	if f.BARs, err = ParseResource(text); err != nil {
		return err
	}
	if f.Driver, err = linkName(b.functionPath(a, "driver")); err != nil {
		return err
	}

	group, err := linkName(b.functionPath(a, "iommu_group"))
	if err != nil {
		return err
	}

	f.Group = NoGroup
	if group != "" {
		if f.Group, err = parseCount(group); err != nil {
			return fmt.Errorf("iommu_group: %w", err)
		}
	}

	// The rest is not there on every host.
	if f.Override, err = optionalAttribute(b.functionPath(a, "driver_override")); err != nil {
		return err
	}
	if f.Override == "(null)" {
		f.Override = ""
	}

	resets, err := optionalAttribute(b.functionPath(a, "reset_method"))
	if err != nil {
		return err
	}

	f.Resets = strings.Fields(resets)
	if f.PowerState, err = optionalAttribute(b.functionPath(a, "power_state")); err != nil {
		return err
	}

	vga, err := optionalAttribute(b.functionPath(a, "boot_vga"))
	if err != nil {
		return err
	}

	f.BootVGA = vga == "1"
	f.NUMANode = -1
	node, err := optionalAttribute(b.functionPath(a, "numa_node"))
	if err != nil {
		return err
	}

	if node != "" && node != "-1" {
		if f.NUMANode, err = parseCount(node); err != nil {
			return fmt.Errorf("numa_node: %w", err)
		}
	}

	return nil
}

// Group lists the functions of an IOMMU group, in order. A group that is not there
// has none.
func (b *Bus) Group(group int) ([]Address, error) {
	entries, err := os.ReadDir(b.path("kernel", "iommu_groups", strconv.Itoa(group), "devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, gpuerr.New(gpuerr.IO, "list IOMMU group %d: %v", group, err)
	}

	var members []Address
	for _, e := range entries {
		a, ok := parseAddress(e.Name())
		if !ok {
			return nil, gpuerr.New(gpuerr.Denied, "IOMMU group %d holds %q, which is no PCI function; a group with other buses cannot be used", group, e.Name())
		}
		members = append(members, a)
	}

	slices.SortFunc(members, Address.Compare)
	return members, nil
}

// maxAttributeBytes is more than any attribute has: sysfs gives them a page.
const maxAttributeBytes = 4096

// readAttribute returns the text of an attribute, without the last line's end.
func readAttribute(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAttributeBytes+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxAttributeBytes {
		return "", fmt.Errorf("%s has more than %d bytes", filepath.Base(path), maxAttributeBytes)
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

// optionalAttribute returns "" if the kernel does not have the attribute.
func optionalAttribute(path string) (string, error) {
	text, err := readAttribute(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return text, err
}

// linkName is the last element of a link's target, or "" when there is none.
func linkName(path string) (string, error) {
	target, err := os.Readlink(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return filepath.Base(target), nil
}

func parseHex(text string, bits int) (uint64, error) {
	digits, hex := strings.CutPrefix(text, "0x")
	v, err := strconv.ParseUint(digits, 16, bits)
	if !hex || err != nil {
		return 0, fmt.Errorf("%.40q is no number of %d bits like 0x…", text, bits)
	}
	return v, nil
}

func parseCount(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%.40q is no number", text)
	}
	return int(n), nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
