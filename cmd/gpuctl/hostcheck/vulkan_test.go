package hostcheck_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/cmd/gpuctl/hostcheck"
	"capgpu/internal/vulkanhost"
)

func TestVulkan(t *testing.T) {
	m := makeHost(t)
	find := func(name string) hostcheck.Check {
		checks := hostcheck.Run(m.Host, nil)
		i := slices.IndexFunc(checks, func(c hostcheck.Check) bool { return c.Name == name })
		require.GreaterOrEqual(t, i, 0, "%s: %v", name, checks)
		return checks[i]
	}

	m.Probes.Library = func(name string) (string, bool) { return name, name == "good.so" }
	m.Probes.Vulkan = func() ([]vulkanhost.Device, error) { return nil, vulkanhost.ErrNoLoader }
	c := find("Vulkan")
	require.Equal(t, hostcheck.OK, c.Status, "no other function needs it")
	require.Contains(t, c.Do, "libvulkan1")

	dir := t.TempDir()
	m.Probes.Folder = func() (string, error) { return dir, nil }
	devices := []vulkanhost.Device{{Address: "0000:01:00.0", Nodes: []string{"/dev/nvidia0"}, Library: "good.so", ICD: "a.json"}, {Library: "bad.so", ICD: "b.json"}}
	m.Probes.Vulkan = func() ([]vulkanhost.Device, error) { return devices, nil }
	require.Contains(t, find("engine programs").Found, "no gpu-engine-launch and no gpu-engine-vulkan")
	for _, p := range []string{"gpu-engine-launch", "gpu-engine-vulkan"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, p), nil, 0o755))
	}
	require.NotContains(t, find("engine programs").Found, "has no")

	c = find("Vulkan 0000:01:00.0")
	require.Equal(t, hostcheck.Change, c.Status)
	require.Contains(t, c.Found, "/dev/nvidia0")
	c = find("Vulkan in software")
	require.Equal(t, hostcheck.Change, c.Status)
	require.Contains(t, c.Found, "b.json names bad.so, which is not there")
	devices[1].Library = "good.so"
	require.Equal(t, hostcheck.OK, find("Vulkan in software").Status)
	require.NoError(t, os.Symlink("/dev/null", filepath.Join(m.Dev, "nvidia0")))
	require.Equal(t, hostcheck.OK, find("Vulkan 0000:01:00.0").Status)
}
