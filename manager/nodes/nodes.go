// Package nodes tells to which PCI function a device node of a GPU's kernel driver belongs.
// It reads /dev, /sys and /proc, and opens no node.
package nodes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
)

// Host is where the files are.
type Host struct {
	Root string // before /dev, /sys and /proc; empty: this host's
	// stat takes the place of stat(2) in tests.
	stat func(path string) (unix.Stat_t, error)
}

// Node is a device node.
type Node struct {
	Path         string
	Major, Minor uint32
	Mode         uint32 // permissions
	GID          uint32
}

// NVIDIA's driver has no entries of its nodes in /sys. Its major number is fixed
// (Documentation/admin-guide/devices.txt, 195 char), and so are the nodes of all its GPUs.
const (
	nvidiaMajor      = 195
	nvidiaControl    = 255 // /dev/nvidiactl
	nvidiaModeset    = 254 // /dev/nvidia-modeset
	maxFileBytes     = 64 << 10
	nvidiaUVM        = "nvidia-uvm"
	nvidiaMinorField = "Device Minor"
)

// Check returns the nodes, each of which belongs to the function at the address or is one that
// a driver has for all its functions. Other ones are refused with gpuerr.NoDevice or
// gpuerr.Denied.
func (h Host) Check(paths []string, address string) (found []Node, err error) {
	for _, path := range paths {
		n, err := h.look(path)
		if err != nil {
			return nil, err
		}
		if err := h.belongs(n, address); err != nil {
			return nil, err
		}
		found = append(found, n)
	}
	return found, nil
}

// look returns a character device. A symbolic link is followed: distributions make some.
func (h Host) look(path string) (Node, error) {
	stat := h.stat
	if stat == nil {
		stat = func(path string) (st unix.Stat_t, err error) { return st, unix.Stat(path, &st) }
	}
	st, err := stat(filepath.Join(h.Root, path))
	switch {
	case errors.Is(err, unix.ENOENT):
		return Node{}, gpuerr.New(gpuerr.NoDevice, "the node %s is not there: load the GPU's kernel driver (for NVIDIA run nvidia-modprobe -c 0 -u), or correct nodes of the policy", path)
	case err != nil:
		return Node{}, gpuerr.New(gpuerr.IO, "look at the node %s: %v", path, err)
	case st.Mode&unix.S_IFMT != unix.S_IFCHR:
		return Node{}, gpuerr.New(gpuerr.Denied, "%s is no character device; correct nodes of the policy", path)
	}
	return Node{Path: path, Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev), Mode: st.Mode & 0o777, GID: st.Gid}, nil
}

// belongs returns nil if the node is the function's, or of all functions of its driver.
func (h Host) belongs(n Node, address string) error {
	device, err := filepath.EvalSymlinks(filepath.Join(h.Root, fmt.Sprintf("/sys/dev/char/%d:%d", n.Major, n.Minor)))
	switch {
	case err == nil:
		if !slices.Contains(strings.Split(device, "/"), address) {
			return gpuerr.New(gpuerr.Denied, "the node %s is not of the function %s but of %s; correct nodes or address of the policy", n.Path, address, strings.TrimPrefix(device, h.Root))
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return gpuerr.New(gpuerr.IO, "find the function of the node %s: %v", n.Path, err)
	case n.Major == nvidiaMajor && (n.Minor == nvidiaControl || n.Minor == nvidiaModeset):
		return nil
	case n.Major == nvidiaMajor:
		minor, err := h.nvidiaMinor(address)
		if err != nil {
			return err
		}
		if minor != n.Minor {
			return gpuerr.New(gpuerr.Denied, "the node %s is not of the function %s, which has /dev/nvidia%d; correct nodes or address of the policy", n.Path, address, minor)
		}
		return nil
	case h.isUVM(n.Major):
		return nil
	}
	return gpuerr.New(gpuerr.Denied, "nothing tells of which function the node %s (%d:%d) is, so no engine gets it; correct nodes of the policy", n.Path, n.Major, n.Minor)
}

// nvidiaMinor is the number of a function's node, as NVIDIA's driver tells it
// (/proc/driver/nvidia/gpus/ADDRESS/information).
func (h Host) nvidiaMinor(address string) (uint32, error) {
	text, err := h.read("/proc/driver/nvidia/gpus/" + address + "/information")
	if err != nil {
		return 0, gpuerr.New(gpuerr.NoDevice, "NVIDIA's driver has no function %s (%v); correct address of the policy", address, err)
	}
	minor, err := parseMinor(text)
	if err != nil {
		return 0, gpuerr.New(gpuerr.NoDevice, "function %s: %v", address, err)
	}
	return minor, nil
}

func parseMinor(text string) (uint32, error) {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) == nvidiaMinorField {
			v, err := strconv.ParseUint(strings.TrimSpace(value), 10, 20)
			if err != nil {
				return 0, fmt.Errorf("its driver says %q", strings.TrimSpace(line))
			}
			return uint32(v), nil
		}
	}
	return 0, errors.New("its driver does not say which node it has")
}

// isUVM reports whether a major number is that of NVIDIA's unified memory, which is given to
// it when its module is loaded (/proc/devices).
func (h Host) isUVM(major uint32) bool {
	text, err := h.read("/proc/devices")
	if err != nil {
		return false
	}
	characters, _, _ := strings.Cut(text, "Block devices:")
	for line := range strings.Lines(characters) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[1] == nvidiaUVM && fields[0] == strconv.FormatUint(uint64(major), 10) {
			return true
		}
	}
	return false
}

// IDs returns the vendor and the device of a PCI function; 0 for none.
func (h Host) IDs(address string) (vendor, device uint16, err error) {
	if address == "" {
		return 0, 0, nil
	}
	for file, to := range map[string]*uint16{"vendor": &vendor, "device": &device} {
		text, err := h.read("/sys/bus/pci/devices/" + address + "/" + file)
		if err != nil {
			return 0, 0, gpuerr.New(gpuerr.NoDevice, "there is no PCI function %s (%v); device-manager --list-functions tells which are", address, err)
		}
		v, err := strconv.ParseUint(strings.TrimSpace(text), 0, 16)
		if err != nil {
			return 0, 0, gpuerr.New(gpuerr.IO, "function %s: its %s is %q", address, file, text)
		}
		*to = uint16(v)
	}
	return vendor, device, nil
}

func (h Host) read(path string) (string, error) {
	f, err := os.Open(filepath.Join(h.Root, path))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, maxFileBytes)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
