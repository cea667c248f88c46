package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"capgpu/engine/vk"
	"capgpu/gpu/backend/engine/wire"
)

// TestMain runs the command itself where a test has started it.
func TestMain(m *testing.M) {
	if os.Getenv("CAPGPU_ENGINE_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// command runs the command with a driver's manifest.
func command(t *testing.T, d vk.Driver, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.Env = os.Environ()
	for _, pair := range environment(d) {
		c.Env = append(c.Env, pair[0]+"="+pair[1])
	}
	_ = c.Run() // the status says it
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// environment has a process of the test's binary be the command, on a driver.
func environment(d vk.Driver) [][2]string {
	return [][2]string{
		{"CAPGPU_ENGINE_MAIN", "1"}, {"VK_DRIVER_FILES", d.ICD}, {"VK_ICD_FILENAMES", d.ICD}, {"VK_LOADER_LAYERS_DISABLE", "*"},
		{"MESA_SHADER_CACHE_DISABLE", "true"}, {"LP_NUM_THREADS", "0"}, {"LD_LIBRARY_PATH", d.Libraries},
	}
}

// lavapipe is the driver that the tests have.
func lavapipe(t *testing.T) vk.Driver {
	t.Helper()
	root := os.Getenv("CAPGPU_LAVAPIPE")
	if root == "" {
		root = filepath.Join("..", "..", "..", ".cache", "lavapipe")
	}
	d, err := vk.Unpacked(root)
	if err != nil {
		t.Skipf("SKIPPED: %v; \"make oracle\" unpacks one", err)
	}
	return d
}

func TestCommandLine(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, 0, run([]string{"--help"}, &stdout, &stderr))
	require.Equal(t, usage, stdout.String())
	require.Equal(t, 2, run([]string{"--bogus"}, &stdout, &stderr))
	require.Equal(t, "gpu-engine-vulkan: unknown flag --bogus; see gpu-engine-vulkan --help\n", stderr.String())
}

func TestDescribe(t *testing.T) {
	d := lavapipe(t)
	stdout, stderr, status := command(t, d, "--describe")
	require.Equal(t, 0, status, stderr)
	var about wire.Device
	require.NoError(t, json.Unmarshal([]byte(stdout), &about))
	require.Contains(t, about.Name, "llvmpipe")
	require.Contains(t, about.Driver, "Mesa ")
	require.Zero(t, about.LocalBytes)

	stdout, _, status = command(t, d, "--describe", "--local")
	require.Equal(t, 0, status)
	require.NoError(t, json.Unmarshal([]byte(stdout), &about))
	require.Positive(t, about.LocalBytes)

	stdout, stderr, status = command(t, d, "--describe", "--address", "0000:ff:00.0")
	require.Equal(t, 1, status)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no Vulkan device has the PCI address 0000:ff:00.0")
}

// A driver that ends loops silently is refused, in one sentence.
func TestOldDriverIsRefused(t *testing.T) {
	d, err := vk.System()
	if err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	stdout, stderr, status := command(t, d, "--describe")
	if status == 0 {
		t.Skipf("SKIPPED: the system's driver is a new one: %s", stdout)
	}
	require.Empty(t, stdout)
	require.Regexp(t, `^gpu-engine-vulkan: open llvmpipe .* ends a loop of 200000 rounds after 65535`, stderr)
}

func TestNoDriver(t *testing.T) {
	_, stderr, status := command(t, vk.Driver{ICD: "/nonexistent.json"}, "--describe")
	require.Equal(t, 1, status)
	require.Regexp(t, `^gpu-engine-vulkan: (no Vulkan driver could be opened|open libvulkan|the Vulkan drivers of this machine have no device)`, stderr)
}
