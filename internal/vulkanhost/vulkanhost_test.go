package vulkanhost

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// made makes files below a root; a target that begins with "->" makes a link.
func made(t *testing.T, files map[string]string) Host {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for path, text := range files {
		at := filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		if len(text) > 2 && text[:2] == "->" {
			require.NoError(t, os.Symlink(filepath.Join(root, text[2:]), at))
		} else {
			require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
		}
	}
	return Host{Root: root}
}

func manifest(library string) string { return `{"ICD": {"library_path": "` + library + `"}}` }

func TestDevices(t *testing.T) {
	_, err := made(t, nil).Devices()
	require.ErrorIs(t, err, ErrNoLoader)
	require.ErrorContains(t, err, "libvulkan1")

	const loader = "/usr/lib/x86_64-linux-gnu/libvulkan.so.1"
	_, err = made(t, map[string]string{loader: ""}).Devices()
	require.ErrorIs(t, err, ErrNoDriver)
	require.ErrorContains(t, err, "mesa-vulkan-drivers")

	lavapipe := map[string]string{loader: "", "/usr/share/vulkan/icd.d/lvp.json": manifest("/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so"), "/usr/share/vulkan/icd.d/bad.json": "{"}
	found, err := made(t, lavapipe).Devices()
	require.NoError(t, err)
	require.Equal(t, []Device{{Name: "vulkan0", ICD: "/usr/share/vulkan/icd.d/lvp.json", Library: "/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so"}}, found)

	lavapipe["/usr/share/vulkan/icd.d/radeon.json"] = manifest("libvulkan_radeon.so")
	lavapipe["/usr/share/vulkan/icd.d/nvidia.json"] = manifest("libGLX_nvidia.so.0")
	lavapipe["/sys/devices/pci0000:00/0000:03:00.0/vendor"] = "0x1002\n"
	lavapipe["/sys/class/drm/renderD128/device"] = "->/sys/devices/pci0000:00/0000:03:00.0"
	lavapipe["/sys/devices/pci0000:00/0000:04:00.0/vendor"] = "0xbeef\n"
	lavapipe["/sys/class/drm/renderD129/device"] = "->/sys/devices/pci0000:00/0000:04:00.0"
	lavapipe["/sys/module/nvidia/initstate"] = "live\n"
	lavapipe["/proc/driver/nvidia/gpus/0000:01:00.0/information"] = "Model: \t\t H200\nDevice Minor: \t 2\n"
	found, err = made(t, lavapipe).Devices()
	require.NoError(t, err)
	require.Equal(t, []Device{
		{Name: "vulkan0", Address: "0000:01:00.0", Nodes: []string{"/dev/nvidiactl", "/dev/nvidia2"}, ICD: "/usr/share/vulkan/icd.d/nvidia.json", Library: "libGLX_nvidia.so.0", Files: []string{"/sys/module/nvidia/initstate"}, Proc: true},
		{Name: "vulkan1", Address: "0000:03:00.0", Nodes: []string{"/dev/dri/renderD128"}, ICD: "/usr/share/vulkan/icd.d/radeon.json", Library: "libvulkan_radeon.so", Files: []string{"/sys/class/drm", "/sys/devices/pci0000:00/0000:03:00.0"}, Proc: true},
		{Name: "vulkan2", ICD: "/usr/share/vulkan/icd.d/lvp.json", Library: "/usr/lib/x86_64-linux-gnu/libvulkan_lvp.so"},
	}, found)
}

func TestLibrary(t *testing.T) {
	h := made(t, map[string]string{"/usr/lib/x86_64-linux-gnu/liba.so": "", "/opt/libb.so": ""})
	path, ok := h.Library("liba.so")
	require.True(t, ok)
	require.Equal(t, "/usr/lib/x86_64-linux-gnu/liba.so", path)
	_, ok = h.Library("/opt/libb.so")
	require.True(t, ok)
	for _, none := range []string{"libb.so", "/opt/liba.so"} {
		_, ok = h.Library(none)
		require.False(t, ok, none)
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifest("libvulkan_lvp.so")))
	f.Fuzz(func(t *testing.T, text []byte) {
		if library, err := parseManifest(text); err == nil {
			require.NotEmpty(t, library)
			require.NotContains(t, library, "\x00")
		}
	})
}
