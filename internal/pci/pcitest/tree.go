// Package pcitest makes trees like sysfs, and plays the kernel in them: drivers let
// go of functions and take them as it would make them.
package pcitest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/internal/pci"
)

// Function is a function to make.
type Function struct {
	Address        string
	Vendor, Device uint16
	Class          uint32
	Driver         string // bound now, and the kernel's choice without an override
	Group          int    // pci.NoGroup: none
	BootVGA        bool
	Resets         string // reset_method; "" leaves the file out
	Resource       string // the file; "" is one memory BAR of 1 MiB
}

// Edu is QEMU's edu device.
func Edu(address string, group int) Function {
	return Function{Address: address, Vendor: 0x1234, Device: 0x11e8, Class: 0x00ff00, Group: group, Resets: "bus"}
}

// Tree is a folder that looks like /sys.
type Tree struct {
	Root string

	tb testing.TB

	mu sync.Mutex
	// native is the driver that takes a function without an override.
	// +checklocks:mu
	native map[string]string
	// +checklocks:mu
	fail map[string]error
	// +checklocks:mu
	writes []string
}

// New makes an empty tree of a kernel with vfio-pci loaded.
func New(tb testing.TB) *Tree {
	tb.Helper()
	t := &Tree{Root: tb.TempDir(), tb: tb, native: map[string]string{}, fail: map[string]error{}}
	for _, dir := range []string{"bus/pci/devices", "kernel/iommu_groups"} {
		require.NoError(tb, os.MkdirAll(t.Path(dir), 0o755))
	}
	t.AddDriver(pci.Driver)
	t.Boot(1)
	return t
}

// Boot makes it the nth boot of the kernel. Functions and their drivers stay.
func (t *Tree) Boot(n int) {
	t.tb.Helper()
	t.Put("proc/sys/kernel/random/boot_id", BootID(n)+"\n")
}

// BootID is the boot id of the nth boot.
func BootID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

// Path is a path in the tree.
func (t *Tree) Path(elem ...string) string {
	return filepath.Join(append([]string{t.Root}, elem...)...)
}

// Put writes a file of the tree.
func (t *Tree) Put(path, text string) {
	t.tb.Helper()
	path = t.Path(path)
	require.NoError(t.tb, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t.tb, os.WriteFile(path, []byte(text), 0o644))
}

// Bus reads and writes the tree.
func (t *Tree) Bus() *pci.Bus { return &pci.Bus{Sys: t.Root, Proc: t.Path("proc"), Write: t.write} }

// AddDriver loads a driver.
func (t *Tree) AddDriver(name string) {
	t.tb.Helper()
	require.NoError(t.tb, os.MkdirAll(t.Path("bus/pci/drivers", name), 0o755))
}

// RemoveDriver takes a driver away that has no function.
func (t *Tree) RemoveDriver(name string) {
	t.tb.Helper()
	require.NoError(t.tb, os.Remove(t.Path("bus/pci/drivers", name)))
}

// Add makes a function.
func (t *Tree) Add(f Function) {
	t.tb.Helper()
	dir := "bus/pci/devices/" + f.Address + "/"
	resource := f.Resource
	if resource == "" {
		resource = "0x00000000fea00000 0x00000000feafffff 0x0000000000040200\n" +
			strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 12)
	}

	t.Put(dir+"vendor", fmt.Sprintf("0x%04x\n", f.Vendor))
	t.Put(dir+"device", fmt.Sprintf("0x%04x\n", f.Device))
	t.Put(dir+"class", fmt.Sprintf("0x%06x\n", f.Class))
	t.Put(dir+"revision", "0x10\n")
	t.Put(dir+"resource", resource)
	t.Put(dir+"driver_override", "(null)\n")
	t.Put(dir+"power_state", "D0\n")
	t.Put(dir+"numa_node", "-1\n")
	if f.Resets != "" {
		t.Put(dir+"reset_method", f.Resets+"\n")
	}
	if f.BootVGA {
		t.Put(dir+"boot_vga", "1\n")
	}

	if f.Group != pci.NoGroup {
		group := t.Path("kernel/iommu_groups", strconv.Itoa(f.Group))
		require.NoError(t.tb, os.MkdirAll(filepath.Join(group, "devices"), 0o755))
		require.NoError(t.tb, os.Symlink(t.Path(dir), filepath.Join(group, "devices", f.Address)))
		require.NoError(t.tb, os.Symlink(group, t.Path(dir, "iommu_group")))
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.native[f.Address] = f.Driver
	if f.Driver != "" {
		t.AddDriver(f.Driver)
		require.NoError(t.tb, t.bind(f.Address, f.Driver))
	}
}

// Remove takes a function out of the host.
func (t *Tree) Remove(address string) {
	t.tb.Helper()
	if group, err := os.Readlink(t.Path("bus/pci/devices", address, "iommu_group")); err == nil {
		require.NoError(t.tb, os.Remove(filepath.Join(group, "devices", address)))
	}
	require.NoError(t.tb, os.RemoveAll(t.Path("bus/pci/devices", address)))
}

// Fail makes the next writes to the attribute of this name fail; nil ends it.
func (t *Tree) Fail(attribute string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail[attribute] = err
}

// Writes returns the writes so far, as "attribute=value".
func (t *Tree) Writes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.writes...)
}

// Driver returns the driver of a function.
func (t *Tree) Driver(address string) string {
	target, err := os.Readlink(t.Path("bus/pci/devices", address, "driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// Override is the driver_override of a function.
func (t *Tree) Override(address string) string {
	text, err := os.ReadFile(t.Path("bus/pci/devices", address, "driver_override"))
	require.NoError(t.tb, err)
	return strings.TrimSuffix(string(text), "\n")
}

func (t *Tree) write(path, value string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := filepath.Base(path)
	if err := t.fail[name]; err != nil {
		return err
	}

	t.writes = append(t.writes, name+"="+value)
	switch name {
	case "driver_override":
		if value == "\n" {
			value = "(null)"
		}
		return os.WriteFile(path, []byte(strings.TrimSuffix(value, "\n")+"\n"), 0o644)
	case "unbind":
		if filepath.Base(filepath.Dir(path)) != "driver" {
			return unix.EINVAL
		}
		if err := os.Remove(filepath.Dir(path)); err != nil {
			return unix.ENOENT
		}
		return nil
	case "drivers_probe":
		return t.probeLocked(value)
	}

	return unix.EACCES
}

// probeLocked offers a function to the drivers, as drivers/pci/pci-driver.c does.
//
// +checklocks:t.mu
func (t *Tree) probeLocked(address string) error {
	if _, err := os.Stat(t.Path("bus/pci/devices", address)); err != nil {
		return unix.ENODEV
	}
	if t.Driver(address) != "" {
		return nil
	}

	driver := t.native[address]
	if o := t.Override(address); o != "(null)" {
		driver = o
	}
	if driver == "" {
		return nil
	}
	if _, err := os.Stat(t.Path("bus/pci/drivers", driver)); err != nil {
		return nil // no driver takes it, which is no error
	}

	return t.bind(address, driver)
}

func (t *Tree) bind(address, driver string) error {
	err := os.Symlink(t.Path("bus/pci/drivers", driver), t.Path("bus/pci/devices", address, "driver"))
	if errors.Is(err, os.ErrExist) {
		return unix.EBUSY
	}
	return err
}
