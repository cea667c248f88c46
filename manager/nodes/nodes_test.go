package nodes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/gpuerr"
	"capgpu/internal/leakcheck"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// host has a card of NVIDIA's driver, a render node of another function, and nodes of nobody.
func host(t *testing.T) Host {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for path, text := range map[string]string{
		"/proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA H200\nDevice Minor: \t 3\n",
		"/proc/driver/nvidia/gpus/0000:05:00.0/information": "Model: \t\t NVIDIA H200\n",
		"/proc/devices": "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n510 nvidia-uvm\n",
		"/sys/devices/pci0000:00/0000:03:00.0/drm/renderD128/dev": "226:128\n",
		"/sys/bus/pci/devices/0000:01:00.0/vendor":                "0x10de\n",
		"/sys/bus/pci/devices/0000:01:00.0/device":                "0x2335\n",
		"/dev/file": "",
	} {
		at := filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "/sys/dev/char"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(root, "/sys/devices/pci0000:00/0000:03:00.0/drm/renderD128"), filepath.Join(root, "/sys/dev/char/226:128")))

	numbers := map[string][2]uint32{
		"/dev/nvidiactl": {195, 255}, "/dev/nvidia-modeset": {195, 254}, "/dev/nvidia3": {195, 3}, "/dev/nvidia0": {195, 0},
		"/dev/nvidia-uvm": {511, 0}, "/dev/other": {510, 0}, "/dev/mem": {1, 1}, "/dev/dri/renderD128": {226, 128},
	}
	return Host{Root: root, stat: func(path string) (st unix.Stat_t, err error) {
		rel, _ := filepath.Rel(root, path)
		if n, ok := numbers["/"+rel]; ok {
			return unix.Stat_t{Mode: unix.S_IFCHR | 0o660, Gid: 44, Rdev: unix.Mkdev(n[0], n[1])}, nil
		}
		return st, unix.Stat(path, &st)
	}}
}

func TestNodes(t *testing.T) {
	h := host(t)
	found, err := h.Check([]string{"/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia-uvm", "/dev/nvidia-modeset"}, "0000:01:00.0")
	require.NoError(t, err)
	require.Equal(t, Node{Path: "/dev/nvidia3", Major: 195, Minor: 3, Mode: 0o660, GID: 44}, found[1])
	found, err = h.Check([]string{"/dev/dri/renderD128"}, "0000:03:00.0")
	require.NoError(t, err)
	require.Len(t, found, 1)
	found, err = h.Check(nil, "")
	require.NoError(t, err)
	require.Empty(t, found)

	for _, x := range []struct {
		node, address, want string
		code                error
	}{
		{"/dev/nvidia0", "0000:01:00.0", "which has /dev/nvidia3", gpuerr.Denied},
		{"/dev/nvidia3", "0000:03:00.0", "NVIDIA's driver has no function 0000:03:00.0", gpuerr.NoDevice},
		{"/dev/nvidia3", "0000:05:00.0", "does not say which node it has", gpuerr.NoDevice},
		{"/dev/dri/renderD128", "0000:01:00.0", "is not of the function 0000:01:00.0 but of /sys/devices/pci0000:00/0000:03:00.0", gpuerr.Denied},
		{"/dev/mem", "0000:01:00.0", "nothing tells of which function", gpuerr.Denied},
		{"/dev/other", "0000:01:00.0", "nothing tells of which function", gpuerr.Denied},
		{"/dev/none", "0000:01:00.0", "load the GPU's kernel driver", gpuerr.NoDevice},
		{"/dev/file", "0000:01:00.0", "is no character device", gpuerr.Denied},
	} {
		_, err := h.Check([]string{x.node}, x.address)
		require.ErrorIs(t, err, x.code, x.node)
		require.ErrorContains(t, err, x.want)
	}

	vendor, device, err := h.IDs("0000:01:00.0")
	require.NoError(t, err)
	require.Equal(t, [2]uint16{0x10de, 0x2335}, [2]uint16{vendor, device})
	_, _, err = h.IDs("0000:09:00.0")
	require.ErrorIs(t, err, gpuerr.NoDevice)
}

// The real host: no node of it belongs to a function that it has not.
func TestNodesOfThisHost(t *testing.T) {
	_, err := Host{}.Check([]string{"/dev/null"}, "0000:01:00.0")
	require.ErrorIs(t, err, gpuerr.Denied)
}

func FuzzMinor(f *testing.F) {
	f.Add("Device Minor: \t 3\n")
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseMinor(text) })
}
