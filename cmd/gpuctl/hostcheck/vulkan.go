package hostcheck

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"capgpu/internal/vulkanhost"
)

// enginePrograms are what engine processes are made of.
var enginePrograms = []string{"gpu-engine-launch", "gpu-engine-vulkan"}

// vulkan checks what engine processes need of the host, for each device that they can use
// (docs/policy.md, functions that the kernel keeps). Where a host has no Vulkan at all, nothing
// must change: functions of other kinds need none.
func (h Host) vulkan() []Check {
	if h.Probes.Vulkan == nil || h.Probes.Library == nil {
		return nil
	}
	found, err := h.Probes.Vulkan()
	if err != nil {
		return []Check{{"Vulkan", OK, "this host has none, which only functions of kind vulkan need", err.Error()}}
	}

	checks := []Check{h.enginePrograms()}
	for _, d := range found {
		checks = append(checks, h.vulkanDevice(d))
	}
	return checks
}

func (h Host) enginePrograms() Check {
	const name = "engine programs"
	if h.Probes.Folder == nil {
		return Check{name, Unknown, "the folder of the programs is not known", ""}
	}
	dir, err := h.Probes.Folder()
	if err != nil {
		return Check{name, Unknown, err.Error(), ""}
	}
	var missing []string
	for _, p := range enginePrograms {
		if info, err := os.Stat(filepath.Join(dir, p)); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			missing = append(missing, p)
		}
	}
	if missing != nil {
		return Check{name, OK, fmt.Sprintf("%s has no %s, which functions of kind vulkan need", dir, strings.Join(missing, " and no ")),
			"install them beside device-manager, or name others in engine of the policy"}
	}
	return Check{name, OK, strings.Join(enginePrograms, ", ") + " in " + dir, ""}
}

// vulkanDevice checks the files of a device. The manager checks before each driver to which
// function a node belongs.
func (h Host) vulkanDevice(d vulkanhost.Device) Check {
	name := "Vulkan " + d.Address
	if d.Address == "" {
		name = "Vulkan in software"
	}
	if _, there := h.Probes.Library(d.Library); !there {
		return Check{name, Change, fmt.Sprintf("%s names %s, which is not there", d.ICD, d.Library), "install the package of the driver anew, or remove that file"}
	}
	if d.Address == "" {
		return Check{name, OK, "lavapipe, for tests: " + d.ICD, ""}
	}
	var missing []string
	for _, node := range d.Nodes {
		info, err := os.Stat(h.dev(strings.TrimPrefix(node, "/dev")))
		if err != nil || info.Mode()&os.ModeCharDevice == 0 && info.Mode()&os.ModeDevice == 0 {
			missing = append(missing, node)
		}
	}
	if missing != nil {
		return Check{name, Change, "the nodes " + strings.Join(missing, ", ") + " are not there",
			"load the GPU's kernel driver; for NVIDIA run nvidia-modprobe -c 0"}
	}
	return Check{name, OK, fmt.Sprintf("nodes %s, driver %s", strings.Join(d.Nodes, ", "), d.ICD), ""}
}
