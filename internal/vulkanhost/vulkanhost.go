// Package vulkanhost tells what a host has for Vulkan: the loader, the manifests of drivers
// (ICDs), and the functions with the nodes that a driver needs. It reads files, opens no node
// and loads no library. Manifests are files of root and bounded all the same.
package vulkanhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"capgpu/gpuerr"
)

// Host is where the files are.
type Host struct {
	Root string // before all paths; empty: this host's
}

// ICD is a driver's manifest.
type ICD struct {
	Path    string
	Library string // a path, relative to the manifest's folder, or a name that the loader looks for
}

// Device is what engines of one device need.
type Device struct {
	Name    string   // "vulkan0"
	Address string   // empty: in software
	Nodes   []string // none: in software
	ICD     string
	Library string   // that the manifest names
	Files   []string // that its driver reads
	Proc    bool
}

// Folders of manifests, in the loader's order (Vulkan-Loader, LoaderDriverInterface.md, Linux
// driver discovery), and of libraries.
var (
	manifestDirs = []string{"/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/usr/share/vulkan/icd.d"}
	libraryDirs  = []string{"/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib"}
)

const (
	loaderName       = "libvulkan.so.1"
	maxManifestBytes = 64 << 10
)

// ErrNoLoader and ErrNoDriver say what a host lacks, and which package has it.
var (
	ErrNoLoader = gpuerr.New(gpuerr.NoDevice, "this host has no Vulkan loader (%s): install libvulkan1 (Debian), vulkan-loader (Fedora) or vulkan-icd-loader (Arch)", loaderName)
	ErrNoDriver = gpuerr.New(gpuerr.NoDevice, "this host has no Vulkan driver for a device that it has, and none in software: install mesa-vulkan-drivers (Debian, Fedora) or vulkan-swrast (Arch), or the driver of your GPU's vendor")
)

// Loader returns the path of the Vulkan loader.
func (h Host) Loader() (string, error) {
	if path, ok := h.Library(loaderName); ok {
		return path, nil
	}
	return "", ErrNoLoader
}

// Library finds a library by its path, or by its name in the folders of libraries.
func (h Host) Library(name string) (path string, found bool) {
	if filepath.IsAbs(name) {
		_, err := os.Stat(filepath.Join(h.Root, name))
		return name, err == nil
	}
	for _, dir := range libraryDirs {
		for _, pattern := range []string{dir, dir + "/*-linux-gnu*"} { // Debian has a folder for each architecture
			folders, _ := filepath.Glob(filepath.Join(h.Root, pattern))
			for _, folder := range folders {
				path := filepath.Join(folder, name)
				if _, err := os.Stat(path); err == nil {
					return strings.TrimPrefix(path, h.Root), true
				}
			}
		}
	}
	return "", false
}

// ICDs returns the manifests that can be read.
func (h Host) ICDs() (all []ICD) {
	for _, dir := range manifestDirs {
		found, _ := filepath.Glob(filepath.Join(h.Root, dir, "*.json"))
		for _, path := range found {
			text, err := readSome(path)
			if err != nil {
				continue
			}
			if library, err := parseManifest(text); err == nil {
				all = append(all, ICD{Path: strings.TrimPrefix(path, h.Root), Library: library})
			}
		}
	}
	return all
}

func readSome(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, maxManifestBytes)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return nil, err
	}
	return b[:n], nil
}

// parseManifest returns the library of a manifest.
func parseManifest(text []byte) (string, error) {
	var m struct {
		ICD struct {
			LibraryPath string `json:"library_path"`
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return "", err
	}
	if m.ICD.LibraryPath == "" || strings.ContainsRune(m.ICD.LibraryPath, 0) {
		return "", errors.New("the manifest names no library")
	}
	return m.ICD.LibraryPath, nil
}

// drivers are parts of the names of the libraries that drive a vendor's functions.
var drivers = map[uint64][]string{
	0x1002: {"libvulkan_radeon"},
	0x8086: {"libvulkan_intel.", "libvulkan_intel_hasvk"},
	0x10de: {"libGLX_nvidia", "libEGL_nvidia", "libvulkan_nouveau"},
	0x1af4: {"libvulkan_virtio"},
}

const software = "libvulkan_lvp"

func pick(all []ICD, names ...string) (ICD, bool) {
	for _, name := range names {
		if i := slices.IndexFunc(all, func(c ICD) bool { return strings.Contains(filepath.Base(c.Library), name) }); i >= 0 {
			return all[i], true
		}
	}
	return ICD{}, false
}

// Devices returns the devices that engines can use here: those of NVIDIA's driver, those with
// a render node, and at last lavapipe. An error says what is missing.
func (h Host) Devices() (found []Device, err error) {
	if _, err := h.Loader(); err != nil {
		return nil, err
	}

	icds := h.ICDs()
	for _, d := range slices.Concat(h.nvidia(icds), h.rendering(icds)) {
		if !slices.ContainsFunc(found, func(o Device) bool { return o.Address == d.Address }) {
			found = append(found, d)
		}
	}
	if icd, ok := pick(icds, software); ok {
		found = append(found, Device{ICD: icd.Path, Library: icd.Library})
	}
	if len(found) == 0 {
		return nil, ErrNoDriver
	}
	for i := range found {
		found[i].Name = fmt.Sprintf("vulkan%d", i)
	}
	return found, nil
}

// nvidia returns the functions of NVIDIA's own driver (docs/gpus.md, section 3, has the files).
func (h Host) nvidia(icds []ICD) (found []Device) {
	icd, ok := pick(icds, drivers[0x10de][:2]...)
	if !ok {
		return nil
	}
	dirs, _ := filepath.Glob(filepath.Join(h.Root, "/proc/driver/nvidia/gpus/*"))
	for _, dir := range dirs {
		text, err := readSome(filepath.Join(dir, "information"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			minor, err := strconv.ParseUint(strings.TrimSpace(value), 10, 8)
			if strings.TrimSpace(name) != "Device Minor" || err != nil {
				continue
			}
			found = append(found, Device{
				Address: filepath.Base(dir), Nodes: []string{"/dev/nvidiactl", fmt.Sprintf("/dev/nvidia%d", minor)}, ICD: icd.Path, Library: icd.Library, Proc: true,
				Files: h.existing("/sys/module/nvidia/initstate", "/sys/devices/system/cpu"),
			})
		}
	}
	return found
}

// rendering returns the functions with a render node of DRM.
func (h Host) rendering(icds []ICD) (found []Device) {
	nodes, _ := filepath.Glob(filepath.Join(h.Root, "/sys/class/drm/renderD*"))
	for _, node := range nodes {
		device, err := filepath.EvalSymlinks(filepath.Join(node, "device"))
		if err != nil {
			continue
		}
		text, err := readSome(filepath.Join(device, "vendor"))
		if err != nil {
			continue
		}
		vendor, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 16)
		if err != nil {
			continue
		}
		icd, ok := pick(icds, drivers[vendor]...)
		if !ok {
			continue
		}
		found = append(found, Device{
			Address: filepath.Base(device), Nodes: []string{"/dev/dri/" + filepath.Base(node)}, ICD: icd.Path, Library: icd.Library, Proc: true,
			Files: append(h.existing("/sys/dev/char", "/sys/class/drm", "/sys/devices/system/cpu"), strings.TrimPrefix(device, h.Root)),
		})
	}
	return found
}

func (h Host) existing(paths ...string) (there []string) {
	for _, p := range paths {
		if _, err := os.Stat(filepath.Join(h.Root, p)); err == nil {
			there = append(there, p)
		}
	}
	return there
}
