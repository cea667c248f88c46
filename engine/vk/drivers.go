package vk

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Driver is a Vulkan driver on this machine.
type Driver struct {
	Name      string // "lavapipe of the system"
	ICD       string // path of its manifest
	Libraries string // searched first for libraries that it needs; may be empty
}

// System is the lavapipe that Debian's mesa-vulkan-drivers installs.
func System() (Driver, error) {
	const dir = "/usr/share/vulkan/icd.d"
	icd, err := manifestIn(dir)
	if err != nil {
		return Driver{}, fmt.Errorf("no lavapipe in %s; install mesa-vulkan-drivers: %w", dir, err)
	}
	return Driver{Name: "lavapipe of the system", ICD: icd}, nil
}

// Unpacked is the lavapipe of a mesa-vulkan-drivers package that was unpacked
// (dpkg-deb -x), not installed, below root. The manifest in a package names its
// library without a path, so one with the path is written beside it.
func Unpacked(root string) (Driver, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Driver{}, err
	}

	found, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libvulkan_lvp.so"))
	if err != nil {
		return Driver{}, err
	}
	if len(found) == 0 {
		return Driver{}, fmt.Errorf("no lavapipe below %s: %w", root, os.ErrNotExist)
	}

	packaged, err := manifestIn(filepath.Join(root, "usr/share/vulkan/icd.d"))
	if err != nil {
		return Driver{}, fmt.Errorf("lavapipe below %s: %w", root, err)
	}

	var m struct {
		ICD struct {
			API     string `json:"api_version"`
			Library string `json:"library_path"`
		} `json:"ICD"`
		Format string `json:"file_format_version"`
	}

	data, err := os.ReadFile(packaged)
	if err != nil {
		return Driver{}, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return Driver{}, fmt.Errorf("read %s: %w", packaged, err)
	}

	m.ICD.Library = found[0]
	if data, err = json.Marshal(&m); err != nil {
		return Driver{}, err
	}

	icd := filepath.Join(root, "lavapipe.json")
	if old, err := os.ReadFile(icd); err != nil || string(old) != string(data) {
		if err := os.WriteFile(icd, data, 0o644); err != nil {
			return Driver{}, err
		}
	}

	return Driver{Name: "lavapipe unpacked", ICD: icd, Libraries: filepath.Dir(found[0])}, nil
}

// manifestIn finds lavapipe's manifest: lvp_icd.x86_64.json, or lvp_icd.json.
func manifestIn(dir string) (string, error) {
	found, err := filepath.Glob(filepath.Join(dir, "lvp_icd*.json"))
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", os.ErrNotExist
	}
	return found[0], nil
}
