package vulkan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"capgpu/engine/vk"
	"capgpu/engine/vulkan"
	"capgpu/gpu/backend/engine/host"
)

// TestMain starts the tests again with the environment of a driver, which the library reads
// from the start of its process: CAPGPU_TEST_ICD's manifest, else the lavapipe that
// tools/oracle.sh has unpacked. With neither the tests are skipped.
func TestMain(m *testing.M) {
	if !vulkan.Ready() {
		if env, err := environment(); err == nil {
			self, err := os.Executable()
			if err == nil {
				err = unix.Exec(self, os.Args, append(os.Environ(), env...))
			}
			fmt.Fprintln(os.Stderr, "start again:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func environment() ([]string, error) {
	env := []string{vulkan.ReadyMark + "=1", "MESA_SHADER_CACHE_DISABLE=true", "LP_NUM_THREADS=0"}
	if os.Getenv("VK_INSTANCE_LAYERS") == "" {
		env = append(env, "VK_LOADER_LAYERS_DISABLE=*")
	}
	if icd := os.Getenv("CAPGPU_TEST_ICD"); icd != "" {
		return append(env, "VK_DRIVER_FILES="+icd, "VK_ICD_FILENAMES="+icd), nil
	}

	root := os.Getenv("CAPGPU_LAVAPIPE")
	if root == "" {
		root = filepath.Join("..", "..", ".cache", "lavapipe")
	}
	d, err := vk.Unpacked(root)
	if err != nil {
		return nil, err
	}
	return append(env, "VK_DRIVER_FILES="+d.ICD, "VK_ICD_FILENAMES="+d.ICD, "LD_LIBRARY_PATH="+d.Libraries), nil
}

// device opens the device under test.
func device(t testing.TB, o vulkan.Options) host.Device {
	t.Helper()
	if !vulkan.Ready() {
		t.Skip("SKIPPED: no Mesa lavapipe of 25 or newer is here; \"make oracle\" unpacks one")
	}
	d, err := vulkan.Open(o)
	require.NoError(t, err)
	return d
}
