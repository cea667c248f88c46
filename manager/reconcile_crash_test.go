package manager

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The leftovers of a crashed manager in its run directory are found and removed, and other
// files stay. The lock remembers the crash until it is recorded.
func TestRunDirAfterACrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, err := openRunDir(dir)
	require.NoError(t, err)
	require.Empty(t, first.left)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "a.sock"), Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, hiddenPrefix+"123"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, hiddenPrefix+"123", "s"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "audit.log"), []byte("x"), 0o600))
	require.NoError(t, first.lock.Close()) // as the kernel does

	second, err := openRunDir(dir)
	require.NoError(t, err)
	require.Equal(t, leftovers{pids: []int{os.Getpid()}, sockets: 1, hidden: 1}, second.left)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"audit.log", lockName}, names)
	require.NoError(t, second.lock.Close()) // crashes before it has recorded the first crash

	third, err := openRunDir(dir)
	require.NoError(t, err)
	require.Len(t, third.left.pids, 2)
	require.NoError(t, third.Close()) // in order

	last, err := openRunDir(dir)
	require.NoError(t, err)
	require.Empty(t, last.left)
	require.NoError(t, last.Close())
}

// A lock with any other content names no process, and a bounded number is remembered.
func TestLockThatIsNone(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "\x00\x00": 0, "garbage\n": 0, "-4\n": 0, "17": 0, "17\n": 1, "17\nx\n18\n": 2,
		"99999999999999999999999\n":                              0,
		"1\n2\n3\n4\n5\n6\n7\n8\n9\n1\n2\n3\n4\n5\n6\n7\n8\n9\n": maxCrashed - 1,
	} {
		path := filepath.Join(t.TempDir(), lockName)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		pids, err := takeLock(f)
		require.NoError(t, err)
		require.Len(t, pids, want, "%q", text)
		require.NoError(t, f.Close())
	}
}
