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
	got, err := FindKernel(t.Context(), t.TempDir(), t.Logf)
	require.NoError(t, err)
	require.Equal(t, path, got.Image)

	t.Setenv("KERNEL", path+".missing")
	_, err = FindKernel(t.Context(), t.TempDir(), t.Logf)
	require.ErrorContains(t, err, "KERNEL= names")
}

// With a kernel in the cache no tool is run: there is none in this PATH.
func TestKernelWorksOfflineWhenCached(t *testing.T) {
	t.Setenv("KERNEL", "")
	t.Setenv("PATH", t.TempDir())
	cache := t.TempDir()
	_, err := FindKernel(t.Context(), cache, t.Logf)
	require.ErrorContains(t, err, "KERNEL=/path/to/vmlinuz")

	dir := filepath.Join(cache, "kernel", "6.12.1-cloud-amd64")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vmlinuz"), []byte("kernel"), 0o644))
	_, err = FindKernel(t.Context(), cache, t.Logf)
	require.ErrorContains(t, err, "KERNEL=/path/to/vmlinuz", "a kernel without its modules is fetched again")

	for _, m := range guestModules {
		require.NoError(t, os.WriteFile(filepath.Join(dir, m+moduleSuffix), []byte(m), 0o644))
	}
	got, err := FindKernel(t.Context(), cache, t.Logf)
	require.NoError(t, err)
	require.Equal(t, Kernel{Image: filepath.Join(dir, "vmlinuz"), Modules: dir}, got)
	files, err := got.ModuleFiles()
	require.NoError(t, err)
	require.Equal(t, "lib/modules/0-irqbypass.ko.xz", files[0].Path)
	require.Len(t, files, len(guestModules))
}

// TestKeepKernel: of a package, the cache keeps the image and our modules.
func TestKeepKernel(t *testing.T) {
	root, cache := t.TempDir(), t.TempDir()
	put := func(path string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("x"), 0o644))
	}
	require.ErrorContains(t, keepKernel(root, cache), "0 kernel images")
	put("boot/vmlinuz-6.1")
	put("lib/modules/6.1/kernel/drivers/net/other.ko.xz")
	for _, m := range guestModules {
		put("lib/modules/6.1/kernel/deep/" + m + ".ko.xz")
	}
	require.NoError(t, keepKernel(root, cache))
	k, ok := cachedKernel(cache)
	require.True(t, ok)
	require.Equal(t, filepath.Join(cache, "kernel", "6.1", "vmlinuz"), k.Image)
	require.NoFileExists(t, filepath.Join(k.Modules, "other.ko.xz"))
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
