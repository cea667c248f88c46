package client

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultSocket(t *testing.T) {
	require.Equal(t, "/a.sock", DefaultSocket(func(name string) string { return map[string]string{"CAPGPU_SOCKET": "/a.sock"}[name] }))
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "capgpu"), 0o700))
	path := filepath.Join(dir, "capgpu", "default.sock")
	env := func(name string) string { return map[string]string{"XDG_RUNTIME_DIR": dir}[name] }
	require.Equal(t, "/run/capgpu/default.sock", DefaultSocket(env))
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Equal(t, path, DefaultSocket(env))
	temp := filepath.Join(dir, fmt.Sprintf("capgpu-%d", os.Getuid()))
	require.Empty(t, ownTempDir(dir))
	require.NoError(t, os.Mkdir(temp, 0o755))
	require.Empty(t, ownTempDir(dir), "others could have put a socket there")
	require.NoError(t, os.Chmod(temp, 0o700))
	require.Equal(t, temp, ownTempDir(dir))
}
