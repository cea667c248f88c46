package qemu

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKernelOfEnvironmentWins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bzImage")
	require.NoError(t, os.WriteFile(path, []byte("kernel"), 0o644))
	t.Setenv("KERNEL", path)
	got, err := Kernel(t.Context(), t.TempDir(), t.Logf)
	require.NoError(t, err)
	require.Equal(t, path, got)

	t.Setenv("KERNEL", path+".missing")
	_, err = Kernel(t.Context(), t.TempDir(), t.Logf)
	require.ErrorContains(t, err, "KERNEL= names")
}

// With a kernel in the cache no tool is run: there is none in this PATH.
func TestKernelWorksOfflineWhenCached(t *testing.T) {
	t.Setenv("KERNEL", "")
	t.Setenv("PATH", t.TempDir())
	cache := t.TempDir()
	_, err := Kernel(t.Context(), cache, t.Logf)
	require.ErrorContains(t, err, "KERNEL=/path/to/vmlinuz")

	image := filepath.Join(cache, "kernel", "vmlinuz-6.12.1-cloud-amd64")
	require.NoError(t, os.MkdirAll(filepath.Dir(image), 0o755))
	require.NoError(t, os.WriteFile(image, []byte("kernel"), 0o644))
	got, err := Kernel(t.Context(), cache, t.Logf)
	require.NoError(t, err)
	require.Equal(t, image, got)
}

func TestCacheDirOrder(t *testing.T) {
	t.Setenv("CAPGPU_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "")
	require.Equal(t, "/repo/.cache", CacheDir("/repo"))
	t.Setenv("XDG_CACHE_HOME", "/xdg")
	require.Equal(t, "/xdg/capgpu", CacheDir("/repo"))
	t.Setenv("CAPGPU_CACHE", "/mine")
	require.Equal(t, "/mine", CacheDir("/repo"))
}
